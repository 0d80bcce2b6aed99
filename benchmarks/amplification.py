"""Effective sample amplification (thm:amp), measured: how much the gradient's variance falls.

A share ρ of a batch of 64 lies where the symmetry holds and is seen in K = 8 views
(T_k s, Π_k a) of D4; all valid views count alike (eq. Var-mix-exp). Reported is the trace of
the covariance of the mini-batch gradient of ½(Q(s, a) - y)², divided by that without views,
for a random MLP on random planes and y = -1 + noise. "independent" draws every view anew, as
the theorem's Γ = 0 supposes; "shared" turns one sample (with its one y) into all its views,
as training does.

    python benchmarks/amplification.py [--json FILE] [--batches N]
"""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from gcr_rl.config import NetworkConfig
from gcr_rl.envs import dihedral
from gcr_rl.networks import ObservationSpec, make_q_network
from gcr_rl.symmetry import from_elements
from gcr_rl.symmetry.vocabulary_kinds import dihedral as dihedral_vocabulary

SHAPE, BATCH, VIEWS = (7, 7, 3), 64, 8
GROUP = from_elements(
    dihedral_vocabulary(SHAPE), np.stack([dihedral.relabelling(g) for g in range(8)])
)
NETWORK = make_q_network(
    NetworkConfig(hidden=(16, 16)), ObservationSpec(SHAPE, "uint8"), 4, key=jax.random.key(0)
)
PARAMS, STATIC = eqx.partition(NETWORK, eqx.is_array)


def draw(key: Any, shape: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """Planes, actions and targets whose distribution is the same in every view."""
    planes, actions, noise = jax.random.split(key, 3)
    observation = jax.random.bernoulli(planes, 0.5, (*shape, *SHAPE)).astype(jnp.uint8)
    action = jax.random.randint(actions, shape, 0, 4)
    return observation, action, -1.0 + jax.random.normal(noise, shape)


def views(key: Any, independent: bool) -> tuple[Any, Any, Any]:
    """[batch, views]: eight independent draws, or one draw and its seven images."""
    if independent:
        return draw(key, (BATCH, VIEWS))
    observation, action, target = draw(key, (BATCH,))
    images = jax.vmap(GROUP.transforms.all)(observation)
    return images, GROUP.relabel[:, action].T, jnp.repeat(target[:, None], VIEWS, axis=1)


@partial(jax.jit, static_argnames=("independent",))
def batch_gradient(key: Any, share: Any, independent: bool) -> Any:
    """The flat gradient of the mean over all valid views of one batch."""
    observation, action, target = views(key, independent)
    symmetric = jnp.arange(BATCH) < share * BATCH
    valid = symmetric[:, None] | (jnp.arange(VIEWS) == 0)

    def loss(params: Any) -> Any:
        values = jax.vmap(jax.vmap(eqx.combine(params, STATIC)))(observation)
        chosen = jnp.take_along_axis(values, action[..., None], axis=-1)[..., 0]
        return jnp.sum(valid * 0.5 * (chosen - target) ** 2) / jnp.sum(valid)

    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(jax.grad(loss)(PARAMS))])


def variance(share: float, independent: bool, batches: int) -> tuple[float, float]:
    """(trace of the covariance, its standard error) over ``batches`` mini-batches."""
    keys = jax.random.split(jax.random.key(1), batches)
    gradients = np.stack([np.asarray(batch_gradient(k, share, independent)) for k in keys])
    squares = np.sum((gradients - gradients.mean(axis=0)) ** 2, axis=1)
    return float(squares.sum() / (batches - 1)), float(squares.std() / np.sqrt(batches))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--batches", type=int, default=1500)
    options = parser.parse_args()
    base, _ = variance(0.0, False, options.batches)
    rows = []
    for share in (0.0, 0.25, 0.5, 1.0):
        row = {"rho": share, "theory": 1 / (1 + (VIEWS - 1) * share)}
        for kind, independent in (("independent", True), ("shared", False)):
            value, error = variance(share, independent, options.batches)
            row |= {kind: value / base, f"{kind}_error": error / base}
        rows.append(row)
        print({name: round(value, 4) for name, value in row.items()})
    if options.json:
        options.json.write_text(
            json.dumps({"batches": options.batches, "rows": rows}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
