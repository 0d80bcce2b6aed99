"""Finite MDPs as tables, and what dynamic programming knows about them.

All functions are pure and jit-able. Episodes are undiscounted and end at a terminated
branch or at the horizon; ``optimal_q`` and ``bellman_residual`` are discounted, since
that is what value learners estimate.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class FiniteMDP(NamedTuple):
    """P(s' | s, a) as K branches per state and action; unused branches have probability 0.

    ``rewards`` are expected rewards of a branch. A terminal state loops to itself with
    reward 0 and ``terminated``. States that cannot occur may be listed: nothing reaches them.
    """

    successors: Int[Array, "states actions branches"]
    probabilities: Float[Array, "states actions branches"]
    rewards: Float[Array, "states actions branches"]
    terminated: Bool[Array, "states actions branches"]
    start: Float[Array, " states"]
    horizon: Int[Array, "*batch"] | int


class BellmanResidual(NamedTuple):
    """|T Q - Q|: its maximum and uniform mean over reachable (s, a), and its mean over
    actions weighted by the start distribution."""

    maximum: Float[Array, ""]
    mean: Float[Array, ""]
    start_mean: Float[Array, ""]


def _backup(mdp: FiniteMDP, values: Float[Array, " states"]) -> Float[Array, "states actions"]:
    """Q(s,a) = sum_k p_k (r_k + [not terminated_k] V(s'_k)), for ``values`` already discounted."""
    future = jnp.where(mdp.terminated, 0.0, values[mdp.successors])
    return jnp.sum(mdp.probabilities * (mdp.rewards + future), axis=-1)


@jax.jit
def policy_values(
    mdp: FiniteMDP,
    policy: Float[Array, "states actions"],
    horizon: Int[Array, ""] | int | None = None,
) -> Float[Array, " states"]:
    """V_H(s), the expected undiscounted return of H steps from s under a stationary policy.

    V_0 = 0 and V_{h+1}(s) = sum_a pi(a|s) sum_k p_k (r_k + [not terminated_k] V_h(s'_k)).
    """
    steps = mdp.horizon if horizon is None else horizon
    branch = policy[:, :, None] * mdp.probabilities
    reward = jnp.sum(branch * mdp.rewards, axis=(1, 2))
    # the weights do not change with h: fold them once, so that a step is one gather and one sum
    weight = jnp.where(mdp.terminated, 0.0, branch)

    def one_step_more(
        _: Int[Array, ""], values: Float[Array, " states"]
    ) -> Float[Array, " states"]:
        return reward + jnp.sum(weight * values[mdp.successors], axis=(1, 2))

    return jax.lax.fori_loop(0, steps, one_step_more, jnp.zeros_like(mdp.start))


@jax.jit
def policy_return(
    mdp: FiniteMDP,
    policy: Float[Array, "states actions"],
    horizon: Int[Array, ""] | int | None = None,
) -> Float[Array, ""]:
    """E[sum_t r_t] of one episode from the start distribution under a stationary policy, exact."""
    return jnp.dot(mdp.start, policy_values(mdp, policy, horizon))


@jax.jit
def greedy_return(
    mdp: FiniteMDP, actions: Int[Array, " states"], horizon: Int[Array, ""] | int | None = None
) -> Float[Array, ""]:
    """``policy_return`` of the deterministic policy s -> ``actions[s]``, without the work
    on the actions that it never takes."""

    def taken(part: Array) -> Array:
        return jnp.take_along_axis(part, actions[:, None, None], axis=1)

    chosen = mdp._replace(
        successors=taken(mdp.successors),
        probabilities=taken(mdp.probabilities),
        rewards=taken(mdp.rewards),
        terminated=taken(mdp.terminated),
    )
    return policy_return(chosen, jnp.ones((len(actions), 1)), horizon)


@jax.jit
def optimal_values(
    mdp: FiniteMDP, horizon: Int[Array, ""] | int | None = None
) -> Float[Array, " states"]:
    """V*_H(s) = max over time-dependent policies of the undiscounted H-step return."""
    steps = mdp.horizon if horizon is None else horizon
    return jax.lax.fori_loop(
        0,
        steps,
        lambda _, values: jnp.max(_backup(mdp, values), axis=1),
        jnp.zeros_like(mdp.start),
    )


@jax.jit
def optimal_return(mdp: FiniteMDP, horizon: Int[Array, ""] | int | None = None) -> Float[Array, ""]:
    """The largest expected undiscounted return of one episode that any policy reaches."""
    return jnp.dot(mdp.start, optimal_values(mdp, horizon))


@jax.jit
def random_return(mdp: FiniteMDP, horizon: Int[Array, ""] | int | None = None) -> Float[Array, ""]:
    """The expected undiscounted return of one episode of uniformly random actions."""
    states, actions, _ = mdp.successors.shape
    return policy_return(mdp, jnp.full((states, actions), 1.0 / actions), horizon)


@jax.jit
def optimal_q(
    mdp: FiniteMDP,
    discount: Float[Array, ""] | float,
    tolerance: Float[Array, ""] | float = 1e-6,
    max_iterations: Int[Array, ""] | int = 20_000,
) -> Float[Array, "states actions"]:
    """The fixed point of (T Q)(s,a) = sum_k p_k (r_k + discount [not terminated_k] max Q(s'_k)).

    Value iteration from 0 until the contraction guarantees ``tolerance`` relative to the
    largest |Q|: the last change is below tolerance (1 - discount), or discount^n is, or n
    reaches ``max_iterations``. Rounding leaves about 1e-7 / (1 - discount) of relative error.
    """
    close = tolerance * (1.0 - discount)
    contraction = jnp.log(jnp.maximum(close, 1e-30)) / jnp.log(discount)
    enough_iterations = jnp.where(discount < 1.0, jnp.maximum(contraction, 1.0), jnp.inf)

    def unfinished(carry: tuple[Array, Array, Array]) -> Bool[Array, ""]:
        q, change, iteration = carry
        unsettled = change > close * jnp.max(jnp.abs(q))
        return unsettled & (iteration < jnp.minimum(enough_iterations, max_iterations))

    def iterate(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        q, _, iteration = carry
        updated = _backup(mdp, discount * jnp.max(q, axis=1))
        return updated, jnp.max(jnp.abs(updated - q)), iteration + 1

    start = jnp.zeros(mdp.successors.shape[:2], jnp.float32)
    first = (start, jnp.float32(jnp.inf), jnp.int32(0))
    return jax.lax.while_loop(unfinished, iterate, first)[0]


@jax.jit
def reachable(mdp: FiniteMDP) -> Bool[Array, " states"]:
    """The states in which some policy may have to act: the closure of the start states
    under branches of positive probability that do not terminate."""
    live = (mdp.probabilities > 0) & ~mdp.terminated

    def spread(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        seen, _ = carry
        arrivals = jnp.zeros_like(seen).at[mdp.successors].max(live & seen[:, None, None])
        return seen | arrivals, jnp.any(arrivals & ~seen)

    return jax.lax.while_loop(lambda carry: carry[1], spread, (mdp.start > 0, jnp.bool_(True)))[0]


@jax.jit
def bellman_residual(
    mdp: FiniteMDP, q: Float[Array, "states actions"], discount: Float[Array, ""] | float
) -> BellmanResidual:
    """How far Q is from its own optimality backup, |T Q - Q|, summarised three ways."""
    gap = jnp.abs(_backup(mdp, discount * jnp.max(q, axis=1)) - q)
    live = reachable(mdp)
    count = jnp.sum(live) * q.shape[1]
    return BellmanResidual(
        maximum=jnp.max(jnp.where(live[:, None], gap, 0.0)),
        mean=jnp.sum(jnp.where(live[:, None], gap, 0.0)) / count,
        start_mean=jnp.dot(mdp.start, jnp.mean(gap, axis=1)),
    )
