"""Suites expand to the jobs they describe; a key changes with the result and with nothing else."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcr_rl.bench import Job, key_of, load_suite, select, suite_names
from gcr_rl.bench.suite import FIRST_TUNING_SEED, SCALES
from gcr_rl.config import dotted_names
from gcr_rl.envs import TASKS
from gcr_rl.errors import InputError
from gcr_rl.methods import METHODS
from gcr_rl.presets import preset

BASE = preset("NoisyRPSChain", "gcr", {"env": {"eta": 0.1}, "seeds": (0, 1)})
# A different value for each field, of its own type.
CHANGES = {
    bool: lambda value: not value,
    int: lambda value: value + 1,
    float: lambda value: value + 0.125,
    str: lambda value: value + "x",
    tuple: lambda value: (*value, 7),
    dict: lambda value: {**value, "sigma": 0.25},
}


def suite_file(tmp_path: Path, text: str) -> str:
    path = tmp_path / "small.toml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("name", sorted(set(dotted_names()) - {"run.keep", "run.tensorboard"}))
def test_any_field_that_determines_the_result_changes_the_key(name):
    value = BASE.get(name)
    changed = BASE.replace({name: CHANGES[type(value)](value)})
    assert key_of(changed.to_json()) != key_of(BASE.to_json())


def test_what_is_kept_of_a_run_does_not_change_its_key():
    assert Job(BASE.replace({"run.keep": 9})).key == Job(BASE).key


@given(st.randoms(use_true_random=False))
def test_the_order_of_names_and_the_spelling_of_numbers_do_not_change_the_key(random):
    def shuffled(data):
        if isinstance(data, dict):
            items = list(data.items())
            random.shuffle(items)
            return {name: shuffled(value) for name, value in items}
        if isinstance(data, float) and data.is_integer():
            return int(data)
        return data

    plain = BASE.to_json()
    assert key_of(shuffled(plain)) == key_of(plain)


def test_a_setting_that_the_library_gains_later_leaves_old_keys_as_they_are():
    older = BASE.to_json()
    del older["network"]["dueling"], older["value"]["atoms"], older["augment"]
    assert BASE.network.dueling is False
    assert key_of(older) == key_of(BASE.to_json())


def test_true_is_not_one():
    config = BASE.to_json()
    config["env"]["eta"] = True
    other = json.loads(json.dumps(config))
    other["env"]["eta"] = 1
    assert key_of(config) != key_of(other)


EXPERIMENT = """
summary = "two tasks"
[[experiment]]
tasks = ["NoisyRPSChain"]
methods = ["ddqn", "gcr"]
seeds = 3
steps = 4_000
env = { eta = [0.1, 0.5], sigma = [0, 0.5] }
overrides = { replay = { batch_size = 32 }, "network.hidden" = [16] }
[experiment.smoke]
seeds = 1
env = { sigma = 0.5 }
overrides.evaluation.every = 1_000
[[experiment]]
tasks = ["CartPole-v1", "Probe-TwoState"]
methods = ["ddqn"]
seeds = 2
first_seed = 5
steps = { CartPole-v1 = 5_000 }
cpu.skip = true
"""


def test_a_suite_is_the_product_of_its_lists(tmp_path):
    suite = load_suite(suite_file(tmp_path, EXPERIMENT))
    assert (suite.name, suite.scale, suite.summary) == ("small", "full", "two tasks")
    chain = [job.config for job in suite.jobs if job.config.task == "NoisyRPSChain"]
    seen = {(config.env["eta"], config.env["sigma"], config.method) for config in chain}
    expected = {
        (e, s, m) for e in (0.1, 0.5) for s in (0.0, 0.5) for m in ("ddqn", "gcr-soft")
    }  # gcr is a name for gcr-soft
    assert seen == expected and len(chain) == len(expected)
    assert {c.steps for c in chain} == {4_000} and {c.seeds for c in chain} == {(0, 1, 2)}
    assert {c.replay.batch_size for c in chain} == {32}
    assert {c.network.hidden for c in chain} == {(16,)}
    cartpole, probe = (job.config for job in suite.jobs if job.config.task != "NoisyRPSChain")
    assert cartpole.task == "CartPole" and cartpole.steps == 5_000 and cartpole.seeds == (5, 6)
    assert probe == preset("Probe-TwoState", "ddqn", {"seeds": (5, 6)})


def test_a_list_of_first_seeds_is_a_job_for_each_in_one_report(tmp_path):
    listed = SMALL.replace("seeds = 2", "seeds = 2\nfirst_seed = [0, 4]")
    jobs = load_suite(suite_file(tmp_path, listed)).jobs
    assert [job.config.seeds for job in jobs] == [(0, 1), (4, 5)]
    assert {job.report for job in jobs} == {"report"}
    assert [job.name.split(", ")[1] for job in jobs] == ["2 seeds", "2 seeds from 4"]
    later = SMALL.replace("seeds = 2", "seeds = 2\nfirst_seed = 4")
    assert load_suite(suite_file(tmp_path, later)).jobs[0].key == jobs[1].key


def test_scales_change_an_experiment_and_join_its_tables(tmp_path):
    file = suite_file(tmp_path, EXPERIMENT)
    smoke = [j.config for j in load_suite(file, "smoke").jobs if j.config.env.get("eta") == 0.1]
    assert {c.env["sigma"] for c in smoke} == {0.5} and {c.seeds for c in smoke} == {(0,)}
    assert {(c.replay.batch_size, c.evaluation.every) for c in smoke} == {(32, 1_000)}
    assert {job.config.task for job in load_suite(file, "cpu").jobs} == {"NoisyRPSChain"}


def test_jobs_are_chosen_by_word_or_pattern(tmp_path):
    jobs = load_suite(suite_file(tmp_path, EXPERIMENT)).jobs
    assert {j.config.task for j in select(jobs, "CartPole")} == {"CartPole"}
    assert len(select(jobs, "*-gcr-soft-*")) == 4
    assert select(jobs, jobs[0].key) == [jobs[0]]
    with pytest.raises(InputError, match="only: got 'Pong'"):
        select(jobs, "Pong")


def test_names_may_be_patterns(tmp_path):
    text = SMALL.replace('"Probe-TwoState"', '"Probe-*", "!Probe-C*"')
    suite = load_suite(suite_file(tmp_path, text.replace('"ddqn"', '"ddqn", "*dqn"')))
    probes = {name for name in TASKS if name.startswith("Probe-")} - {"Probe-C4", "Probe-Cycle"}
    assert {job.config.task for job in suite.jobs} == probes
    assert {job.config.method for job in suite.jobs} == {n for n in METHODS if n.endswith("dqn")}


SMALL = """
[[experiment]]
tasks = ["Probe-TwoState"]
methods = ["ddqn"]
seeds = 2
"""


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("seeds = 2", "seed = 2"), "'seed'; accepted: did you mean 'seeds'"),
        (("seeds = 2", "seeds = true"), "seeds: got True; accepted: a whole number"),
        (("seeds = 2", f"seeds = {FIRST_TUNING_SEED + 1}"), "seeds below 1000"),
        (('"ddqn"', '"ddqq"'), "did you mean 'ddqn'"),
        (('"ddqn"', '"ddqn", "ddqn"'), "each name once"),
        (('"ddqn"', '"ddqx*"'), "a pattern of dqn, ddqn"),
        (('"Probe-TwoState"', '"Probe-TwoStat"'), "did you mean 'Probe-TwoState'"),
        (("seeds = 2", "seeds = 2\nenv = { horizn = 3 }"), "'horizn'"),
        (("seeds = 2", "seeds = 2\nenv = { horizon = 0 }"), "1 to 1000000"),
        (("seeds = 2", "seeds = 2\nsteps = 0"), "steps: got 0"),
        (("seeds = 2", "seeds = 2\noverrides.seeds = [1]"), "a field that the experiment lacks"),
        (("seeds = 2", "seeds = 2\noverrides.replay.batch_size = 0"), "replay.batch_size: got 0"),
        (("seeds = 2", "seeds = 2\nreport = '../x'"), "it names a folder"),
        (("seeds = 2", "seeds = 2\nskip = true"), "an experiment is not skipped"),
        (("[[experiment]]", "[experiment]"), "one or more"),
        (("seeds = 2", "seeds = "), "a readable TOML file"),
        (("seeds = 2", "seeds = 2" + SMALL.replace("seeds = 2", "seeds = 3")), "one variant"),
        (("seeds = 2", f"seeds = 2{SMALL}first_seed = 2\nsteps = 5_000"), "one variant"),
        (("seeds = 2", "seeds = 2\nfirst_seed = []"), "first_seed: got []"),
        (("seeds = 2", "seeds = 2\nfirst_seed = [0, 1]"), "one variant"),
        (("seeds = 2", "seeds = 2\nfirst_seed = [0, -1]"), "first_seed: got -1"),
        (("seeds = 2", "seeds = 2\nfirst_seed = [0, 999]"), "seeds below 1000"),
    ],
)
def test_a_bad_suite_is_refused_in_one_line(tmp_path, change, complaint):
    assert change[0] in SMALL
    with pytest.raises(InputError) as error:
        load_suite(suite_file(tmp_path, SMALL.replace(*change)))
    assert complaint in str(error.value)


def test_unknown_suites_and_scales_are_refused(tmp_path):
    with pytest.raises(InputError, match="did you mean 'probes'"):
        load_suite("probe")
    with pytest.raises(InputError, match="scale: got 'huge'"):
        load_suite("probes", "huge")


def test_an_experiment_twice_is_one_set_of_jobs(tmp_path):
    assert len(load_suite(suite_file(tmp_path, SMALL + SMALL)).jobs) == 1


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", suite_names())
def test_every_suite_of_the_library_expands(name, scale):
    suite = load_suite(name, scale)
    assert suite.jobs and len({(job.report, job.key) for job in suite.jobs}) == len(suite.jobs)


def test_the_example_of_the_page_is_a_suite(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "bench.md").read_text()
    example = page.split("## A suite's file")[1].split("```toml\n")[1].split("```")[0]
    suite = load_suite(suite_file(tmp_path, example))
    assert len(suite.jobs) == 4 and {job.report for job in suite.jobs} == {"noise"}
    listed = page.split("| suite | what |")[1].split("## ")[0]
    assert all(f"| `{name}` |" in listed for name in suite_names())
