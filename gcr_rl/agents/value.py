"""One configurable value agent: DQN, Double-DQN, Rainbow and its parts, RAD, DrQ-v2, CURL, and
the geometrically coherent forms of all of them.

Each part attaches by configuration. With all of them off, the update is Double-DQN's, bit for
bit: what is off is not computed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, UInt32

from gcr_rl.agents.contrast import Contrastive
from gcr_rl.agents.latent import Latent
from gcr_rl.agents.noise import Noise, init_noise
from gcr_rl.agents.objective import Known, Objective
from gcr_rl.agents.optimiser import make_optimiser, move_target, total_updates
from gcr_rl.agents.symmetric import NOTHING, least_level, level_of, make_enforcer, no_group
from gcr_rl.augment import make_augmentation
from gcr_rl.config import Config
from gcr_rl.errors import InputError
from gcr_rl.networks import ObservationSpec, make_q_network, noise_size, shaken
from gcr_rl.symmetry import Vocabulary
from gcr_rl.types import Metrics, Segment


class AgentState(NamedTuple):
    """Everything that learns, and what it has learned of symmetry and noise."""

    params: PyTree
    target: PyTree
    optimiser: PyTree
    updates: Int[Array, ""]
    group: PyTree = ()
    """The certified group of the grounded family, set between chunks; else nothing."""
    noise: Noise | tuple[()] = ()
    """Where the order needs it; else nothing."""
    slow: PyTree = ()
    """The slow encoder of the contrast; else nothing."""

    @property
    def known(self) -> Known:
        """What an update takes as given."""
        return Known(self.target, self.group, self.noise, self.slow)


@dataclass(frozen=True)
class Chore:
    """A part of the state that is renewed every ``period`` updates, from a sample of segments."""

    period: int
    get: Callable[[AgentState], PyTree]
    renewed: Callable[[AgentState, Segment, int], PyTree]
    put: Callable[[AgentState, PyTree], AgentState]


@dataclass(frozen=True)
class ValueAgent:
    """The functions of one agent; pure, to be jitted and vmapped by the caller.

    ``level`` is static: ``agent.level(state)``, read on the host, says how much of the group
    is in use (:mod:`gcr_rl.agents.symmetric`).
    """

    init: Callable[[PRNGKeyArray], AgentState]
    q_values: Callable[..., Float[Array, " actions"]]
    """(state, observation, level)."""
    learn: Callable[..., tuple[AgentState, Metrics, Float[Array, " batch"]]]
    """(state, segments, words, clock, level, weight): one update, and the size of each error.

    ``words`` are ``words_needed(batch)`` random ones, or None for the mean form; ``clock``
    counts updates and has no axis of seeds, so that schedules are conditions and not
    selections; ``weight`` is the importance of each segment, or None."""
    chores: "tuple[Chore, ...]"
    """What is done between updates, each on its own schedule."""
    num_actions: int
    objective: Objective
    """The loss and its parts, for whoever wants to look at them."""
    vocabulary: Vocabulary | None = None

    @property
    def segment_length(self) -> int:
        """Steps per segment that an update reads."""
        return self.objective.segment_length

    @property
    def noise_size(self) -> int:
        """Factors that acting with noise takes; 0 for a network without noisy layers."""
        return self.objective.noise_size

    def words_needed(self, batch: int) -> int:
        """Random words that an update of ``batch`` slots takes."""
        return self.objective.words(batch)

    def segments_for(self, batch: int) -> int:
        """Segments that an update of ``batch`` slots takes: with pairs half as many."""
        return self.objective.segments_for(batch)

    def update(
        self,
        state: AgentState,
        segments: Segment,
        words: UInt32[Array, " words"] | None = None,
        clock: Int[Array, ""] | int = 0,
        level: int = NOTHING,
    ) -> tuple[AgentState, Metrics]:
        """:attr:`learn` on segments that all count alike."""
        return self.learn(state, segments, words, clock, level)[:2]

    def level(self, state: AgentState) -> int:
        """The level of a concrete state, with or without an axis of seeds."""
        enforce = self.objective.config.symmetry.enforce
        return level_of(state.group, least_level(self.vocabulary, enforce))

    def act(
        self,
        state: AgentState,
        observation: PyTree,
        draws: Float[Array, "envs 2"],
        epsilon: Float[Array, ""],
        level: int = NOTHING,
        noise: Float[Array, " noise"] | None = None,
    ) -> Int[Array, " envs"]:
        """Epsilon-greedy actions for a batch of observations (leaves [envs, ...]).

        ``draws`` are uniform in [0, 1): whether to explore, and where to. ``noise`` are
        ``noise_size`` factors, one draw of the noisy layers for the whole batch, or None.
        """
        state = state._replace(params=shaken(state.params, noise))
        values = jax.vmap(lambda o: self.q_values(state, o, level))(observation)
        greedy = jnp.argmax(values, axis=-1)
        random = (draws[:, 1] * self.num_actions).astype(greedy.dtype)
        return jnp.where(draws[:, 0] < epsilon, random, greedy)


def make_value_agent(
    config: Config,
    spec: ObservationSpec,
    num_actions: int,
    decode: Callable[[PyTree], PyTree] = lambda observation: observation,
    vocabulary: Vocabulary | None = None,
) -> ValueAgent:
    """Bind the agent's functions to a configuration.

    ``decode`` turns what the replay stores into one observation (see ``envs``: compact codes).
    ``vocabulary`` holds the transforms that may be certified (grounded family).
    """
    value = config.value
    optimiser = make_optimiser(config.optimiser, total_updates(config))
    vocabulary = vocabulary if config.symmetry.family == "grounded" else None
    objective = make_objective(config, spec, num_actions, decode, vocabulary)
    contrastive = objective.contrastive

    def init(key: PRNGKeyArray) -> AgentState:
        params = objective.init(key)
        target = jax.tree.map(jnp.copy, params)  # its own buffers, so that both can be donated
        group = () if vocabulary is None else no_group(vocabulary, num_actions)
        noise = init_noise() if objective.ordered else ()
        slow = () if contrastive is None else contrastive.slow(params)
        return AgentState(params, target, optimiser.init(params), jnp.int32(0), group, noise, slow)

    def learn(
        state: AgentState,
        segments: Segment,
        words: UInt32[Array, " words"] | None = None,
        clock: Int[Array, ""] | int = 0,
        level: int = NOTHING,
        weight: Float[Array, " batch"] | None = None,
    ) -> tuple[AgentState, Metrics, Float[Array, " batch"]]:
        (_, (metrics, error)), gradient = jax.value_and_grad(objective.loss, has_aux=True)(
            state.params, state.known, segments, words, clock, level, weight
        )
        change, optimiser_state = optimiser.update(gradient, state.optimiser, state.params)
        params = objective.moved(state.params, change, clock)
        updates = state.updates + 1
        target = move_target(params, state.target, updates, value.target_period, value.target_rate)
        metrics["grad_norm"] = optax.global_norm(gradient)
        state = state._replace(
            params=params, target=target, optimiser=optimiser_state, updates=updates
        )
        if contrastive is not None:
            state = state._replace(slow=contrastive.moved(params, state.slow))
        return state, metrics, error

    return ValueAgent(
        init=init,
        q_values=lambda state, observation, level=NOTHING: objective.q(
            state.params, state.group, level, observation
        ),
        learn=learn,
        chores=tuple(chores_of(objective)),
        num_actions=num_actions,
        objective=objective,
        vocabulary=vocabulary,
    )


def chores_of(objective: Objective) -> Iterator[Chore]:
    """Measuring noise, where there is an order; contracting the bank, where there is one."""

    def noise(state: AgentState, segments: Segment, level: int) -> Noise:
        return objective.noise(state.params, state.known, segments, level)

    if objective.ordered:
        yield Chore(
            objective.config.order.refresh,
            lambda state: state.noise,
            noise,
            lambda state, part: state._replace(noise=part),
        )
    latent = objective.latent
    if latent is None:
        return

    def bank(state: AgentState, segments: Segment, level: int) -> PyTree:
        first = jax.tree.map(lambda leaf: leaf[:, 0], segments.steps.observation)
        observation = jax.vmap(objective.decode)(first)
        return latent.contracted(objective.network(state.params), state.params, observation)

    yield Chore(
        latent.config.contraction_period,
        lambda state: state.params.bank,
        bank,
        lambda state, part: state._replace(params=state.params._replace(bank=part)),
    )


def make_objective(
    config: Config,
    spec: ObservationSpec,
    num_actions: int,
    decode: Callable[[PyTree], PyTree],
    vocabulary: Vocabulary | None,
) -> Objective:
    """The loss of the agent and the network that it trains."""
    atoms = config.value.atoms or None

    def build(key: PRNGKeyArray) -> Any:
        return make_q_network(config.network, spec, num_actions, atoms=atoms, key=key)

    skeleton = eqx.filter_eval_shape(build, jax.random.key(0))
    _, static = eqx.partition(skeleton, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    features = eqx.filter_eval_shape(skeleton.features, jnp.zeros(spec.shape, spec.dtype)).shape[0]
    augmentation = make_augmentation(config.augment, spec.shape)
    latent, contrastive = None, None
    if config.symmetry.family == "latent":
        latent = Latent(config.symmetry, features, num_actions)
    if config.contrast.weight > 0.0:
        if augmentation is None:
            raise InputError(
                "contrast.weight", config.contrast.weight,
                f"0 without an augmentation for observations of shape {spec.shape}",
            )  # fmt: skip
        contrastive = Contrastive(config.contrast, features, augmentation)
    return Objective(
        config=config,
        build=build,
        static=static,
        decode=decode,
        enforcer=make_enforcer(vocabulary, config.symmetry.enforce, atoms),
        latent=latent,
        noise_size=noise_size(skeleton),
        augmentation=augmentation,
        contrastive=contrastive,
    )
