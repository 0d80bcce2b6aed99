"""CURL's contrast beside the network: its parameters, its slow copy and its loss."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from gcr_rl.agents.parameters import WithContrast
from gcr_rl.augment import Augmentation
from gcr_rl.config import ContrastConfig
from gcr_rl.distribution import info_nce
from gcr_rl.networks import Contrast, QNetwork, contrast_logits, momentum_step


class Slow(NamedTuple):
    """The slowly moving copy that encodes the keys."""

    network: PyTree
    projection: PyTree


@dataclass(frozen=True)
class Contrastive:
    """weight * InfoNCE between two augmented views of the same observations."""

    config: ContrastConfig
    features: int
    view: Augmentation

    def build(self, key: PRNGKeyArray) -> Contrast:
        """A fresh projection and product."""
        return Contrast(self.features, self.config.code, key=key)

    def init(self, network: PyTree, key: PRNGKeyArray) -> WithContrast:
        """The parameters with a fresh contrast."""
        return WithContrast(network, eqx.filter(self.build(jax.random.fold_in(key, 1)), _array))

    def slow(self, params: WithContrast) -> Slow:
        """The slow copy of these parameters, where it begins."""
        return Slow(*jax.tree.map(lambda leaf: leaf.copy(), self._followed(params)))

    def moved(self, params: Any, slow: Any) -> Slow:
        """slow + rate (online - slow)."""
        return momentum_step(self._followed(params), slow, self.config.rate)

    def loss(
        self,
        networks: tuple[QNetwork, QNetwork],
        params: Any,
        slow: Any,
        observation: PyTree,
        keys: tuple[PRNGKeyArray, PRNGKeyArray],
    ) -> Float[Array, ""]:
        """The loss of a batch; ``networks`` are the online and the slow one."""
        skeleton = eqx.filter_eval_shape(self.build, jax.random.key(0))
        _, static = eqx.partition(skeleton, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
        contrast: Contrast = eqx.combine(params.contrast, static)
        projection = eqx.combine(slow.projection, static.projection)
        online, late = networks
        queries = jax.vmap(online.features)(self.view(keys[0], observation))
        matches = jax.vmap(late.features)(self.view(keys[1], observation))
        return self.config.weight * info_nce(
            contrast_logits(contrast, projection, queries, jax.lax.stop_gradient(matches))
        )

    def _followed(self, params: Any) -> Slow:
        return Slow(params.network, params.contrast.projection)


def _array(leaf: Any) -> bool:
    return eqx.is_array(leaf)
