"""Tuned values per task, and ``preset``, which puts them together with a method's overrides."""

from collections.abc import Mapping
from typing import Any

from gcr_rl.config import Config, validate
from gcr_rl.errors import InputError, unknown_name
from gcr_rl.methods import METHOD_ALIASES, METHODS

# Tuned values per task (docs/agents.md says how); every method of a task starts from them.
TASK_PRESETS: dict[str, dict[str, Any]] = {
    "CartPole": {
        "steps": 50_000,
        "network.hidden": (128, 128),
        "optimiser.learning_rate": 2e-3,
        "optimiser.schedule": "linear",
        "optimiser.clip_norm": 1.0,
        "value.discount": 0.995,
        "value.support_low": 0.0,  # 500 steps at 0.995 are worth 184
        "value.support_high": 200.0,
        "value.loss": "squared",
        "value.n_step": 3,
        "value.target_period": 1,
        "value.target_rate": 0.02,
        "replay.capacity": 50_000,
        "replay.batch_size": 128,
        "replay.recent_share": 0.5,
        "replay.recent_window": 5_000,
        "loop.train_every": 250,
        "loop.updates": 125,
        "exploration.end": 0.1,
        "exploration.fraction": 0.2,
    },
    "RotMirrorGrid": {
        "steps": 60_000,
        "network.hidden": (256, 256),
        "network.layer_norm": True,
        "optimiser.learning_rate": 4e-3,
        "optimiser.schedule": "linear",
        "value.support_low": -100.0,  # walking for ever
        "value.support_high": 0.0,
        "value.loss": "squared",
        "value.n_step": 3,
        "value.target_period": 1,
        "value.target_rate": 0.02,
        "replay.capacity": 60_000,
        "replay.batch_size": 128,
        "replay.learning_starts": 300,
        "loop.updates": 2,
        "exploration.end": 0.1,
        "exploration.fraction": 0.1,
        "evaluation.every": 1_000,
    },
    "ButtonPermutation": {
        "steps": 100_000,
        "network.encoder": "mlp",
        "network.hidden": (128,),
        "value.target_period": 1,
        "value.target_rate": 0.01,
        "value.support_low": -5.0,  # ten wrong presses; five right ones
        "value.support_high": 5.0,
        "replay.capacity": 50_000,
        "exploration.end": 0.05,
        "exploration.fraction": 0.3,
        "evaluation.every": 5_000,
        "evaluation.episodes": 50,
    },
    "NoisyRPSChain": {
        "steps": 20_000,
        "optimiser.learning_rate": 2e-3,
        "optimiser.schedule": "linear",
        "value.support_low": -12.0,
        "value.support_high": 12.0,
        "value.target_period": 1,
        "value.target_rate": 0.02,
        "replay.capacity": 20_000,
        "replay.learning_starts": 200,
        "exploration.end": 0.1,
        "exploration.fraction": 0.2,
        "evaluation.every": 500,
    },
}
TASK_PRESETS["CartPole-v1"] = TASK_PRESETS["CartPole"]
for _probe in ("TwoState", "C4", "D4", "Order", "Cycle", "NoSymmetry"):
    TASK_PRESETS[f"Probe-{_probe}"] = {"steps": 10_000}
for _probe in ("C4", "D4", "Order", "NoSymmetry"):
    TASK_PRESETS[f"Probe-{_probe}"] |= {"value.support_low": -30.0, "value.support_high": 0.0}
for _probe in ("TwoState", "Cycle"):
    TASK_PRESETS[f"Probe-{_probe}"] |= {"value.support_low": -2.0, "value.support_high": 2.0}

# Samples per frame and exploration after the DQN of the MinAtar paper (arXiv:1903.03176), in
# larger batches: 2 updates of 128 for ten frames where it makes 10 of 32. Tuned: layer_norm alone.
for _game, _most in (("Breakout", 20.0), ("Asterix", 40.0), ("Freeway", 10.0),
                     ("SpaceInvaders", 50.0)):  # fmt: skip
    TASK_PRESETS[f"MinAtar-{_game}"] = {
        "steps": 1_000_000,
        "network.encoder": "minatar",
        "network.hidden": (128,),
        "network.layer_norm": True,
        "optimiser.learning_rate": 1e-3,
        "value.support_low": 0.0,  # no reward is negative
        "value.support_high": _most,
        "value.target_period": 200,
        "replay.capacity": 100_000,
        "replay.batch_size": 128,
        "replay.learning_starts": 5_000,
        "loop.num_envs": 10,
        "loop.updates": 2,
        "exploration.end": 0.1,
        "exploration.fraction": 0.1,
        "evaluation.every": 50_000,
        "run.log_every": 10_000,
        "run.checkpoint_every": 250_000,
    }

METHOD_PRESETS: dict[tuple[str, str], dict[str, Any]] = {
    # The groups that `equivariant` is told; where there is none it is plain Double-DQN.
    (task, "equivariant"): {"network.encoder": encoder}
    for task, encoder in (
        ("CartPole", "sign"),
        ("CartPole-v1", "sign"),
        ("RotMirrorGrid", "square"),
        ("Probe-D4", "square"),
        ("Probe-C4", "rotations"),
        ("ButtonPermutation", "tiles"),
    )
}
# States of CartPole differ by little: stronger views blur them (docs/agents.md has the figures).
for _task in ("CartPole", "CartPole-v1"):
    METHOD_PRESETS[_task, "rad"] = {"augment.amplitude": 0.05}
    METHOD_PRESETS[_task, "drq-v2"] = {"augment.deviation": 0.002}
# Noisy layers alone do not explore enough; on RotMirrorGrid and MinAtar they are off.
for _task, _values in {
    "CartPole": {"exploration.end": 0.02},
    "CartPole-v1": {"exploration.end": 0.02},
    # Rewards of -1 and gaps of 1 between actions on a support 100 wide: distributions learn
    # nothing in 25,000 steps there that values do not learn sooner.
    "RotMirrorGrid": {"exploration.end": 0.1, "value.atoms": 0, "network.noisy": False},
    "ButtonPermutation": {"exploration.end": 0.05},
    # Three steps of an exploring policy make the way look worse than staying where one is.
    "NoisyRPSChain": {"exploration.end": 0.1, "value.n_step": 1},
    **{
        # Three steps hide from Asterix for 200,000 frames what one step shows by then.
        task: {"exploration.end": 0.1, "network.noisy": False, "value.n_step": 1}
        for task in TASK_PRESETS
        if task.startswith("MinAtar-")
    },
}.items():
    for _method in ("rainbow", "gcr-rainbow"):
        METHOD_PRESETS[_task, _method] = {"exploration.start": 1.0, **_values}
METHOD_PRESETS["RotMirrorGrid", "gcr-rainbow"]["order.horizons"] = (5, 20)
for _method in ("gcr-hard", "gcr-soft", "sym-only", "logic-only", "no-relabel"):
    METHOD_PRESETS["RotMirrorGrid", _method] = {
        "order.horizons": (5, 20),
        "exploration.fraction": 0.05,
    }
    # More and more frequent updates: with the group they learn faster, Double-DQN forgets.
    for _task in ("CartPole", "CartPole-v1"):
        METHOD_PRESETS[_task, _method] = {
            "value.n_step": 5,
            "replay.learning_starts": 500,
            "loop.train_every": 50,
            "loop.updates": 100,
            "replay.recent_share": 0.0,
            "exploration.fraction": 0.1,
        }
# Bounds that are within chance do harm where nothing else keeps values in place (docs/gcr.md).
for _task in ("ButtonPermutation", *(task for task in TASK_PRESETS if task.startswith("MinAtar-"))):
    for _method in ("gcr-hard", "gcr-soft", "logic-only", "no-relabel"):
        METHOD_PRESETS[_task, _method] = {"order.doubt": 0.5}
    if _task.startswith("MinAtar-"):
        METHOD_PRESETS[_task, "gcr-rainbow"]["order.doubt"] = 0.5
# Rewards are noisy and pairs are few: what was seen of one is pooled (docs/replay.md).
for _method in ("gcr-hard", "gcr-soft", "gcr-rainbow", "sym-only", "logic-only", "no-relabel"):
    METHOD_PRESETS.setdefault(("NoisyRPSChain", _method), {})["replay.pooled"] = True


def preset(task: str, method: str = "ddqn", overrides: Mapping[str, Any] | None = None) -> Config:
    """The tuned defaults of ``method`` on ``task``, then ``overrides``, validated."""
    if not isinstance(task, str):
        raise InputError("task", task, "a text")
    method = METHOD_ALIASES.get(method, method) if isinstance(method, str) else method
    if not isinstance(method, str) or method not in METHODS:
        raise unknown_name("method", method, METHODS)
    config = Config(task=task, method=method)
    for layer in (
        TASK_PRESETS.get(task, {}),
        METHODS[method].overrides,
        METHOD_PRESETS.get((task, method), {}),
        overrides or {},
    ):
        config = config.replace(layer)
    validate(config)
    return config
