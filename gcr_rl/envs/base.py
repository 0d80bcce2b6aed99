"""What every environment here offers beyond gymnax's contract.

An environment whose states can be numbered (``IndexedEnvironment``) gives replay a compact
``state_code`` and evaluation a :class:`~gcr_rl.envs.finite.FiniteMDP`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from gymnax.environments import spaces
from gymnax.environments.environment import Environment, EnvParams, EnvState
from jaxtyping import Array, Bool, Float, Int, UInt8

from gcr_rl.envs.finite import FiniteMDP, optimal_return, random_return

Count = int | Int[Array, "*batch"]
"""A parameter's whole number: plain, or a leaf that jit and vmap have turned into an array."""
Amount = float | Float[Array, "*batch"]
"""The same for a real number."""
StepResult = tuple[Any, Any, Float[Array, ""], Bool[Array, ""], dict[Any, Any]]
StateT = TypeVar("StateT", bound=EnvState)
ParamsT = TypeVar("ParamsT", bound=EnvParams)


class PlantedSymmetry(NamedTuple):
    """An automorphism known by construction: action a at o is ``relabel[a]`` at transform(o).

    For probes and tests only; no agent reads it.
    """

    name: str
    transform: Callable[[Any], Any]
    relabel: Int[np.ndarray, " actions"]


class BaseEnvironment(Environment[StateT, ParamsT], ABC, Generic[StateT, ParamsT]):
    """gymnax's ``Environment`` with a picture, exact returns and, where finite, the MDP."""

    metadata: dict[str, Any] = {  # noqa: RUF012 (replaced, never changed)
        "render_modes": ["rgb_array"],
        "render_fps": 10,
    }
    supports_state_code: bool = False

    @abstractmethod
    def render(self, state: StateT, params: ParamsT) -> UInt8[np.ndarray, "height width 3"]:
        """A picture of one (unbatched) state for people; agents never see it."""

    def finite_mdp(self, params: ParamsT) -> FiniteMDP | None:
        """The environment as tables over numbered states; None where there are none."""
        return None

    def exact_returns(self, params: ParamsT) -> tuple[float | None, float | None]:
        """(optimal, uniformly random) expected undiscounted return of one episode."""
        mdp = self.finite_mdp(params)
        if mdp is None:
            return None, None
        return float(optimal_return(mdp)), float(random_return(mdp))

    def planted_symmetries(self, params: ParamsT) -> list[PlantedSymmetry]:
        """The automorphisms that the definition plants, the identity first; [] if unstated."""
        return []


@struct.dataclass
class IndexState(EnvState):
    """A numbered state and the steps taken in the episode."""

    time: Int[Array, "*batch"]
    index: Int[Array, "*batch"]


class IndexedEnvironment(BaseEnvironment[IndexState, ParamsT], Generic[ParamsT]):
    """An environment over states 0..num_states-1; the state code is the index itself."""

    supports_state_code = True
    num_states: int

    @abstractmethod
    def observation_of(self, code: Int[Array, ""], params: ParamsT) -> Array:
        """The observation of state ``code``."""

    @abstractmethod
    def is_terminated(self, state: IndexState, params: ParamsT) -> Bool[Array, ""]:
        """Whether ``state`` is terminal."""

    def at(self, index: Int[Array, ""] | int, time: Int[Array, ""] | int = 0) -> IndexState:
        """State ``index`` after ``time`` steps, with the dtypes that a scan carries."""
        return IndexState(time=jnp.asarray(time, jnp.int32), index=jnp.asarray(index, jnp.int32))

    def state_code(self, state: IndexState, params: ParamsT) -> Int[Array, ""]:
        """The compact form of ``state`` that replay stores in place of its observation."""
        return state.index

    def state_index(self, state: IndexState, params: ParamsT) -> Int[Array, ""]:
        """The row of ``state`` in ``finite_mdp(params)``."""
        return state.index

    def observation_of_index(self, index: Int[Array, ""], params: ParamsT) -> Array:
        """The observation of row ``index`` of ``finite_mdp(params)``."""
        return self.observation_of(index, params)

    def observations(self, params: ParamsT) -> Array:
        """All observations, [num_states, *observation shape]."""
        return jax.vmap(lambda index: self.observation_of(index, params))(
            jnp.arange(self.num_states, dtype=jnp.int32)
        )

    def get_obs(self, state: IndexState, params: Any = None, key: Any = None) -> Array:
        """gymnax's observation hook."""
        return self.observation_of(state.index, params)


def one_hot_space(size: int) -> spaces.Box:
    """The space of 0/1 vectors of length ``size``, as float32."""
    return spaces.Box(0.0, 1.0, (size,), jnp.float32)


def planes_space(height: int, width: int, planes: int) -> spaces.Box:
    """The space of 0/1 planes, as uint8."""
    return spaces.Box(0, 1, (height, width, planes), jnp.uint8)


def rgb_space(height: int, width: int, channels: int) -> spaces.Box:
    """The space of byte images, channels last."""
    return spaces.Box(0, 255, (height, width, channels), jnp.uint8)
