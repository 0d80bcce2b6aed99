import dataclasses
import json

import numpy as np
import pytest

from gcr_rl.arguments import TrainArguments
from gcr_rl.config import Config, dotted_names, section_names, validate
from gcr_rl.errors import InputError, unknown_name
from gcr_rl.methods import METHODS
from gcr_rl.presets import preset


def test_round_trip_through_json_is_the_identity():
    config = preset("CartPole", "dqn", {"network.hidden": (8, 4), "env": {"horizon": 7}})
    assert Config.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_method_overrides_reach_the_configuration():
    assert not preset("CartPole", "dqn").value.double
    assert preset("CartPole", "ddqn").value.double


def test_overrides_win_over_presets():
    assert preset("CartPole", "dqn", {"value.double": True}).value.double


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("steps", 0),
        ("steps", -5),
        ("steps", 1.5),
        ("seeds", ()),
        ("seeds", (1, 1)),
        ("seeds", (-1,)),
        ("replay.capacity", 0),
        ("replay.batch_size", -1),
        ("replay.batch_size", 10**9),
        ("replay.batch_size", True),
        ("replay.learning_starts", 0),
        ("network.hidden", ()),
        ("network.hidden", (0,)),
        ("network.strides", (2,)),
        ("network.encoder", "transformer"),
        ("optimiser.learning_rate", 0.0),
        ("optimiser.learning_rate", float("nan")),
        ("optimiser.learning_rate", "fast"),
        ("value.discount", 1.01),
        ("value.loss", "cubic"),
        ("value.huber_delta", float("inf")),
        ("network.hidden", (10**30,)),
        ("network", None),
        ("replay.learning_starts", 50_000),
        ("exploration.end", -0.1),
        ("evaluation.episodes", 0),
        ("run.keep", 0),
    ],
)
def test_bad_values_are_refused_by_name(field, value):
    with pytest.raises(InputError) as caught:
        preset("CartPole", "ddqn", {field: value})
    assert str(caught.value).startswith(field)
    assert repr(value) in str(caught.value) or value in ((1, 1), (-1,))
    assert "\n" not in str(caught.value)


def test_ranges_and_numpy_numbers_are_taken_as_what_they_are():
    config = preset("CartPole", "ddqn", {
        "seeds": range(3), "steps": np.int64(25_000), "network.hidden": np.array([8, 4]),
        "optimiser.learning_rate": np.float32(0.5), "env": {"horizon": np.int64(7)},
    })  # fmt: skip
    assert config.seeds == (0, 1, 2) and config.network.hidden == (8, 4)
    assert Config.from_json(json.loads(json.dumps(config.to_json()))) == config


@pytest.mark.parametrize("wrong", [3, None, ["CartPole"], "steps=3"])
def test_arguments_of_the_wrong_type_are_named(wrong):
    if not isinstance(wrong, str):
        with pytest.raises(InputError, match="task: got"):
            preset(wrong)
        with pytest.raises(InputError, match="method: got"):
            preset("CartPole", wrong)
    if wrong is not None:
        with pytest.raises(InputError, match="overrides: got"):
            preset("CartPole", "ddqn", wrong)


def test_batch_larger_than_replay_names_both():
    with pytest.raises(InputError, match=r"replay.batch_size: got 128.*replay.capacity \(32\)"):
        preset("CartPole", "ddqn", {"replay.capacity": 32})


def test_intervals_must_fit_the_loop():
    with pytest.raises(InputError, match=r"evaluation.every: got 1000; accepted: a multiple"):
        preset("CartPole", "ddqn", {"loop.train_every": 256, "steps": 51_200})


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(InputError, match="did you mean 'ddqn'"):
        preset("CartPole", "dddqn")
    with pytest.raises(InputError, match=r"did you mean 'replay.batch_size'"):
        preset("CartPole").replace({"replay.batchsize": 3})
    with pytest.raises(InputError, match="did you mean"):
        Config.from_json({"task": "CartPole", "metod": "dqn"})
    with pytest.raises(InputError, match="task"):
        Config.from_json({"method": "dqn"})
    assert "did you mean" not in str(unknown_name("x", "qqqqqq", ["abc"]))


def test_a_preset_spends_the_budget_that_the_task_states():
    from gcr_rl.envs import TASKS

    for name, task in TASKS.items():
        assert preset(name).steps == task.budget, name
    assert preset("CartPole-v1").value == preset("CartPole").value


def test_every_field_has_a_dotted_name_and_every_method_validates():
    assert "replay.batch_size" in dotted_names() and "steps" in dotted_names()
    for method in METHODS:
        validate(preset("RotMirrorGrid", method))


def test_every_section_is_a_group_of_options_of_train():
    options = {field.name for field in dataclasses.fields(TrainArguments)}
    assert set(section_names()) <= options
