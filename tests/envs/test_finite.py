"""Dynamic programming against enumeration of every trajectory and every policy."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gcr_rl.envs.finite import (
    FiniteMDP,
    bellman_residual,
    greedy_return,
    optimal_q,
    optimal_return,
    policy_return,
    policy_values,
    random_return,
    reachable,
)

STATES, ACTIONS, BRANCHES, HORIZON = 3, 2, 2, 4
seeds = st.integers(0, 2**31 - 1)


def random_mdp(seed: int) -> FiniteMDP:
    rng = np.random.default_rng(seed)
    shape = (STATES, ACTIONS, BRANCHES)
    probabilities = rng.dirichlet(np.ones(BRANCHES), size=shape[:2])
    return FiniteMDP(
        successors=jnp.asarray(rng.integers(0, STATES, shape), jnp.int32),
        probabilities=jnp.asarray(probabilities, jnp.float32),
        rewards=jnp.asarray(rng.normal(size=shape), jnp.float32),
        terminated=jnp.asarray(rng.random(shape) < 0.2),
        start=jnp.asarray(rng.dirichlet(np.ones(STATES)), jnp.float32),
        horizon=HORIZON,
    )


def enumerated_return(mdp: FiniteMDP, policy: np.ndarray) -> float:
    """The sum over all trajectories of probability times return, one by one."""
    m = FiniteMDP(*[np.asarray(part, np.float64) for part in mdp])
    total = 0.0
    for state in range(STATES):
        for actions in product(range(ACTIONS), repeat=HORIZON):
            for branches in product(range(BRANCHES), repeat=HORIZON):
                chance, gain, here, over_at = m.start[state], 0.0, state, HORIZON
                for step in range(HORIZON):
                    place = (here, actions[step], branches[step])
                    chance *= policy[here, actions[step]] * m.probabilities[place]
                    gain += m.rewards[place]
                    here = int(m.successors[place])
                    if m.terminated[place]:
                        over_at = step + 1
                        break
                # a trajectory that ended early is met once per continuation: share it out
                total += chance * gain / (ACTIONS * BRANCHES) ** (HORIZON - over_at)
    return total


def expectimax(mdp: FiniteMDP, state: int, steps: int) -> float:
    if steps == 0:
        return 0.0
    return max(
        sum(
            float(mdp.probabilities[state, action, branch])
            * (
                float(mdp.rewards[state, action, branch])
                + (
                    0.0
                    if mdp.terminated[state, action, branch]
                    else expectimax(mdp, int(mdp.successors[state, action, branch]), steps - 1)
                )
            )
            for branch in range(BRANCHES)
        )
        for action in range(ACTIONS)
    )


def discounted_q_of_best_policy(mdp: FiniteMDP, discount: float) -> np.ndarray:
    """Solve V = r + discount P V for each deterministic policy; keep the largest V."""
    probabilities = np.asarray(mdp.probabilities, np.float64)
    matrix = np.zeros((STATES, ACTIONS, STATES))
    for state, action, branch in product(range(STATES), range(ACTIONS), range(BRANCHES)):
        if not mdp.terminated[state, action, branch]:
            successor = int(mdp.successors[state, action, branch])
            matrix[state, action, successor] += probabilities[state, action, branch]
    reward = np.sum(probabilities * np.asarray(mdp.rewards, np.float64), axis=-1)
    best = np.full(STATES, -np.inf)
    for choice in product(range(ACTIONS), repeat=STATES):
        rows = np.arange(STATES), np.array(choice)
        best = np.maximum(
            best, np.linalg.solve(np.eye(STATES) - discount * matrix[rows], reward[rows])
        )
    return reward + discount * matrix @ best


@settings(max_examples=8)
@given(seeds)
def test_policy_return_is_the_sum_over_all_trajectories(seed: int) -> None:
    mdp = random_mdp(seed)
    policy = np.random.default_rng(seed + 1).dirichlet(np.ones(ACTIONS), size=STATES)
    got = policy_return(mdp, jnp.asarray(policy, jnp.float32))
    assert got == pytest.approx(enumerated_return(mdp, policy), abs=1e-5)


@settings(max_examples=8)
@given(seeds)
def test_greedy_return_is_that_of_the_one_hot_policy(seed: int) -> None:
    mdp = random_mdp(seed)
    actions = np.random.default_rng(seed).integers(0, ACTIONS, STATES)
    policy = np.eye(ACTIONS, dtype=np.float32)[actions]
    got = greedy_return(mdp, jnp.asarray(actions))
    assert got == pytest.approx(float(policy_return(mdp, jnp.asarray(policy))), abs=1e-6)


@settings(max_examples=8)
@given(seeds)
def test_optimal_return_is_expectimax(seed: int) -> None:
    mdp = random_mdp(seed)
    numpy_mdp = FiniteMDP(*[np.asarray(part) for part in mdp])
    values = [expectimax(numpy_mdp, state, HORIZON) for state in range(STATES)]
    assert optimal_return(mdp) == pytest.approx(float(np.dot(mdp.start, values)), abs=1e-5)


@settings(max_examples=20)
@given(seeds)
def test_optimal_q_is_the_best_of_all_policies_and_has_no_residual(seed: int) -> None:
    mdp = random_mdp(seed)
    q = optimal_q(mdp, 0.9)
    np.testing.assert_allclose(q, discounted_q_of_best_policy(mdp, 0.9), atol=1e-4)
    assert bellman_residual(mdp, q, 0.9).maximum < 1e-4


def test_optimal_q_without_and_with_full_discount() -> None:
    mdp = random_mdp(1)
    np.testing.assert_allclose(
        optimal_q(mdp, 0.0), jnp.sum(mdp.probabilities * mdp.rewards, axis=-1), atol=1e-6
    )
    # every action may end the episode, so that undiscounted values are finite
    ends = mdp._replace(terminated=mdp.terminated.at[..., 0].set(True))
    np.testing.assert_allclose(
        optimal_q(ends, 1.0), discounted_q_of_best_policy(ends, 1.0), rtol=1e-4
    )


def test_random_return_and_explicit_horizon_under_jit_and_vmap() -> None:
    mdp = random_mdp(0)
    uniform = jnp.full((STATES, ACTIONS), 1 / ACTIONS)
    assert random_return(mdp) == pytest.approx(float(policy_return(mdp, uniform)))
    assert jax.jit(policy_return, static_argnums=2)(mdp, uniform, 7) == pytest.approx(
        float(policy_return(mdp, uniform, 7)), rel=1e-5
    )
    both = jax.vmap(lambda policy: policy_values(mdp, policy))(jnp.stack([uniform, uniform]))
    np.testing.assert_allclose(both[0], both[1])
    assert policy_return(mdp, uniform, 0) == 0.0


def test_residual_of_a_hand_computed_case_counts_reachable_states_only() -> None:
    # 0 -> 1 pays 2, 1 ends with 4; state 2 is never reached and is badly wrong
    mdp = FiniteMDP(
        successors=jnp.array([[[1]], [[1]], [[2]]]),
        probabilities=jnp.ones((3, 1, 1)),
        rewards=jnp.array([[[2.0]], [[4.0]], [[100.0]]]),
        terminated=jnp.array([[[False]], [[True]], [[True]]]),
        start=jnp.array([1.0, 0.0, 0.0]),
        horizon=5,
    )
    assert reachable(mdp).tolist() == [True, True, False]
    # T Q = (2 + 0.5 * 3, 4) against Q = (1, 3)
    residual = bellman_residual(mdp, jnp.array([[1.0], [3.0], [0.0]]), 0.5)
    assert residual.maximum == 2.5
    assert residual.mean == pytest.approx((2.5 + 1.0) / 2)
    assert residual.start_mean == 2.5
