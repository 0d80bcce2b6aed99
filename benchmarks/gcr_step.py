"""What an update of each method costs, in updates of Double-DQN: one core, batch 64, 19x19 grid.

The update alone: sampling from the replay, losses, gradient, clipping, Adam, target. The group
of the square is in force for the methods that use one; each row's base has the same network.

    python benchmarks/gcr_step.py [--quick]
"""

import argparse
import json
import os
import platform
import statistics
import time
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import jax
import jax.numpy as jnp
import numpy as np

from gcr_rl import envs
from gcr_rl.agents.symmetric import without_fold
from gcr_rl.envs.simulator import make_simulator
from gcr_rl.presets import preset
from gcr_rl.replay.prioritised import write
from gcr_rl.symmetry import from_elements
from gcr_rl.training.loop import make_learner
from gcr_rl.training.state import streams

BATCH, STORED, PER_ROUND = 64, 5_000, 20
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
CASES = (
    ("ddqn", {}),
    ("sym-only", {}),
    ("logic-only", {}),
    ("gcr-hard", {}),
    ("gcr-hard, reynolds", {"symmetry.enforce": "reynolds"}),
    ("gcr-hard, pairs", {"order.pairs": True}),
    ("gcr-hard, pairs, reynolds", {"order.pairs": True, "symmetry.enforce": "reynolds"}),
    ("gcr-soft, pairs", {"order.pairs": True}),
    ("gcr-soft", {}),
    ("paper-soft", {}),
    ("paper-hard", {}),
)
RESULTS = Path(__file__).parent / "results" / "gcr_step.json"


def square_group(vocabulary):
    """The group of the square with the relabellings of up, down, left and right."""
    size = vocabulary.shape[0]
    centre, table = size // 2, []
    for g in range(vocabulary.size):
        row = []
        for dy, dx in MOVES:
            mark = np.zeros(vocabulary.shape, np.uint8)
            mark[centre + dy, centre + dx, 0] = 1
            y, x, _ = np.argwhere(np.asarray(vocabulary.apply(g, mark)) == 1)[0]
            row.append(MOVES.index((y - centre, x - centre)))
        table.append(row)
    return without_fold(from_elements(vocabulary, np.array(table, np.int32)))


def program(name, overrides, simulator):
    """PER_ROUND updates of one seed, compiled, and the state they begin with."""
    method = name.split(",")[0]
    settings = {"replay.batch_size": BATCH, "network.hidden": (128, 128), "loop.updates": 1}
    learner = make_learner(preset("RotMirrorGrid", method, settings | overrides), simulator)
    state = learner.init(streams(jnp.int32(0)))
    ring = state.replay._replace(size=jnp.int32(STORED), cursor=jnp.int32(STORED))
    agent, priorities = state.agent, state.priorities
    if learner.agent.vocabulary is not None:
        agent = agent._replace(group=square_group(learner.agent.vocabulary))
    if priorities:
        stored = jnp.arange(STORED - learner.agent.segment_length)
        priorities = priorities._replace(
            tree=write(priorities.tree, stored, jnp.ones(stored.shape))
        )
    level = learner.agent.level(agent)

    @jax.jit
    def run(agent, priorities, ring):
        def once(i, carry):
            held = state._replace(agent=carry[0], priorities=carry[1], replay=ring)
            return learner.updated(held, i, i, level)[:2]

        return jax.lax.fori_loop(0, PER_ROUND, once, (agent, priorities))

    jax.block_until_ready(run(agent, priorities, ring))
    return lambda: jax.block_until_ready(run(agent, priorities, ring))


def measured(cases, rounds: int) -> list[dict[str, object]]:
    """All cases in turn, several rounds; the ratio of each case's median to that of ddqn."""
    simulator = make_simulator(*envs.make("RotMirrorGrid"))
    programs = {name: program(name, overrides, simulator) for name, overrides in cases}
    times: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(rounds):
        for name, run in programs.items():
            began = time.process_time()
            run()
            times[name].append((time.process_time() - began) / PER_ROUND * 1e3)
    base = statistics.median(times["ddqn"])
    rows = [
        {"case": name, "ratio": round(statistics.median(found) / base, 2)}
        for name, found in times.items()
    ]
    for row in rows:
        print(f"{row['case']:26s} {row['ratio']:5.2f} x ddqn")
    return rows


def run_benchmark(what: str, cases, results: Path, rounds: int = 15) -> None:
    """Measure the cases, print the ratios, and write them unless it was a quick look."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--quick", action="store_true", help="fewer rounds; writes nothing")
    if parser.parse_args().quick:
        measured(cases, 3)
        return
    note = {
        "what": what,
        "rows": measured(cases, rounds),
        "batch": BATCH,
        "network": [128, 128],
        "clock": f"processor time, median of {rounds} rounds",
        "jax": jax.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
    results.write_text(json.dumps(note, indent=1) + "\n")


if __name__ == "__main__":
    run_benchmark(str(__doc__), CASES, RESULTS)
