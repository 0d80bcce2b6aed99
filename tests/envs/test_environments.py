"""What holds for every environment: the contract, the codes, and the tables it claims."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from gcr_rl.envs import TASKS, make

VARIANTS = [(name, {}) for name in TASKS] + [
    ("RotMirrorGrid", {"p_asym": 0.5, "epsilon": 0.6}),
    ("ButtonPermutation", {"legend": False}),
]
NAMES = [name + "".join(f" {k}={v}" for k, v in options.items()) for name, options in VARIANTS]
FINITE = [
    (name, options)
    for name, options in VARIANTS
    if name != "CartPole" and not name.startswith("MinAtar-") and options != {"legend": False}
]
# Three of the MinAtar games are long programs, slow to compile.
SLOW = ("MinAtar-Asterix", "MinAtar-Freeway", "MinAtar-SpaceInvaders")
every = pytest.mark.parametrize(
    ("name", "options"),
    [pytest.param(n, o, marks=[pytest.mark.slow] * (n in SLOW)) for n, o in VARIANTS],
    ids=NAMES,
)
finite = pytest.mark.parametrize(
    ("name", "options"), FINITE, ids=[n + str(len(o)) for n, o in FINITE]
)


def rollout(environment, params, key, steps):
    """Random actions without autoreset, as a scan: fails unless dtypes are stable."""

    def step(carry, key):
        state = carry
        key_action, key_step = jax.random.split(key)
        action = jax.random.randint(key_action, (), 0, environment.num_actions)
        observation, following, reward, terminated, _ = environment.step_env(
            key_step, state, action, params
        )
        return following, (state, action, observation, reward, terminated)

    key_reset, key_steps = jax.random.split(key)
    first, state = environment.reset_env(key_reset, params)
    last, steps_seen = jax.lax.scan(step, state, jax.random.split(key_steps, steps))
    return first, last, steps_seen


@every
def test_contract_of_a_batch_of_episodes(name, options):
    environment, params = make(name, **options)
    horizon = int(params.max_steps_in_episode)
    steps = min(horizon, 12)
    keys = jax.random.split(jax.random.key(0), 4)

    def coded_rollout(key):
        first, last, seen = rollout(environment, params, key, steps)
        if not environment.supports_state_code:
            return first, last, seen, None, None
        code = jax.vmap(lambda state: environment.state_code(state, params))(seen[0])
        decoded = jax.vmap(lambda c: environment.observation_of(c, params))(code)
        return first, last, seen, code, decoded

    first, last, (states, _, seen, reward, terminated), code, decoded = jax.jit(
        jax.vmap(coded_rollout)
    )(keys)
    space = environment.observation_space(params)
    assert first.shape[1:] == seen.shape[2:] == tuple(space.shape)
    assert first.dtype == seen.dtype == jnp.dtype(space.dtype)
    assert reward.dtype == jnp.float32 and terminated.dtype == jnp.bool_
    assert bool(jnp.all(seen >= space.low)) and bool(jnp.all(seen <= space.high))
    assert environment.action_space(params).n == environment.num_actions
    assert last.time.tolist() == [steps] * 4
    at_horizon = states.replace(time=jnp.full_like(states.time, horizon))
    before = states.replace(time=jnp.full_like(states.time, horizon - 1))
    assert bool(jnp.all(environment.is_truncated(at_horizon, params)))
    assert not bool(jnp.any(environment.is_truncated(before, params)))
    if environment.supports_state_code:
        assert code.dtype == jnp.int32
        # the observation of step t is the one that the state of step t + 1 decodes to
        np.testing.assert_array_equal(decoded[:, 1:], seen[:, :-1])
        np.testing.assert_array_equal(decoded[:, 0], first)


@every
def test_gymnax_step_resets_and_keeps_the_final_observation(name, options):
    environment, params = make(name, **{**options, "horizon": 1})
    first, state = environment.reset(jax.random.key(1), params)
    observation, state, _, _, truncated, info = environment.step(
        jax.random.key(2), state, 0, params
    )
    assert bool(truncated) and int(state.time) == 0
    assert info["final_observation"].shape == observation.shape == first.shape


@every
def test_picture(name, options):
    environment, params = make(name, **options)
    _, state = environment.reset(jax.random.key(0), params)
    picture = environment.render(state, params)
    assert picture.dtype == np.uint8 and picture.ndim == 3 and picture.shape[2] == 3
    following = state
    for _ in range(6):  # the slowest car of Freeway moves after six steps
        _, following, *_ = environment.step(jax.random.key(0), following, 1, params)
        if (picture != environment.render(following, params)).any():
            return
    pytest.fail("six steps look alike")


def sampled_steps(environment, params, states, actions, draws):
    """``draws`` successors, rewards and ends of each (state, action), [pairs, draws]."""

    def one(key, state, action):
        _, following, reward, terminated, _ = environment.step_env(
            key, environment.at(state), action, params
        )
        return following.index, reward, terminated

    keys = jax.random.split(jax.random.key(7), (len(states), draws))
    over_draws = jax.vmap(one, in_axes=(0, None, None))
    return jax.jit(jax.vmap(over_draws))(keys, jnp.asarray(states), jnp.asarray(actions))


@finite
def test_steps_have_the_frequencies_of_the_table(name, options):
    environment, params = make(name, **options)
    mdp = environment.finite_mdp(params)
    np.testing.assert_allclose(mdp.probabilities.sum(-1), 1.0, atol=1e-6)
    assert float(mdp.start.sum()) == pytest.approx(1.0, abs=1e-5)
    live = np.flatnonzero(~np.asarray(mdp.terminated).all(axis=(1, 2)))
    chosen = np.random.default_rng(0).choice(live, min(len(live), 40), replace=False)
    states, actions = map(np.ravel, np.meshgrid(chosen, np.arange(environment.num_actions)))
    draws = 400
    index, reward, terminated = map(
        np.asarray, sampled_steps(environment, params, states, actions, draws)
    )
    statistic, freedom = 0.0, 0
    for row, (state, action) in enumerate(zip(states, actions, strict=True)):
        expected = np.zeros(environment.num_states)
        np.add.at(expected, mdp.successors[state, action], mdp.probabilities[state, action])
        counts = np.bincount(index[row], minlength=environment.num_states)
        assert not counts[expected == 0].any()
        support = expected > 0
        statistic += float(
            np.sum((counts - draws * expected)[support] ** 2 / (draws * expected[support]))
        )
        freedom += int(support.sum()) - 1
        ends = dict(
            zip(
                np.asarray(mdp.successors[state, action]).tolist(),
                np.asarray(mdp.terminated[state, action]).tolist(),
                strict=True,
            )
        )
        assert terminated[row].tolist() == [ends[i] for i in index[row].tolist()]
        mean = float(jnp.sum(mdp.probabilities[state, action] * mdp.rewards[state, action]))
        error = reward[row].std() / np.sqrt(draws)
        assert reward[row].mean() == pytest.approx(mean, abs=5 * error + 1e-6)
    assert freedom == 0 or stats.chi2.sf(statistic, freedom) > 1e-4


@finite
def test_starts_have_the_frequencies_of_the_table(name, options):
    environment, params = make(name, **options)
    start = np.asarray(environment.finite_mdp(params).start, np.float64)
    draws = 40_000
    keys = jax.random.split(jax.random.key(3), draws)
    states = jax.jit(jax.vmap(lambda key: environment.reset_env(key, params)[1]))(keys)
    counts = np.bincount(np.asarray(states.index), minlength=len(start))
    assert not counts[start == 0].any()
    support = start > 0
    if support.sum() > 1:
        expected = draws * start[support] / start[support].sum()
        assert stats.chisquare(counts[support], expected).pvalue > 1e-4


@finite
def test_every_row_of_the_table_is_what_a_step_does(name, options):
    """One draw of every (state, action), all of them: successor and reward are in the table."""
    environment, params = make(name, **options)
    mdp = environment.finite_mdp(params)
    live = np.flatnonzero(~np.asarray(mdp.terminated).all(axis=(1, 2)))
    states, actions = map(np.ravel, np.meshgrid(live, np.arange(environment.num_actions)))
    index, reward, terminated = map(
        np.asarray, sampled_steps(environment, params, states, actions, 1)
    )
    possible = np.asarray(mdp.probabilities)[states, actions] > 0
    same = (np.asarray(mdp.successors)[states, actions] == index) & possible
    same &= np.asarray(mdp.terminated)[states, actions] == terminated
    if name != "NoisyRPSChain":
        same &= np.asarray(mdp.rewards)[states, actions] == reward
    assert same.any(axis=1).all()


@finite
def test_terminal_states_are_absorbing_and_free(name, options):
    environment, params = make(name, **options)
    mdp = environment.finite_mdp(params)
    terminal = np.asarray(
        jax.vmap(lambda i: environment.is_terminated(environment.at(i), params))(
            jnp.arange(environment.num_states)
        )
    )
    assert terminal.any()
    assert np.asarray(mdp.terminated)[terminal].all()
    # a state that the environment calls terminal starts no episode and pays nothing
    assert not np.asarray(mdp.start)[terminal].any()
    paid = np.asarray(mdp.probabilities * mdp.rewards)[terminal]
    np.testing.assert_array_equal(paid, 0.0)
    # every branch that ends leads to such a state, and no other branch does
    reached = terminal[np.asarray(mdp.successors)]
    used = np.asarray(mdp.probabilities) > 0
    np.testing.assert_array_equal(reached[used], np.asarray(mdp.terminated)[used])
