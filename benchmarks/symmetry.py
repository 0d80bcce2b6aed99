"""What symmetry costs: the update of a value network plain, quotiented, averaged, with a bank.

One Double-DQN update (loss, gradient, clipping, Adam, target copy) at batch 64 on 19x19x3
uint8 planes with a 2x64 MLP, and the same update through ``quotient`` and ``reynolds`` over
D4 and with the latent bank (K = 8, d = 64). CPU seconds of this process (other processes do
not count), interleaved, one thread; the claims are ratios within one run.

    python benchmarks/symmetry.py [--json FILE] [--rounds N]
"""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from gcr_rl.agents.value import move_target
from gcr_rl.config import NetworkConfig
from gcr_rl.envs import dihedral
from gcr_rl.losses import regression_loss, td_error, td_target
from gcr_rl.networks import ObservationSpec, QNetwork, make_q_network
from gcr_rl.symmetry import LinearFirst, bucketed, from_elements, latent, quotient, reynolds
from gcr_rl.symmetry.group import bucket_level, trivial_group
from gcr_rl.symmetry.vocabulary_kinds import dihedral as dihedral_vocabulary

SHAPE, ACTIONS, BATCH = (19, 19, 3), 4, 64
UPDATES = 4  # per timing; a multiple of the bank's penalty period
LIMITS = {"quotient": 1.25, "reynolds": 4.0, "latent bank": 1.5}
NETWORK = make_q_network(
    NetworkConfig(), ObservationSpec(SHAPE, "uint8"), ACTIONS, key=jax.random.key(0)
)
PARAMS, STATIC = eqx.partition(NETWORK, eqx.is_array)
OPTIMISER = optax.chain(optax.clip_by_global_norm(10.0), optax.adam(1e-3))


def batch() -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    planes = [jnp.asarray(rng.integers(0, 2, (BATCH, *SHAPE)), jnp.uint8) for _ in range(2)]
    action = jnp.asarray(rng.integers(0, ACTIONS, BATCH))
    return planes[0], action, jnp.full(BATCH, -1.0), jnp.full(BATCH, 0.99), planes[1]


def double_q_loss(q: Any, q_selector: Any, q_target: Any, data: tuple[Any, ...]) -> Any:
    def one(observation, action, reward, discount, following):  # type: ignore[no-untyped-def]
        goal = td_target(reward, discount, q_target(following), q_selector(following))
        return regression_loss(td_error(q(observation), action, goal), "huber", 1.0)

    return jnp.mean(jax.vmap(one)(*data))


def apply_gradient(params: Any, target: Any, state: Any, gradient: Any, step: Any) -> Any:
    change, state = OPTIMISER.update(gradient, state, params)
    params = optax.apply_updates(params, change)
    return params, state, step + 1


def value_update(wrap: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """The update with every network seen through ``wrap(network, group)``."""

    def update(params, target, state, step, group, data):  # type: ignore[no-untyped-def]
        def loss(params: Any) -> Any:
            networks = (params, jax.lax.stop_gradient(params), target)
            return double_q_loss(
                *(wrap(eqx.combine(part, STATIC), group) for part in networks), data
            )

        value, gradient = jax.value_and_grad(loss)(params)
        params, state, step = apply_gradient(params, target, state, gradient, step)
        return params, move_target(params, target, step, 500, 1.0), state, step, value

    return jax.jit(update, donate_argnums=(0, 1, 2))


def latent_update(settings: latent.LatentSettings) -> Callable[..., Any]:
    """The plain update plus L_sym of a bank, its optimiser step and its retraction."""

    def loss(both: Any, target: Any, step: Any, data: tuple[Any, ...]) -> Any:
        params, bank = both
        network, fixed = eqx.combine(params, STATIC), eqx.combine(target, STATIC)
        stopped = eqx.combine(jax.lax.stop_gradient(params), STATIC)
        features = jax.vmap(network.features)(data[0])
        values = jax.vmap(network.head)(features)

        def one(q, action, reward, discount, following):  # type: ignore[no-untyped-def]
            goal = td_target(reward, discount, fixed(following), stopped(following))
            return regression_loss(td_error(q, action, goal), "huber", 1.0)

        head = latent.LinearHead(network.head.weight, network.head.bias)
        symmetry = latent.losses(bank, features, values, head, step, settings)
        return jnp.mean(jax.vmap(one)(values, *data[1:])) + symmetry.total

    def update(both, target, state, step, _, data):  # type: ignore[no-untyped-def]
        value, gradient = jax.value_and_grad(loss)(both, target, step, data)
        (params, bank), state, new_step = apply_gradient(both, target, state, gradient, step)
        bank, _ = latent.retract(bank, step)
        target = move_target(params, target, new_step, 500, 1.0)
        return (params, bank), target, state, new_step, value

    return jax.jit(update, donate_argnums=(0, 1, 2))


def first_layer_shown(network: QNetwork) -> LinearFirst:
    """The same function as ``network``, with its first layer in the open."""
    first, second = network.encoder.layers  # type: ignore[union-attr]

    def rest(hidden: Any) -> Any:
        return network.head(jax.nn.relu(second(jax.nn.relu(hidden))))

    return LinearFirst(first.weight, first.bias, rest, network.scale)


def cases() -> dict[str, tuple[Callable[..., Any], Any, Any]]:
    """name -> (update, its parameters, the group)."""
    vocabulary = dihedral_vocabulary(SHAPE)
    relabel = np.stack([dihedral.relabelling(g) for g in range(8)])
    group = from_elements(vocabulary, relabel)
    nothing = trivial_group(vocabulary, ACTIONS, capacity=8)

    def shown(network: Any, group: Any) -> Any:
        return reynolds(first_layer_shown(network), group)

    def in_buckets(network: Any, group: Any) -> Any:
        return bucketed(quotient, network, group, bucket_level(group))

    bank = latent.init(jax.random.key(1), 8, 64, ACTIONS)
    settings = latent.LatentSettings()
    everything = latent.LatentSettings(neighbours=None, pairs=64, penalty_period=1)
    return {
        "plain": (value_update(lambda network, _: network), PARAMS, group),
        "quotient": (value_update(quotient), PARAMS, group),
        "reynolds": (value_update(shown), PARAMS, group),
        "reynolds, any function": (value_update(reynolds), PARAMS, group),
        "quotient in buckets, nothing certified": (value_update(in_buckets), PARAMS, nothing),
        "quotient in buckets, D4 certified": (value_update(in_buckets), PARAMS, group),
        "latent bank": (latent_update(settings), (PARAMS, bank), group),
        "latent bank, every term in full": (
            latent_update(everything), (PARAMS, bank), group,
        ),
    }  # fmt: skip


def runner(update: Callable[..., Any], params: Any, group: Any) -> Callable[[], None]:
    data = batch()
    target = params[0] if isinstance(params, tuple) else params
    copied = jax.tree.map(jnp.copy, (params, target))
    carry = [*copied, OPTIMISER.init(params), jnp.int32(0)]

    def run() -> None:
        *carry[:], _ = jax.block_until_ready(update(*carry, group, data))

    run()
    return run


def measure(runs: dict[str, Callable[[], None]], rounds: int) -> dict[str, np.ndarray]:
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.process_time()
            for _ in range(UPDATES):
                run()
            seconds[name].append((time.process_time() - start) / UPDATES)
    return {name: np.array(values) for name, values in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=100)
    options = parser.parse_args()
    seconds = measure({name: runner(*case) for name, case in cases().items()}, options.rounds)
    rows = []
    for name, values in seconds.items():
        ratio = float(np.median(values) / np.median(seconds["plain"]))
        row = {"case": name, "median_ms": 1e3 * float(np.median(values)), "ratio": ratio}
        row |= {"limit": LIMITS[name], "within": ratio <= LIMITS[name]} if name in LIMITS else {}
        rows.append(row)
        limit = f"(limit {LIMITS[name]})" if name in LIMITS else ""
        print(f"{name:42s} {row['median_ms']:7.3f} ms  {ratio:5.2f} x {limit}")
    if options.json:
        machine = {"processor": platform.machine(), "jax": jax.__version__, "threads": 1}
        options.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
