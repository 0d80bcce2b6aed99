"""What prioritised replay costs over uniform replay, and by how many children a node has.

One core, float observations of 4 numbers, 8 seeds side by side, batch 64, segments of 3 steps, a
full memory. A turn is what a training step does with its replay: add one transition, draw a
batch, and for prioritised replay give it new priorities. Processor time per turn and seed; the
figure is the ratio to uniform replay in the same run.

    python benchmarks/prioritised_replay.py
"""

import json
import os
import platform
import statistics
import time
from functools import partial
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import jax
import jax.numpy as jnp

from gcr_rl.replay import prioritised
from gcr_rl.replay.uniform import make_uniform
from gcr_rl.types import Transition

SEEDS, BATCH, LENGTH, TURNS, REPEATS = 8, 64, 3, 200, 5
CAPACITIES = (10_000, 100_000, 1_000_000)
FAN_OUTS = (2, 4, 8, 16, 32)
RESULTS = Path(__file__).parent / "results" / "prioritised_replay.json"


def transition() -> Transition:
    o = jnp.zeros((1, 4))
    flag = jnp.zeros(1, bool)
    return Transition(o, jnp.zeros(1, jnp.int32), jnp.zeros(1), o, flag, flag)


def uniform_turn(replay, i, key, state):
    state = replay.add(state, transition())
    bits = jax.random.bits(jax.random.fold_in(key, i), (BATCH,))
    segments = replay.sample(state, bits)
    return state, jnp.sum(segments.steps.observation) + jnp.sum(segments.steps.reward)


def prioritised_turn(replay, i, key, state):
    state = replay.add(state, transition())
    bits = jax.random.bits(jax.random.fold_in(key, i), (BATCH,))
    draw = replay.sample(state, bits, 0.5)
    error = jnp.sum(draw.segments.steps.observation, axis=(1, 2)) + bits.astype(jnp.float32)
    return replay.update(state, draw.leaf, error), jnp.sum(draw.weight)


def filled(state, capacity: int, fan_out: int):
    """The state of a full memory, with random priorities and a tree of that fan-out."""
    if not isinstance(state, prioritised.PrioritisedState):
        return state._replace(size=jnp.int32(capacity))
    tree = prioritised.init_tree(capacity, fan_out)
    priority = jax.random.uniform(jax.random.key(1), (capacity,))
    tree = prioritised.write(tree, jnp.arange(capacity), priority)
    return state._replace(ring=state.ring._replace(size=jnp.int32(capacity)), tree=tree)


def axes(state):
    """The axis of seeds: all leaves but the shared cursor and size."""
    ring = state.ring if isinstance(state, prioritised.PrioritisedState) else state
    ring_axes = ring._replace(rows=0, cursor=None, size=None)
    if ring is state:
        return ring_axes
    return state._replace(ring=ring_axes, tree=0, largest=0)


def measured(turn, state) -> float:
    """Microseconds of processor time per turn and seed: the median of the repeats."""
    along = axes(state)

    @partial(jax.jit, donate_argnums=0)
    def run(states, key):
        def body(i, carry):
            states, checksum = carry
            turned = jax.vmap(lambda s, k: turn(i, k, s), (along, 0), (along, 0))
            states, more = turned(states, jax.random.split(key, SEEDS))
            return states, checksum + more

        return jax.lax.fori_loop(0, TURNS, body, (states, jnp.zeros(SEEDS)))

    spread = jax.vmap(lambda _: state, out_axes=along)(jnp.arange(SEEDS))
    states, _ = jax.block_until_ready(run(spread, jax.random.key(0)))
    times = []
    for repeat in range(REPEATS):
        begin = time.process_time()
        states, _ = jax.block_until_ready(run(states, jax.random.key(repeat)))
        times.append((time.process_time() - begin) / (TURNS * SEEDS) * 1e6)
    return statistics.median(times)


def main() -> None:
    rows = []
    for capacity in CAPACITIES:
        plain = make_uniform(capacity, 1, LENGTH)
        base = measured(partial(uniform_turn, plain), filled(plain.init(transition()), capacity, 0))
        row = {"capacity": capacity, "uniform_us": round(base, 2)}
        replay = prioritised.make_prioritised(capacity, 1, LENGTH)
        for fan_out in FAN_OUTS:
            state = filled(replay.init(transition()), capacity, fan_out)
            cost = measured(partial(prioritised_turn, replay), state)
            row[f"fan_out_{fan_out}_us"] = round(cost, 2)
            row[f"fan_out_{fan_out}_ratio"] = round(cost / base, 2)
        rows.append(row)
        print(row, flush=True)
    machine = {"machine": platform.machine(), "jax": jax.__version__, "cores": 1}
    RESULTS.write_text(json.dumps({"environment": machine, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
