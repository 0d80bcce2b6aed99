"""The parameters of an agent: those of its network, and of what may stand beside it."""

from typing import NamedTuple

from jaxtyping import PyTree

from gcr_rl.symmetry.latent import LatentBank


class WithBank(NamedTuple):
    """Parameters of a network and of its bank of transforms."""

    network: PyTree
    bank: LatentBank


class WithContrast(NamedTuple):
    """Parameters of a network and of what its codes are compared by."""

    network: PyTree
    contrast: PyTree


def network_of(params: PyTree) -> PyTree:
    """The network's own parameters."""
    return params.network if isinstance(params, WithBank | WithContrast) else params
