"""Evidence against plain loops, a small MDP solved exactly, and its stated invariants."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcr_rl import evidence
from gcr_rl.errors import InputError
from gcr_rl.evidence import EvidenceResult
from gcr_rl.types import Comparisons, Segment, Transition

GAMMA = 0.9


def make_segment(reward, terminated, mask):
    length = jnp.shape(reward)
    zero = jnp.zeros(length)
    steps = Transition(
        zero,
        zero.astype(int),
        jnp.asarray(reward, jnp.float32),
        zero,
        jnp.asarray(terminated),
        jnp.zeros(length, bool),
    )
    return Segment(steps, jnp.asarray(mask))


def random_segment(rng, length):
    """Ends, if at all, once: truly or by truncation; what follows is masked."""
    end = int(rng.integers(1, 2 * length))
    terminated = np.zeros(length, bool)
    if end <= length and rng.random() < 0.5:
        terminated[end - 1] = True
    return make_segment(rng.normal(size=length), terminated, np.arange(length) < end)


def returns_by_loop(segment, bootstrap, horizon, starts):
    """(t, n) -> (margin, discount) for every bound that the segment supports."""
    found = {}
    reward, ended = np.asarray(segment.steps.reward), np.asarray(segment.steps.terminated)
    alive = np.asarray(segment.mask)
    for t in range(starts):
        total = 0.0
        for n in range(1, horizon + 1):
            last = t + n - 1
            if last >= len(reward) or not alive[last]:
                break
            total += GAMMA ** (n - 1) * reward[last]
            found[t, n] = (total, 0.0 if ended[last] else GAMMA**n)
            if ended[last]:
                break
    return found


one_segment = jax.jit(
    lambda segment, value, upper, lower: evidence.returns(
        segment, value, upper, lower, discount=GAMMA, horizon=4, starts=5
    )
)


def test_returns_against_a_loop():
    rng = np.random.default_rng(0)
    upper, lower = jnp.arange(6) + 10, jnp.arange(6) + 20
    for _ in range(200):
        segment, value = random_segment(rng, 6), rng.normal(size=6).astype(np.float32)
        found = jax.tree.map(np.asarray, one_segment(segment, value, upper, lower))
        expected = returns_by_loop(segment, value, horizon=4, starts=5)
        for t in range(5):
            for n in range(1, 5):
                i = t * 4 + n - 1
                assert bool(found.mask[i]) == ((t, n) in expected)
                if found.mask[i]:
                    margin, discount = expected[t, n]
                    np.testing.assert_allclose(found.margin[i], margin, rtol=1e-4, atol=1e-5)
                    np.testing.assert_allclose(found.discount[i], discount, rtol=1e-5)
                    assert (found.upper[i], found.lower[i]) == (10 + t, 20 + t + n - 1)
                    end_value = value[t + n - 1] if discount > 0 else 0.0
                    excess = margin + discount * end_value - end_value
                    np.testing.assert_allclose(found.weight[i], excess, rtol=1e-4, atol=1e-5)


def solved_mdp(rng, states=8, actions=3):
    """A deterministic MDP with a terminal state 0, and its Q* by value iteration."""
    following = rng.integers(0, states, (states, actions))
    reward = rng.normal(size=(states, actions))
    q = np.zeros((states, actions))
    for _ in range(600):
        value = q.max(axis=1)
        value[0] = 0.0
        q = reward + GAMMA * value[following]
    return following, reward, q


def test_returns_hold_for_the_optimal_values_of_deterministic_mdps():
    """With exact values as bootstrap no bound is violated, whatever policy acted, and the one
    of an optimal action is tight at n = 1."""
    rng = np.random.default_rng(1)
    for _ in range(40):
        following, reward, q = solved_mdp(rng)
        state, steps = int(rng.integers(1, 8)), []
        while len(steps) < 6 and state != 0:
            action = int(rng.integers(3))
            steps.append((state, action, reward[state, action], int(following[state, action])))
            state = steps[-1][3]
        pad = 6 - len(steps)
        taken = jnp.array([q[s, a] for s, a, _, _ in steps] + [0.0] * pad)
        value = jnp.array([q[n].max() for *_, n in steps] + [0.0] * pad)
        segment = make_segment(
            [r for _, _, r, _ in steps] + [0.0] * pad,
            [n == 0 for *_, n in steps] + [False] * pad,
            np.arange(6) < len(steps),
        )
        found = one_segment(segment, value, jnp.arange(6), jnp.arange(6) + 6)
        bound = found.margin + found.discount * value[found.lower - 6]
        slack = taken[found.upper] - bound
        assert found.mask.any()
        assert np.all(np.asarray(slack)[found.mask] > -1e-4)
        tight = np.asarray(slack).reshape(5, 4)[:, 0][np.asarray(found.mask).reshape(5, 4)[:, 0]]
        np.testing.assert_allclose(tight, 0.0, atol=1e-4)


def test_batch_returns_numbers_its_slots():
    rng = np.random.default_rng(2)
    segments = [random_segment(rng, 6) for _ in range(3)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *segments)
    taken = rng.normal(size=(3, 5)).astype(np.float32)
    bootstrap = rng.normal(size=(3, 6)).astype(np.float32)
    found, slots = evidence.batch_returns(stacked, taken, bootstrap, discount=GAMMA, horizon=4)
    assert found.mask.shape == (60,) and slots.values.shape == (15 + 18,)
    np.testing.assert_array_equal(slots.frozen, np.arange(33) >= 15)
    for b, segment in enumerate(segments):
        alone = one_segment(
            segment, bootstrap[b], jnp.arange(6) + 5 * b, jnp.arange(6) + 15 + 6 * b
        )
        for together, apart in zip(found, alone, strict=True):
            np.testing.assert_allclose(together[b * 20 : (b + 1) * 20], apart, rtol=1e-6)
    np.testing.assert_array_equal(slots.values[found.upper], taken.reshape(-1)[found.upper])
    folded = evidence.fold(found, slots.values)
    np.testing.assert_allclose(
        folded.margin, found.margin + found.discount * slots.values[found.lower], rtol=1e-6
    )
    assert not folded.discount.any()
    np.testing.assert_array_equal(folded.lower, found.upper)
    with pytest.raises(InputError, match="taken"):
        evidence.batch_returns(stacked, taken[:2], bootstrap, discount=GAMMA, horizon=4)


def comparisons(upper, lower, **changes):
    upper, lower = jnp.asarray(upper), jnp.asarray(lower)
    one = jnp.ones(upper.shape)
    return Comparisons(upper, lower, one, 0 * one, one, one > 0)._replace(
        **{name: jnp.asarray(value) for name, value in changes.items()}
    )


def test_order_edges_are_those_that_imply_an_order():
    values = jnp.array([0.0, 10.0, -10.0, 1.0])
    raw = comparisons(
        [0, 0, 0, 0, 3, 0],
        [1, 1, 2, 2, 3, 3],
        margin=[0.5, 1.5, -0.5, -1.5, 9.0, 9.0],
        discount=[0.9, 0.9, 0.9, 0.9, 0.9, 0.0],
        mask=[True, True, True, True, True, True],
    )
    edges = evidence.order_edges(raw, values, margin=0.25)
    # 0.5 + 9 < 10; 1.5 + 9 >= 10; -0.5 - 9 >= -10; -1.5 - 9 < -10; itself; no lower end.
    np.testing.assert_array_equal(edges.mask, [False, True, True, False, False, False])
    np.testing.assert_allclose(edges.weight[:4], [-0.5, 0.5, 0.5, -0.5], atol=1e-6)
    assert np.all(edges.margin == 0.25) and np.all(edges.discount == 1.0)


@given(st.lists(st.floats(-5, 5, width=32), min_size=4, max_size=4), st.integers(0, 2**31))
def test_order_edges_never_contradict_values_that_meet_their_bounds(values, seed):
    rng = np.random.default_rng(seed)
    values = jnp.array(values, jnp.float32)
    upper, lower = rng.integers(0, 4, (2, 6))
    discount = rng.random(6).astype(np.float32)
    slack = rng.random(6).astype(np.float32)
    margin = values[upper] - discount * values[lower] - slack
    edges = evidence.order_edges(
        comparisons(upper, lower, margin=margin, discount=discount), values
    )
    difference = np.asarray(values[upper] - values[lower])
    assert np.all(difference[edges.mask] >= -1e-4)


def test_confident_takes_the_lower_confidence_bound_of_each_class():
    margin = jnp.array([1.0, 3.0, 5.0, 7.0, 100.0, 2.0])
    raw = comparisons(range(6), range(6, 12), margin=margin, weight=margin + 1.0)
    raw = raw._replace(mask=jnp.array([True, True, True, True, False, True]))
    pooled = evidence.confident(raw, jnp.array([0, 1, 0, 0, 0, 2]), 3, z=2.0, prior_deviation=0.5)
    samples = np.array([1.0, 5.0, 7.0])
    bound = samples.mean() - 2.0 * samples.std(ddof=1) / np.sqrt(3)
    np.testing.assert_array_equal(pooled.mask, [True, True, False, False, False, True])
    np.testing.assert_allclose(pooled.margin[jnp.array([0, 1, 5])], [bound, 2.0, 1.0], rtol=1e-6)
    np.testing.assert_allclose(
        pooled.weight[jnp.array([0, 1, 5])], [bound + 1, 3.0, 2.0], rtol=1e-6
    )


def test_confident_bounds_are_seldom_too_high():
    """3,000 classes of 16 noisy samples of 0: the plain best sample is almost always above it,
    the bound at z = 2 in about 3 of 100."""
    rng = np.random.default_rng(3)
    noise = rng.normal(size=(3000, 16)).astype(np.float32)
    flat = comparisons(np.zeros(48000, int), np.zeros(48000, int), margin=noise.reshape(-1))
    pooled = evidence.confident(flat, jnp.repeat(jnp.arange(3000), 16), 3000, z=2.0)
    assert np.sum(pooled.mask) == 3000
    too_high = np.mean(np.asarray(pooled.margin)[np.asarray(pooled.mask)] > 0)
    assert 0.015 < too_high < 0.055
    assert np.mean(noise.max(axis=1) > 0) > 0.99


def test_quotient_maps_classes_and_drops_self_comparisons():
    raw = comparisons([0, 1, 2, 3], [1, 2, 3, 3], discount=[1.0, 1.0, 0.5, 0.0])
    merged = evidence.quotient(raw, jnp.array([5, 5, 7, 7]))
    np.testing.assert_array_equal(merged.upper, [5, 5, 7, 7])
    np.testing.assert_array_equal(merged.lower, [5, 7, 7, 7])
    np.testing.assert_array_equal(merged.mask, [False, True, False, True])


@pytest.mark.parametrize("missing", [-1, 4])
def test_a_missing_slot_is_reported_not_guessed(missing):
    raw = comparisons([0, missing], [1, missing], discount=[0.5, 0.5])
    values = jnp.arange(4.0)

    def codes(raw):
        folded, edges = evidence.fold(raw, values), evidence.order_edges(raw, values)
        edges = edges._replace(mask=edges.mask | raw.mask)
        classes = evidence.quotient(raw, jnp.arange(4))
        return [evidence.inspect(c, 9) for c in (folded, edges, classes)]

    found = [EvidenceResult(int(code)) for code in jax.jit(codes)(raw)]
    assert EvidenceResult.NOT_A_NUMBER in found[0]
    assert EvidenceResult.NOT_A_NUMBER in found[1]
    assert EvidenceResult.INDEX_OUT_OF_RANGE in found[2]


def test_merge_concatenates():
    both = evidence.merge(comparisons([0], [1]), comparisons([2, 3], [4, 5], mask=[True, False]))
    np.testing.assert_array_equal(both.upper, [0, 2, 3])
    np.testing.assert_array_equal(both.mask, [True, True, False])
    with pytest.raises(InputError, match="sources"):
        evidence.merge()


def nudge_case(seed, batch=20):
    rng = np.random.default_rng(seed)
    return {
        "features": rng.normal(size=(batch, 5)).astype(np.float32),
        "value": rng.normal(size=batch).astype(np.float32),
        "target": rng.normal(size=batch).astype(np.float32),
        "next_q": rng.normal(size=(batch, 3)).astype(np.float32),
    }


def scale_of(next_q):
    return evidence.update_variance_scale(evidence.init_variance_scale(), next_q, 0.9)


SETTINGS = {"neighbours": 4, "temperature": 0.5, "percentile": 60.0}


def test_nudge_follows_the_score_equation():
    case = nudge_case(4)
    found = evidence.nudge(**case, scale=scale_of(case["next_q"]), **SETTINGS)
    delta = case["target"] - case["value"]
    variance = case["next_q"].var(axis=1)
    weight = np.exp(-variance / variance.mean()) / (1 + np.exp(-delta / 0.5))
    keep = (delta > 0) & (weight >= np.percentile(weight, 60.0))
    unit = case["features"] / np.linalg.norm(case["features"], axis=1, keepdims=True)
    cosine = unit @ unit.T
    np.fill_diagonal(cosine, -np.inf)
    nearest = np.argsort(-cosine, axis=1)[:, :4]
    np.testing.assert_array_equal(found.upper.reshape(20, 4), np.arange(20)[:, None].repeat(4, 1))
    np.testing.assert_array_equal(found.lower.reshape(20, 4), nearest)
    np.testing.assert_allclose(found.weight.reshape(20, 4)[:, 0], weight, rtol=1e-4)
    np.testing.assert_array_equal(found.mask.reshape(20, 4), keep[:, None].repeat(4, 1))
    assert 0 < keep.sum() < 20 and np.all(found.discount == 1) and np.all(found.margin == 0)


def test_nudge_keeps_the_heaviest():
    case = nudge_case(5)
    every = evidence.nudge(**case, scale=scale_of(case["next_q"]), **SETTINGS)
    top = evidence.nudge(**case, scale=scale_of(case["next_q"]), **SETTINGS, max_edges=6)
    order = np.argsort(-np.where(every.mask, every.weight, -np.inf), kind="stable")[:6]
    for kept, full in zip(top, every, strict=True):
        np.testing.assert_array_equal(kept, np.asarray(full)[order])
    with pytest.raises(InputError, match="max_edges"):
        evidence.heaviest(every, 0)


def test_nudge_confidence_survives_large_returns_and_true_ends():
    """Scaling all values by 1e4 leaves the confidence as it is; a true end has confidence 1."""
    case = nudge_case(6)
    for factor in (1.0, 1e4):
        next_q = case["next_q"] * factor
        scores = evidence.nudge_scores(
            case["value"],
            case["value"],
            next_q,
            scale_of(next_q),
            temperature=1.0,
            terminated=jnp.arange(20) == 3,
        )[1]
        variance = case["next_q"].var(axis=1)
        expected = 0.5 * np.exp(-variance / variance.mean())
        expected[3] = 0.5
        np.testing.assert_allclose(scores, expected, rtol=1e-4)


def test_variance_scale_is_an_unbiased_running_mean():
    rng = np.random.default_rng(7)
    batches = rng.normal(size=(3, 8, 4)).astype(np.float32)
    scale = evidence.init_variance_scale()
    for batch in batches:
        scale = evidence.update_variance_scale(scale, batch, 0.8)
    means, weights = batches.var(axis=2).mean(axis=1), np.array([0.64, 0.8, 1.0])
    np.testing.assert_allclose(
        scale.total / scale.weight, means @ weights / weights.sum(), rtol=1e-5
    )


def test_no_gradient_and_nan_stays_visible():
    case = nudge_case(8)
    scale = scale_of(case["next_q"])
    run = jax.jit(lambda c: evidence.nudge(**c, scale=scale, **SETTINGS))
    gradient = jax.grad(lambda c: jnp.sum(run(c).weight))(case)
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(gradient))
    case["target"][2] = np.nan
    code = jax.jit(lambda c: evidence.inspect(run(c), 20))(case)
    assert EvidenceResult(int(code)) == EvidenceResult.NOT_A_NUMBER


def test_inspect_and_require_valid():
    good = comparisons([0, 1], [1, 2], margin=[0.0, -1.0])
    assert evidence.inspect(good, 3) == EvidenceResult.SUCCESS
    evidence.require_valid(good, 3)
    cases = {
        EvidenceResult.INDEX_OUT_OF_RANGE: good._replace(lower=jnp.array([1, 3])),
        EvidenceResult.NOT_A_NUMBER: good._replace(margin=jnp.array([0.0, jnp.nan])),
        EvidenceResult.DISCOUNT_OUT_OF_RANGE: good._replace(discount=jnp.array([1.0, 1.1])),
    }
    for expected, bad in cases.items():
        assert EvidenceResult(int(evidence.inspect(bad, 3))) == expected
        with pytest.raises(InputError, match=expected.name):
            evidence.require_valid(bad, 3)
        masked = bad._replace(mask=jnp.array([True, False]))
        assert evidence.inspect(masked, 3) == EvidenceResult.SUCCESS
    with pytest.raises(InputError, match="NEGATIVE_MARGIN"):
        evidence.require_valid(good, 3, negative_margins=False)
    with pytest.raises(InputError, match="one length"):
        evidence.require_valid(good._replace(weight=jnp.ones(3)), 3)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"neighbours": 0}, "neighbours"),
        ({"neighbours": 20}, "neighbours"),
        ({"temperature": 0.0}, "temperature"),
        ({"percentile": 101.0}, "percentile"),
        ({"value": np.zeros(3, np.float32)}, "value"),
    ],
)
def test_malformed_nudge_input(change, field):
    case = nudge_case(9)
    with pytest.raises(InputError) as error:
        evidence.nudge(**(case | {"scale": scale_of(case["next_q"])} | SETTINGS | change))
    assert error.value.field == field


@pytest.mark.parametrize(
    "change", [{"discount": 1.5}, {"horizon": 0}, {"starts": 7}, {"bootstrap": jnp.zeros(3)}]
)
def test_malformed_returns_input(change):
    segment = random_segment(np.random.default_rng(0), 6)
    slots = {"upper": jnp.arange(6), "lower": jnp.arange(6), "bootstrap": jnp.zeros(6)}
    with pytest.raises(InputError):
        evidence.returns(segment, **(slots | {"discount": 0.9, "horizon": 2} | change))
