"""What the certificate costs inside a training loop, in Double-DQN updates of the same task.

One update is loss, gradient, clipping, Adam and target of a 2x64 MLP at batch 64. ``record`` is
one transition written to a window of 4096 under ``jit``, ``check`` one warm ``check_all`` and
``groups_in_force`` on the latest transitions of one seed (``groups`` alone is its second part),
``checks`` what the default schedule asks for within the task's budget if everything is
certified at ``certified_at`` transitions (never, where nothing is). CPU seconds of this
process, one thread, 16 seeds under ``vmap``, divided by 16; the claims are ratios in one run.

    python benchmarks/certificate_cost.py [--json FILE]
"""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import platform
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from certificate import random_play

from gcr_rl import envs
from gcr_rl.agents.value import make_value_agent
from gcr_rl.config import Config
from gcr_rl.envs.simulator import make_simulator
from gcr_rl.envs.tasks import TASKS
from gcr_rl.networks import ObservationSpec
from gcr_rl.symmetry import (
    Evidence,
    Schedule,
    Vocabulary,
    Window,
    init_standing,
    init_window,
    record,
)
from gcr_rl.symmetry.enforcement import check_all, groups_in_force
from gcr_rl.types import Segment, Transition

SEEDS, ROUNDS, BATCH, STEPS = 16, 5, 64, 50
WINDOW_AXES: Any = Window(rows=0, seen=None)  # type: ignore[arg-type]


class Task(NamedTuple):
    name: str
    transitions: int
    """In the sample that is checked."""
    certified_at: int | None
    """From results/certificate.json, the worst of all seeds."""


CASES = (
    Task("RotMirrorGrid", 3000, 3000),
    Task("CartPole", 3000, 2000),
    Task("ButtonPermutation", 20_000, 15_000),
    Task("NoisyRPSChain", 3000, None),
)


def seconds(function: Callable[[], Any], warm: int = 1) -> float:
    """The median CPU time of a call."""
    for _ in range(warm):
        jax.block_until_ready(function())
    found = []
    for _ in range(ROUNDS):
        start = time.process_time()
        jax.block_until_ready(function())
        found.append(time.process_time() - start)
    return float(np.median(found))


def update_seconds(name: str, evidence: Evidence, num_actions: int, simulator: Any) -> float:
    """One update of one seed, of 16 that learn together."""
    config = Config(name, "ddqn").replace({"network.encoder": "mlp", "value.n_step": 1})
    shape, dtype = simulator.observation_shape, simulator.observation_dtype
    spec = ObservationSpec(shape, dtype, simulator.observation_scale)
    agent = make_value_agent(config, spec, num_actions)
    columns = (jnp.asarray(part[:BATCH])[:, None] for part in evidence[:6])
    segments = Segment(Transition(*columns), jnp.ones((BATCH, 1), bool))
    states = jax.vmap(agent.init)(jax.random.split(jax.random.key(0), SEEDS))

    @jax.jit
    def learn(states: Any) -> Any:
        step = jax.vmap(lambda state: agent.update(state, segments)[0])
        return jax.lax.fori_loop(0, STEPS, lambda _, now: step(now), states)

    return seconds(lambda: learn(states)) / (STEPS * SEEDS)


def record_seconds(evidence: Evidence) -> float:
    """One transition of one seed, of 16 that play together; their windows share a cursor."""
    window = init_window(4096, evidence.observation[0])
    rows = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], SEEDS, axis=0), window.rows)
    state = [Window(rows, window.seen)]
    first = Evidence(*(jnp.asarray(part[:STEPS]) for part in evidence))
    write = jax.vmap(record, in_axes=(WINDOW_AXES, None), out_axes=WINDOW_AXES)

    @partial(jax.jit, donate_argnums=0)
    def play(window: Window) -> Window:
        def step(i: Any, now: Window) -> Window:
            return write(now, jax.tree.map(lambda leaf: leaf[i], first))

        return jax.lax.fori_loop(0, STEPS, step, window)

    def once() -> Window:
        state[0] = play(state[0])
        return state[0]

    return seconds(once) / (STEPS * SEEDS)


def scheduled_checks(budget: int, certified_at: int | None, schedule: Schedule) -> int:
    """Checks until ``budget`` transitions if one of them, at ``certified_at``, changes things."""
    seen, pause, checks, certified = schedule.first, schedule.pause, 0, False
    while seen <= budget:
        checks += 1
        if not certified and certified_at is not None and seen >= certified_at:
            certified, pause = True, schedule.pause
        else:
            growth = schedule.settled_growth if certified else schedule.growth
            pause = min(int(pause * growth), schedule.longest)
        seen += pause
    return checks


def measure(case: Task) -> dict[str, Any]:
    environment, params = envs.make(case.name)
    simulator = make_simulator(environment, params)
    actions, tile = simulator.num_actions, environment.metadata.get("tile_size")
    vocabulary = Vocabulary.for_space(environment.observation_space(params), tile)[-1]
    evidence = random_play(case.name, case.transitions)(1000)
    update = update_seconds(case.name, evidence, actions, simulator)
    start = [init_standing(vocabulary, actions, Schedule(first=1))]

    def check() -> Any:
        after = check_all(start, lambda _: evidence, case.transitions, vocabulary, actions)
        return groups_in_force(after, vocabulary, actions), after

    in_force, standings = check()
    once = seconds(lambda: check()[0], warm=0)
    groups = seconds(lambda: groups_in_force(standings, vocabulary, actions))
    budget = TASKS[case.name].budget
    checks = scheduled_checks(budget, case.certified_at, Schedule())
    return {
        "task": case.name,
        "in_force": int(standings[0].in_force.sum()),
        "level": int(in_force.level),
        "transitions": case.transitions,
        "update_seconds": update,
        "record_over_update": record_seconds(evidence) / update,
        "check_seconds": once,
        "check_over_update": once / update,
        "groups_seconds": groups,
        "budget": budget,
        "checks": checks,
        "checks_over_training": checks * once / (budget * update),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    for case in CASES:
        rows.append(measure(case))
        print(json.dumps(rows[-1]), flush=True)
    if options.json:
        data = {
            "command": f"python benchmarks/certificate_cost.py --json {options.json}",
            "machine": platform.processor() or platform.machine(),
            "rows": rows,
        }
        options.json.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
