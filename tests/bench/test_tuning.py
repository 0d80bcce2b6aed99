"""The search: the same trials every time, on seeds of its own, ranked as it says."""

import json
import math
import shutil
import tomllib
from pathlib import Path

import pytest

from gcr_rl import cli
from gcr_rl.bench import Outcome, suite_names, tuning
from gcr_rl.bench.space import Range, load_space, parse_space
from gcr_rl.bench.suite import FIRST_TUNING_SEED, SCALES, load_suite
from gcr_rl.bench.tables import packaged
from gcr_rl.errors import InputError, RunFailed
from gcr_rl.methods import METHODS
from gcr_rl.presets import METHOD_PRESETS, TASK_PRESETS, preset

SPACE = {
    "trials": 8, "seeds": 2, "rungs": 3,
    "fields": {
        "optimiser.learning_rate": {"log": [1e-4, 1e-2]},
        "replay.batch_size": {"choices": [32, 64]},
        "network.hidden": {"choices": [[8], [8, 8]]},
    },
    "methods": {"gcr-*": {"order.noise_z": {"uniform": [0, 2]}}},
}  # fmt: skip


def search(method="ddqn", **changes):
    base = preset("Probe-TwoState", method, {"steps": 2_000})
    space = parse_space({**SPACE, **changes}, Path("space.toml"), method)
    return tuning.Search(base, space, first_seed=2_000, search_seed=0)


def rate_of(job):
    return job.config.optimiser.learning_rate


@pytest.fixture
def pretended(monkeypatch):
    """Runs that cost nothing: the best learning rate is 1e-3, every seed adds its own noise."""
    ran, broken = [], set()

    def run(store, jobs, **_):
        jobs = list(jobs)
        ran.append(jobs)
        failed = {job.key: "loss is not finite" for job in jobs if rate_of(job) in broken}
        return Outcome(tuple(job.key for job in jobs if job.key not in failed), failed)

    def summary(folder):
        job = next(job for jobs in ran for job in jobs if job.key == folder.name)
        final = [-abs(math.log(rate_of(job) / 1e-3)) + 0.01 * (s % 7 - 3) for s in job.config.seeds]
        return {
            "seeds": list(job.config.seeds),
            "final_return": {"per_seed": final},
            "mean_training_return": {"per_seed": final},
        }

    monkeypatch.setattr(tuning, "run_jobs", run)
    monkeypatch.setattr(tuning, "read_summary", summary)
    return ran, broken


def test_each_rung_halves_the_trials_and_doubles_their_seeds(pretended, tmp_path):
    ran, _ = pretended
    trials = tuning.run_search(search(), out=tmp_path)
    assert [len(jobs) for jobs in ran] == [8, 4, 2]
    seeds = [{job.config.seeds for job in jobs} for jobs in ran]
    assert seeds == [{(2000, 2001)}, {(2002, 2003)}, {(2004, 2005, 2006, 2007)}]
    assert [len(trial.seeds) for trial in trials] == [8, 8, 4, 4, 2, 2, 2, 2]
    assert trials[0].number == 0  # the preset's rate is 1e-3
    distances = [abs(math.log(t.values["optimiser.learning_rate"] / 1e-3)) for t in trials[1:]]
    assert distances[0] == min(distances)


def test_the_same_search_draws_the_same_jobs(pretended, tmp_path):
    ran, _ = pretended
    for _ in range(2):
        tuning.run_search(search(), out=tmp_path)
    assert [[job.key for job in jobs] for jobs in ran[:3]] == [
        [job.key for job in jobs] for jobs in ran[3:]
    ]
    drawn = {tuple(sorted(trial.values.items())) for trial in search().trials()}
    assert len(drawn) == 8 and search().trials()[0].values == {}


def test_a_field_that_is_added_leaves_the_other_values_alone():
    plain, more = search("ddqn").trials(), search("gcr-hard").trials()
    for one, other in zip(plain[1:], more[1:], strict=True):
        assert set(other.values) - set(one.values) == {"order.noise_z"}
        assert one.values.items() <= other.values.items()


def test_a_failed_trial_is_last_and_goes_no_further(pretended, tmp_path):
    ran, broken = pretended
    victim = search().trials()[3]
    broken.add(victim.values["optimiser.learning_rate"])
    trials = tuning.run_search(search(), out=tmp_path)
    assert trials[-1].number == 3 and trials[-1].reason == "loss is not finite"
    assert "failed" in tuning.format_trials(trials).splitlines()[-1]
    assert all(rate_of(job) not in broken for jobs in ran[1:] for job in jobs)
    broken |= {rate_of(job) for job in ran[0]}
    with pytest.raises(RunFailed, match="no trial finished"):
        tuning.run_search(search(), out=tmp_path)


def test_ranking_is_by_mean_then_worst_then_training():
    def trial(number, final, training):
        return tuning.Trial(number, {}, (0, 1), final, (training, training))

    ranked = tuning.rank(
        [
            trial(0, (1.0, 3.0), 9.0),
            trial(1, (2.0, 2.0), 1.0),
            trial(2, (2.0, 2.0), 5.0),
            trial(3, (4.0, 1.0), 0.0),
            trial(4, (2.0, 2.0), 5.0),
        ]
    )
    assert [t.number for t in ranked] == [3, 2, 4, 1, 0]


def test_a_draw_that_could_not_run_is_drawn_again():
    fields = {"replay.batch_size": {"choices": [32, 20_000]}}  # above the capacity
    assert {t.values["replay.batch_size"] for t in search(fields=fields).trials()[1:]} == {32}
    fields = {"replay.batch_size": {"choices": [20_000]}}
    with pytest.raises(InputError, match="space: got 'trial 1"):
        search(fields=fields).trials()


def test_ranges_cover_what_they_say():
    log, line = Range("log", (1e-4, 1e-2)), Range("uniform", (-1.0, 3.0))
    assert (log.at(0.0), log.at(0.5)) == (1e-4, 1e-3) and log.at(1 - 1e-9) <= 1e-2
    assert (line.at(0.0), line.at(0.5)) == (-1.0, 1.0)
    chosen = [Range("choices", (1, 2, 3)).at(u / 300) for u in range(300)]
    assert [chosen.count(v) for v in (1, 2, 3)] == [100, 100, 100]
    drawn = [search().space.draw(0, trial)["replay.batch_size"] for trial in range(400)]
    assert 140 < drawn.count(32) < 260  # seven standard deviations of a fair coin


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"trails": 3}, "did you mean 'trials'"),
        ({"trials": 0}, "trials: got 0"),
        ({"fields": {}}, "one field to tune"),
        ({"fields": {"replay.batch": {"choices": [1]}}}, "replay.batch_size"),
        ({"fields": {"seeds": {"choices": [[1]]}}}, "configuration field"),
        ({"fields": {"value.discount": {"log": [0, 1]}}}, "above 0"),
        ({"fields": {"value.discount": {"log": [1, 0.5]}}}, "the lower one first"),
        ({"fields": {"value.discount": {"lin": [0, 1]}}}, "one of log, uniform, choices"),
        ({"fields": {"value.discount": 0.9}}, "a table"),
        ({"fields": {"value.discount": {"choices": []}}}, "a list of values"),
    ],
)
def test_a_bad_space_is_refused(changes, complaint):
    with pytest.raises(InputError) as error:
        search(**changes)
    assert complaint in str(error.value)


def test_seeds_of_reports_and_rungs_without_trials_are_refused():
    with pytest.raises(InputError, match="first_seed: got 999"):
        tuning.make_search("CartPole", "ddqn", first_seed=FIRST_TUNING_SEED - 1)
    with pytest.raises(InputError, match="rungs: got 4"):
        tuning.make_search("CartPole", "ddqn", trials=7, rungs=4)
    with pytest.raises(InputError, match="a task with a space"):
        tuning.make_search("Probe-C4", "ddqn")
    with pytest.raises(InputError, match="trials: got 0"):
        tuning.make_search("CartPole", "ddqn", trials=0)


@pytest.mark.parametrize("name", suite_names())
def test_no_suite_reports_on_seeds_that_tuning_may_use(name):
    for scale in SCALES:
        seeds = {seed for job in load_suite(name, scale).jobs for seed in job.config.seeds}
        assert max(seeds) < FIRST_TUNING_SEED


@pytest.mark.parametrize("task", packaged("spaces"))
@pytest.mark.parametrize("method", METHODS)
def test_every_space_of_the_library_can_be_searched_by_every_method(task, method):
    made = tuning.make_search(task, method)
    same = load_space(task, "ddqn")
    numbers = (made.space.trials, made.space.seeds, made.space.rungs)
    assert numbers == (same.trials, same.seeds, same.rungs)
    assert len(made.trials()) == made.space.trials


def test_the_chosen_values_are_printed_as_the_presets_take_them():
    made = tuning.make_search("RotMirrorGrid", "gcr")
    best = tuning.Trial(1, {"network.hidden": (32,), "value.loss": "huber"})
    namespace = {"METHOD_PRESETS": {}}
    exec(tuning.format_preset(made, best), namespace)
    (place, values), *_ = namespace["METHOD_PRESETS"].items()
    before = METHOD_PRESETS[place]
    assert place == ("RotMirrorGrid", "gcr-soft") and set(before) <= set(values)
    assert values["network.hidden"] == (32,) and "RotMirrorGrid" in TASK_PRESETS
    assert preset("RotMirrorGrid", "gcr", values).value.loss == "huber"


@pytest.mark.slow
def test_gcr_tune_runs_and_goes_on(tmp_path, capsys):
    space = tmp_path / "space.toml"
    space.write_text(
        'trials = 2\nseeds = 1\n[fields]\n"network.hidden" = { choices = [[8]] }\n'
        '"run.log_every" = { choices = [500] }\n'
    )
    words = ["tune", "Probe-TwoState", "ddqn", "--space", str(space), "--budget-steps", "2000",
             "--out", str(tmp_path / "store"), "--json", str(tmp_path / "result.json")]  # fmt: skip
    cli.main(words)
    first, result = capsys.readouterr().out, json.loads((tmp_path / "result.json").read_text())
    assert "METHOD_PRESETS" in first and len(result["ranking"]) == 2
    assert result["best"]["seeds"] == [2000]
    runs = sorted((tmp_path / "store" / "jobs").iterdir())
    shutil.rmtree(runs[0])
    started = (runs[1] / "provenance.json").read_text()
    cli.main(words)
    assert capsys.readouterr().out == first
    assert (runs[1] / "provenance.json").read_text() == started
    assert json.loads(started)["command"].startswith("gcr tune Probe-TwoState ddqn")


def test_the_example_of_the_page_is_a_space():
    page = (Path(__file__).parents[2] / "docs" / "bench.md").read_text()
    example = page.split("## Tuning")[1].split("```toml\n")[1].split("```")[0]
    space = parse_space(tomllib.loads(example), Path("bench.md"), "gcr-hard")
    assert "order.horizons" in space.ranges and space.trials == 24
