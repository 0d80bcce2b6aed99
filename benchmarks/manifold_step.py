"""What the hard step costs, in plain updates: one core, batch 64, 16 seeds side by side.

A plain update is the value agent's (Double-DQN, MLP 2x64, gradient, clipping, Adam, target).
The step is measured on its own, on 64 slots: with 256 bounds (closed form), and with the
greedy DAG of 200 candidate edges, from values that break most of it, a little of it or none.
Two more tables say how the normal equations should be solved: by a matrix over slots or over
rows, and from how many slots on conjugate gradients are faster.

    python benchmarks/manifold_step.py [--quick]
"""

import argparse
import json
import os
import platform
import statistics
import time
from functools import partial
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import jax
import jax.numpy as jnp
from jax import lax

from gcr_rl.agents import make_value_agent
from gcr_rl.config import Config
from gcr_rl.manifold import step
from gcr_rl.manifold.constraints import make_rows
from gcr_rl.manifold.normal_equations import constrained
from gcr_rl.networks import ObservationSpec
from gcr_rl.order import greedy_dag, project
from gcr_rl.types import Comparisons, Segment, Transition

SEEDS, SLOTS, EDGES, BOUNDS = 16, 64, 200, 256
RESULTS = Path(__file__).parent / "results" / "manifold_step.json"


def problem(key, slots=SLOTS, edges=EDGES, bounds=False):
    """Values, gradient and constraints: random bounds, or a random greedy DAG, margin 0.05."""
    keys = jax.random.split(key, 5)
    upper, lower = (jax.random.randint(k, (edges,), 0, slots) for k in keys[:2])
    weight = jax.random.uniform(keys[2], (edges,))
    values = jax.random.normal(keys[3], (slots,))
    gradient = 0.1 * jax.random.normal(keys[4], (slots,))
    if bounds:
        every = jnp.ones(edges, bool)
        return values, gradient, Comparisons(
            upper, upper, weight, 4 * weight - 3, jnp.zeros(edges), every
        )  # fmt: skip
    accepted = greedy_dag(upper, lower, weight, upper != lower, slots)
    margin = jnp.full(edges, 0.05)
    return values, gradient, Comparisons(upper, lower, weight, margin, jnp.ones(edges), accepted)


def plain_update():
    """A compiled loop of 100 plain updates of all seeds and its state."""
    agent = make_value_agent(Config("CartPole"), ObservationSpec((4,), "float32"), 2)
    keys = jax.random.split(jax.random.key(0), SEEDS)

    def batch(key):
        draws = jax.random.split(key, 3)
        flags = jnp.zeros((SLOTS, 1), bool)
        return Segment(
            Transition(
                observation=jax.random.normal(draws[0], (SLOTS, 1, 4)),
                action=jax.random.randint(draws[1], (SLOTS, 1), 0, 2),
                reward=jnp.ones((SLOTS, 1)),
                next_observation=jax.random.normal(draws[2], (SLOTS, 1, 4)),
                terminated=flags,
                truncated=flags,
            ),
            ~flags,
        )

    segments = jax.vmap(batch)(keys)

    @jax.jit
    def loop(state):
        update = jax.vmap(lambda s, b: agent.update(s, b)[0])
        return lax.fori_loop(0, 100, lambda _, s: update(s, segments), state)

    return loop, jax.vmap(agent.init)(keys)


def repeated(work, values, *rest):
    """A compiled loop of 100 calls, each depending on the one before and kept alive."""

    def body(_, values, rest):
        total = sum(
            jnp.sum(leaf.reshape(leaf.shape[0], -1).astype(jnp.float32), axis=1)
            for leaf in jax.tree.leaves(work(values, *rest))
        )
        return values + 0.0 * total[:, None]

    @jax.jit
    def loop(carried):
        values, rest = carried
        return lax.fori_loop(0, 100, lambda i, v: body(i, v, rest), values)

    return loop, (values, rest)


def measure(programs, rounds=7):
    """Median microseconds of processor time per call and seed, the programs taken in turn."""
    samples = {name: [] for name in programs}
    for loop, state in programs.values():
        jax.block_until_ready(loop(state))
    for _ in range(rounds):
        for name, (loop, state) in programs.items():
            began = time.process_time()
            jax.block_until_ready(loop(state))
            samples[name].append((time.process_time() - began) / 100 / SEEDS * 1e6)
    return {name: statistics.median(values) for name, values in samples.items()}


def step_programs(quick):
    keys = jax.random.split(jax.random.key(1), SEEDS)
    far, gradient, dag = jax.vmap(problem)(keys)
    exact = jax.jit(jax.vmap(lambda v, c: project(v, c).values))(far, dag)
    noise = 0.05 * jax.random.normal(jax.random.key(2), far.shape)
    values, slope, bounds = jax.vmap(partial(problem, edges=BOUNDS, bounds=True))(keys)

    def general(v, g, c, **options):
        return jax.vmap(lambda v, g, c: step(v, None, g, c, **options))(v, g, c)

    fast = partial(general, bounds_only=True)
    programs = {
        "plain update": plain_update(),
        "bounds": repeated(fast, values, slope, bounds),
        "order, far": repeated(general, far, gradient, dag),
    }
    if not quick:
        programs |= {
            "order, near": repeated(general, exact + noise, gradient, dag),
            "order, feasible": repeated(general, exact, gradient, dag),
            "order, 16 ascents, 2 rounds": repeated(
                partial(general, ascents=16, rounds=2), exact + noise, gradient, dag
            ),
            "exact projection": repeated(
                lambda v, g, c: jax.vmap(lambda v, c: project(v, c).values)(v - g, c),
                far, gradient, dag,
            ),
        }  # fmt: skip
    return programs


def over_rows(rows, chosen, anchor, damping=1e-3):
    """The same tangent projection by the matrix over rows, J Jᵀ + ε."""
    count, slots = chosen.shape[0], anchor.shape[0]
    place = jnp.arange(count)
    jacobian = jnp.zeros((count, slots)).at[place, rows.upper].add(rows.at_upper)
    jacobian = jacobian.at[place, rows.lower].add(rows.at_lower) * chosen[:, None]
    factor = jnp.linalg.cholesky(jacobian @ jacobian.T + damping * jnp.eye(count))
    multipliers = jax.scipy.linalg.cho_solve((factor, True), jacobian @ anchor)
    return anchor - jacobian.T @ multipliers


def solver_programs(slots, forms):
    edges = 3 * slots
    keys = jax.random.split(jax.random.key(3), SEEDS)
    values, gradient, dag = jax.vmap(partial(problem, slots=slots, edges=edges))(keys)

    def solve(values, gradient, constraints, form):
        rows, _ = make_rows(values, constraints, jnp.zeros(slots, bool), None)
        anchor = gradient + 0.0 * values
        # depends on the loop's carry, or the factorisation would leave the loop
        chosen = rows.mask & (values[0] < 1e9)
        if form == "over rows":
            return over_rows(rows, chosen, anchor)
        side = [(anchor, jnp.zeros(edges))]
        dense = form == "over slots"
        return constrained(rows, chosen, side, jnp.zeros(edges), damping=1e-3, dense=dense)

    return {
        f"{form}, {slots} slots": repeated(
            jax.vmap(partial(solve, form=form)), values, gradient, dag
        )
        for form in forms
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the two headline rows only")
    quick = parser.parse_args().quick
    steps = measure(step_programs(quick))
    for name, micros in steps.items():
        ratio = micros / steps["plain update"]
        print(f"{name:<30} {micros:>8.1f} us {ratio:>7.3f} x plain", flush=True)
    solvers = {}
    if not quick:
        forms = ("over slots", "over rows", "conjugate gradients")
        solvers = measure(solver_programs(64, forms), rounds=5)
        for slots in (256, 512):
            both = ("over slots", "conjugate gradients")
            solvers |= measure(solver_programs(slots, both), rounds=1)
        for name, micros in solvers.items():
            print(f"{name:<34} {micros:>10.1f} us", flush=True)
        record = {
            "command": "python benchmarks/manifold_step.py",
            "machine": platform.processor() or platform.machine(),
            "python": platform.python_version(),
            "jax": jax.__version__,
            "load": os.getloadavg()[0],
            "seeds": SEEDS,
            "microseconds_per_seed": steps,
            "ratio_to_plain_update": {k: v / steps["plain update"] for k, v in steps.items()},
            "solvers_microseconds_per_seed": solvers,
        }
        RESULTS.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
