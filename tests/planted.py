"""A run on Probe-D4 that is long enough to find its group: a preset and these."""

SETTINGS = {
    "steps": 2_000,
    "seeds": (0, 1),
    "network.hidden": (16, 16),
    "order.horizons": (4,),
    "replay.batch_size": 16,
    "replay.learning_starts": 250,
    "evaluation.every": 1_000,
    "evaluation.episodes": 2,
    "run.log_every": 500,
    "run.checkpoint_every": 500,
    "run.keep": 10,
}
