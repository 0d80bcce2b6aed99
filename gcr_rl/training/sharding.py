"""Seeds over the devices of one machine: each device runs the loop for its own seeds.

Seeds never exchange anything, so the program of a device is that of a run with fewer seeds.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

_SEEDS = "seeds"


def seed_mesh(seeds: int) -> Mesh | None:
    """The largest number of local devices that divides ``seeds``; None where that is one.

    A CPU counts as one device unless XLA was asked to split it.
    """
    devices = jax.local_devices()
    count = max(n for n in range(1, min(len(devices), seeds) + 1) if seeds % n == 0)
    return Mesh(np.array(devices[:count]), (_SEEDS,)) if count > 1 else None


def over_devices(
    function: Callable[..., Any], mesh: Mesh | None, in_axes: PyTree, out_axes: PyTree
) -> Callable[..., Any]:
    """``function`` of all seeds, computed where the seeds are.

    The axes are as in ``jax.vmap``: 0 where a leaf has the seeds along its first axis, None
    where all seeds share it (then every device has it, and all must compute the same).
    """
    if mesh is None:
        return function
    return jax.shard_map(
        function, mesh=mesh, in_specs=_specs(in_axes), out_specs=_specs(out_axes), check_vma=False
    )


def placed(tree: PyTree, mesh: Mesh | None, axes: PyTree) -> PyTree:
    """``tree`` with every seed on its device; what is there already stays."""
    if mesh is None:
        return tree
    shardings = jax.tree.map(lambda spec: NamedSharding(mesh, spec), _specs(axes))
    return jax.device_put(tree, shardings)


def _specs(axes: PyTree) -> PyTree:
    return jax.tree.map(
        lambda axis: PartitionSpec() if axis is None else PartitionSpec(_SEEDS),
        axes, is_leaf=lambda axis: axis is None,
    )  # fmt: skip
