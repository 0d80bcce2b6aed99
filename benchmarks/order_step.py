"""What order costs: a Double-DQN update with and without evidence, DAG and projection.

One core, batch 64, MLP 2x64 on CartPole-sized observations, 16 seeds side by side (and one).
Processor time per update and seed; the figure is the ratio to the plain update of the same
run. Rows build on each other:

    plain      the value agent's update (gradient, clipping, Adam, target)
    bootstraps + the network's values of all states of the 8-step segments
    evidence   + nudge comparisons (8 neighbours) and multi-step return bounds (8 steps)
    dag        + the greedy DAG over the nudges, by node
    soft       + three steps of the soft projection over the DAG
    exact      + the exact projection over the DAG instead

    python benchmarks/order_step.py
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

from gcr_rl import evidence
from gcr_rl.agents import make_value_agent
from gcr_rl.config import Config
from gcr_rl.networks import ObservationSpec
from gcr_rl.order import greedy_dag_by_node, project, soft_project
from gcr_rl.types import Segment, Transition

BATCH, NEIGHBOURS, LENGTH, ACTIONS, DISCOUNT = 64, 8, 8, 2, 0.99
STAGES = ("plain", "bootstraps", "evidence", "dag", "soft", "exact")
RESULTS = Path(__file__).parent / "results" / "order_step.json"


def batch(key: jax.Array) -> Segment:
    """Random segments shaped like CartPole's."""
    keys = jax.random.split(key, 4)
    steps = Transition(
        observation=jax.random.normal(keys[0], (BATCH, LENGTH, 4)),
        action=jax.random.randint(keys[1], (BATCH, LENGTH), 0, ACTIONS),
        reward=jax.random.normal(keys[2], (BATCH, LENGTH)),
        next_observation=jax.random.normal(keys[3], (BATCH, LENGTH, 4)),
        terminated=jnp.zeros((BATCH, LENGTH), bool),
        truncated=jnp.zeros((BATCH, LENGTH), bool),
    )
    return Segment(steps, jnp.ones((BATCH, LENGTH), bool))


def order_work(stage: str, agent, state, segments: Segment) -> jax.Array:
    """The order side of one update, up to ``stage``; a number that depends on all of it."""
    first = jax.tree.map(lambda leaf: leaf[:, 0], segments.steps)
    q = jax.vmap(lambda o: agent.q_values(state, o))(first.observation)
    next_q = jax.vmap(jax.vmap(lambda o: agent.q_values(state, o)))(segments.steps.next_observation)
    value, target = q.max(axis=1), first.reward + DISCOUNT * next_q[:, 0].max(axis=1)
    if stage == "bootstraps":
        return jnp.sum(value) + jnp.sum(target) + jnp.sum(next_q)
    nudges = evidence.nudge(
        first.observation, value, target, next_q[:, 0], evidence.init_variance_scale(),
        neighbours=NEIGHBOURS, temperature=1.0, percentile=50.0, margin=0.1,
    )  # fmt: skip
    taken = jnp.take_along_axis(q, first.action[:, None], axis=1)
    bounds, slots = evidence.batch_returns(
        segments, taken, next_q.max(axis=2), discount=DISCOUNT, horizon=LENGTH
    )
    total = jnp.sum(bounds.margin) + jnp.sum(slots.values) + jnp.sum(nudges.weight)
    if stage == "evidence":
        return total
    by_node = (BATCH, NEIGHBOURS)
    weight = nudges.weight.reshape(by_node).max(axis=1)
    accepted = greedy_dag_by_node(
        nudges.lower.reshape(by_node), weight, nudges.mask.reshape(by_node)
    )
    kept = nudges._replace(mask=accepted.reshape(-1))
    total = total + jnp.sum(accepted)
    if stage == "dag":
        return total
    if stage == "soft":
        moved, _ = soft_project(value, kept, 10.0, steps=3)
    else:
        moved = project(value, kept).values
    return total + jnp.sum(moved)


def update_of(stage: str, seeds: int):
    """A compiled loop of updates for ``stage`` and its arguments."""
    agent = make_value_agent(Config("CartPole"), ObservationSpec((4,), "float32"), ACTIONS)

    def one(state, segments):
        if stage != "plain":
            work = order_work(stage, agent, state, segments)
            # keeps the work alive without changing the update
            segments = segments._replace(
                steps=segments.steps._replace(reward=segments.steps.reward + 0.0 * work)
            )
        return agent.update(state, segments)[0]

    @partial(jax.jit, donate_argnums=0)
    def loop(state, segments):
        step = one if seeds == 1 else jax.vmap(one)
        return jax.lax.fori_loop(0, 100, lambda _, s: step(s, segments), state)

    keys = jax.random.split(jax.random.key(0), seeds)
    state = agent.init(keys[0]) if seeds == 1 else jax.vmap(agent.init)(keys)
    segments = batch(keys[0]) if seeds == 1 else jax.vmap(batch)(keys)
    return loop, jax.block_until_ready(loop(state, segments)), segments


def main() -> None:
    rows = []
    for seeds in (1, 16):
        programs = {stage: update_of(stage, seeds) for stage in STAGES}
        samples: dict[str, list[float]] = {stage: [] for stage in STAGES}
        for _ in range(7):
            for stage, (loop, state, segments) in programs.items():
                began = time.process_time()
                state = jax.block_until_ready(loop(state, segments))
                samples[stage].append((time.process_time() - began) / 100 / seeds * 1e6)
                programs[stage] = (loop, state, segments)
        base = statistics.median(samples["plain"])
        for stage, values in samples.items():
            middle = statistics.median(values)
            rows.append({"seeds": seeds, "stage": stage, "us": values, "ratio": middle / base})
            ratio = middle / base
            print(f"{seeds:>2} seed(s)  {stage:<10} {middle:>8.1f} us {ratio:>6.2f} x plain")
    RESULTS.write_text(
        json.dumps(
            {
                "command": "python benchmarks/order_step.py",
                "machine": platform.processor() or platform.machine(),
                "python": platform.python_version(),
                "jax": jax.__version__,
                "load": os.getloadavg()[0],
                "rows": rows,
            },
            indent=1,
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
