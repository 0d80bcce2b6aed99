"""The table of tasks: names, options, thresholds."""

import pytest

from gcr_rl.envs import TASKS, make, task
from gcr_rl.envs.adapters import register
from gcr_rl.errors import InputError

register()


def test_unknown_task_suggests_the_nearest():
    with pytest.raises(InputError, match="did you mean 'RotMirrorGrid'"):
        task("RotMirorGrid")
    with pytest.raises(InputError):
        make("nothing like it")


def test_alias():
    assert task("CartPole-v1") is task("CartPole")


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("RotMirrorGrid", "p_asym", 1.5),
        ("RotMirrorGrid", "epsilon", float("nan")),
        ("RotMirrorGrid", "horizon", 0),
        ("RotMirrorGrid", "horizon", 20.0),
        ("RotMirrorGrid", "horizon", True),
        ("NoisyRPSChain", "eta", -0.1),
        ("NoisyRPSChain", "eta", "often"),
        ("NoisyRPSChain", "sigma", float("inf")),
        ("ButtonPermutation", "legend", "no"),
        ("ButtonPermutation", "tile_size", 2),
    ],
)
def test_bad_option_is_named(name, option, value):
    with pytest.raises(InputError) as caught:
        make(name, **{option: value})
    assert caught.value.field == f"{name}.{option}"
    with pytest.raises(InputError):
        task(name).optimal_return(**{option: value})


def test_unknown_option_suggests_the_nearest():
    with pytest.raises(InputError, match="did you mean 'epsilon'"):
        make("RotMirrorGrid", epsilom=0.1)


@pytest.mark.parametrize("name", TASKS)
def test_options_reach_the_environment(name):
    chosen = task(name)
    environment, params = make(name)
    assert params.max_steps_in_episode == chosen.options["horizon"]
    assert make(name, horizon=3)[1].max_steps_in_episode == 3
    space = environment.observation_space(params)
    kinds = {("vector", 1), ("grid", 3), ("image", 3)}
    assert (chosen.observation_kind, len(space.shape)) in kinds
    assert chosen.summary and "\n" not in chosen.summary and chosen.budget > 0


@pytest.mark.parametrize(
    "name", [name for name, known in TASKS.items() if known.threshold and name != "CartPole"]
)
def test_threshold_is_nine_tenths_of_the_way_from_random_to_optimal(name):
    chosen = task(name)
    optimal, at_random = chosen.optimal_return(), chosen.random_return()
    assert chosen.threshold == pytest.approx(at_random + 0.9 * (optimal - at_random), abs=0.0051)


def test_only_minatar_has_no_threshold():
    missing = {name for name, known in TASKS.items() if known.threshold is None}
    assert missing == {name for name in TASKS if name.startswith("MinAtar-")}
    assert len(missing) == 4


def test_cartpole_keeps_gymnasiums_threshold_and_horizon():
    chosen = task("CartPole")
    assert (chosen.threshold, chosen.optimal_return()) == (475.0, 500.0)
    assert chosen.optimal_return(horizon=200) == 200.0
    assert chosen.random_return(horizon=100) is None
