"""The paper's latent bank beside the network: its parameters, losses and contraction."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from gcr_rl.agents.parameters import WithBank
from gcr_rl.config import SymmetryConfig
from gcr_rl.networks import QNetwork
from gcr_rl.symmetry import latent
from gcr_rl.symmetry.latent import LatentBank, LatentSettings, LinearHead
from gcr_rl.types import Metrics


@dataclass(frozen=True)
class Latent:
    """L_sym on the features of a network (eqs. Leq-vector-local, R-id and the like)."""

    config: SymmetryConfig
    features: int
    actions: int

    @property
    def settings(self) -> LatentSettings:
        """Coefficients and periods."""
        return LatentSettings(contraction_period=self.config.contraction_period)

    def init(self, network: PyTree, key: PRNGKeyArray) -> WithBank:
        """The parameters with a fresh bank."""
        bank_key = jax.random.fold_in(key, 1)
        bank = latent.init(bank_key, self.config.elements, self.features, self.actions)
        return WithBank(network, bank if self.config.relabel else _fixed_actions(bank))

    def loss(
        self, network: QNetwork, params: Any, observation: PyTree, q: Array, clock: Array
    ) -> tuple[Array, Metrics]:
        """λ_sym L_sym on a batch; ``clock`` counts updates and has no axis of seeds."""
        bank = params.bank if self.config.relabel else _fixed_actions(params.bank)
        features = jax.vmap(network.features)(observation)
        terms = latent.losses(bank, features, q, head_of(network), clock, self.settings)
        names = ("equivariance", "identity", "closure", "inverse", "order", "permutation")
        found = terms._asdict()
        metrics = {f"latent_{name}": found[name] for name in (*names, "diversity", "alpha")}
        return self.config.coefficient * terms.total, metrics

    def restrained(self, change: Any, learning_rate: float) -> Any:
        """Adam's change with the transforms' part shortened so that retraction can follow.

        Adam moves an entry by about the learning rate, hence the spectral norm of a d x d
        transform by at most d times that, and an element waits K updates for its turn. With
        rate * d * K <= 1/2 its singular values stay within (1/2, 3/2), where Newton–Schulz
        converges; beyond √3 it diverges.
        """
        reach = learning_rate * self.features * self.config.elements
        transforms = min(1.0, 0.5 / reach) * change.bank.transforms
        return change._replace(bank=change.bank._replace(transforms=transforms))

    def retracted(self, params: Any, clock: Array) -> Any:
        """One element of the bank a step nearer to an orthogonal matrix."""
        return params._replace(bank=latent.retract(params.bank, clock)[0])

    def contracted(self, network: QNetwork, params: Any, observation: PyTree) -> LatentBank:
        """The bank after one projection-closure-alignment cycle."""
        features = jax.vmap(network.features)(observation)
        head = head_of(network)
        values = jax.vmap(head)(features)
        bank, _ = latent.contract(params.bank, features, values, head, self.settings)
        return bank


def head_of(network: QNetwork) -> Any:
    """The linear head, in the form that the bank multiplies cheaply."""
    assert network.head.bias is not None
    return LinearHead(network.head.weight, network.head.bias)


def _fixed_actions(bank: LatentBank) -> LatentBank:
    """The bank without relabelling: every Π_k stands for the identity."""
    identity = 50.0 * jnp.eye(bank.logits.shape[-1])
    return bank._replace(logits=jnp.broadcast_to(identity, bank.logits.shape))
