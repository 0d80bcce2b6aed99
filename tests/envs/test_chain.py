"""E4: detours as often as stated, a gadget that never pays to linger in."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from gcr_rl.envs import make, task
from gcr_rl.envs.chain import (
    CHAIN,
    DETOURS,
    FORWARD,
    HANDS,
    STATES,
    NoisyRPSChain,
    hand_score,
)
from gcr_rl.envs.finite import optimal_q, optimal_values

DRAWS = 4000


@jax.jit
def _steps(keys, state, action, params):
    environment = NoisyRPSChain()
    return jax.vmap(lambda key: environment.step_env(key, environment.at(state), action, params))(
        keys
    )


def step_many(params, state, action):
    """DRAWS successors and rewards of one (state, action); compiled once for the module."""
    keys = jax.random.split(jax.random.key(state), DRAWS)
    _, following, reward, _, _ = _steps(keys, state, action, params)
    return np.asarray(following.index), np.asarray(reward)


@pytest.mark.parametrize("eta", [0.0, 0.25, 0.8])
def test_detour_frequency_is_eta_and_hands_are_uniform(eta):
    _, params = make("NoisyRPSChain", eta=eta)
    for place in DETOURS:
        index, _ = step_many(params, place, FORWARD)
        detours = index[index >= CHAIN]
        assert stats.binomtest(len(detours), DRAWS, eta).pvalue > 1e-4
        assert set(index[index < CHAIN]) <= {place - 1}
        first = CHAIN + DETOURS.index(place) * HANDS
        if len(detours):
            counts = np.bincount(detours - first, minlength=HANDS)
            assert len(counts) == HANDS and stats.chisquare(counts).pvalue > 1e-4
    for place in (9, 8, 6, 4, 2, 1):
        index, _ = step_many(params, place, FORWARD)
        assert set(index) == {place - 1}


def test_hands_rejoin_half_the_time_and_pay_as_rock_paper_scissors_does():
    assert [[hand_score(mine, theirs) for theirs in range(3)] for mine in range(3)] == [
        [0, -1, 1],  # rock: draws, loses to paper, beats scissors
        [1, 0, -1],
        [-1, 1, 0],
    ]
    _, params = make("NoisyRPSChain", sigma=0.0)
    for slot, place in enumerate(DETOURS):
        for hand in range(HANDS):
            state = CHAIN + slot * HANDS + hand
            index, reward = step_many(params, state, (hand + 1) % 3)
            assert set(index) == {place, CHAIN + slot * HANDS + (hand + 1) % HANDS}
            assert stats.binomtest(int(np.sum(index == place)), DRAWS, 0.5).pvalue > 1e-4
            np.testing.assert_array_equal(reward, 0.0)  # a win less the toll


def test_reward_noise_has_the_stated_deviation():
    _, params = make("NoisyRPSChain", sigma=0.7)
    _, reward = step_many(params, 9, FORWARD)
    assert reward.mean() == pytest.approx(-0.1, abs=5 * 0.7 / np.sqrt(DRAWS))
    assert reward.std() == pytest.approx(0.7, rel=0.06)


def test_observations_tell_all_states_apart():
    environment, params = make("NoisyRPSChain")
    observations = np.asarray(environment.observations(params))
    assert observations.shape == (STATES, 16)
    assert len(np.unique(observations, axis=0)) == STATES
    np.testing.assert_array_equal(observations[:, :13].sum(axis=1), 1.0)
    np.testing.assert_array_equal(
        observations[:, 13:].sum(axis=1), (np.arange(STATES) >= CHAIN).astype(float)
    )


@pytest.mark.parametrize("eta", [0.0, 0.3, 0.9])
def test_undiscounted_and_discounted_optimal_policies_agree(eta):
    """Greedy actions of the finite-horizon optimum and of Q* at 0.99, in every live state."""
    environment, params = make("NoisyRPSChain", eta=eta)
    mdp = environment.finite_mdp(params)
    values = optimal_values(mdp, 1000)  # long enough that time does not press
    backup = np.asarray(
        jnp.sum(
            mdp.probabilities
            * (mdp.rewards + jnp.where(mdp.terminated, 0.0, values[mdp.successors])),
            axis=-1,
        )
    )
    discounted = np.asarray(optimal_q(mdp, 0.99))
    for state in range(1, STATES):
        assert backup[state].argmax() == discounted[state].argmax()
        runner_up = np.sort(backup[state])[-2]
        assert backup[state].max() - runner_up > 0.05  # no tie decided by rounding
    assert (discounted[1:CHAIN].argmax(axis=1) == FORWARD).all()
    hands = np.arange(STATES - CHAIN) % HANDS
    np.testing.assert_array_equal(discounted[CHAIN:].argmax(axis=1), (hands + 1) % HANDS)


def test_returns():
    chain = task("NoisyRPSChain")
    assert chain.optimal_return(eta=0.0) == pytest.approx(10 - 0.9, abs=1e-4)
    assert chain.optimal_return() == chain.optimal_return(sigma=3.0)
    # three places, each left after eta / (1 - eta) detours on average, 0.1 for each attempt;
    # the horizon cuts off next to nothing
    expected = 10 - 0.1 * (9 + 3 * 0.3 / 0.7)
    assert chain.optimal_return() == pytest.approx(expected, abs=1e-3)
