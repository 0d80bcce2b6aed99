import numpy as np
import pytest

from gcr_rl.errors import InputError
from gcr_rl.evaluation import metrics, statistics
from gcr_rl.report import TaskFacts, load_runs, summarise, task_facts

SEEDS = tuple(range(8))
FACTS = TaskFacts(threshold=-60.0, optimal_return=-10.0, random_return=-200.0)


def known(task, env):
    return FACTS


def unknown(task, env):
    return TaskFacts()


def test_a_row_is_what_evaluation_says(make_run):
    folder = make_run(seeds=SEEDS)
    (run,) = load_runs([folder])
    (row,) = summarise([run], known).rows
    curve = metrics.Curve(run.steps, run.sampled, run.seeds)
    final = metrics.final_return(curve, 10_000)
    assert row.auc_by_seed == pytest.approx(metrics.auc(curve, 10_000))
    assert row.auc == statistics.mean_interval(metrics.auc(curve, 10_000), seed=0)
    assert row.mean_training_return.estimate == pytest.approx(row.auc.estimate / 10_000)
    assert row.final == statistics.mean_interval(final, seed=0)
    assert (row.std, row.worst) == (pytest.approx(final.std(ddof=1)), final.min())
    assert row.normalised.estimate == pytest.approx((final.mean() + 200) / 190)
    assert row.to_threshold.median == metrics.steps_to_threshold(curve, -60, 10_000).median
    assert row.comparison is None


def test_exact_returns_are_preferred(make_run):
    summary = summarise(load_runs([make_run(exact=True, noise=50)]), unknown)
    (task,) = summary.tasks
    assert task.exact
    assert task.rows[0].std == 0.0
    assert (task.rows[0].normalised, task.rows[0].to_threshold) == (None, None)


def test_one_run_without_exact_returns_makes_all_sampled(make_run):
    runs = load_runs([make_run("a", exact=True), make_run("b", method="dqn")])
    summary = summarise(runs, unknown)
    assert not summary.tasks[0].exact
    assert any("sampled episodes are used for all" in note for note in summary.notes)


def test_seeds_of_several_folders_merge_in_order(make_run):
    together = make_run("together", method="dqn", seeds=(0, 1, 2, 3))
    parts = [make_run("late", seeds=(3, 2)), make_run("early", seeds=(0, 1))]
    rows = {row.method: row for row in summarise(load_runs([together, *parts]), known).rows}
    assert rows["ddqn"].seeds == (0, 1, 2, 3)
    assert rows["ddqn"].auc_by_seed == pytest.approx(rows["dqn"].auc_by_seed)


def test_a_seed_that_comes_twice_names_both_folders(make_run):
    runs = load_runs([make_run("one", seeds=(0, 1)), make_run("two", seeds=(1, 2))])
    with pytest.raises(InputError, match=r"seed 1 in both .*one and .*two"):
        summarise(runs, known)


def test_merged_runs_need_one_evaluation_interval(make_run):
    runs = load_runs([make_run("one", every=500), make_run("two", seeds=(7,), every=1000)])
    with pytest.raises(InputError, match=r"one and .*two were evaluated at different steps"):
        summarise(runs, known)


def test_merged_runs_with_other_settings_are_noted(make_run):
    one = make_run("one", optimiser={"learning_rate": 1e-3}, run={"keep": 1})
    two = make_run("two", seeds=(7,), optimiser={"learning_rate": 1e-4}, run={"keep": 2})
    summary = summarise(load_runs([one, two]), known)
    assert any("merged runs differ in optimiser (" in note for note in summary.notes)


def test_environment_options_make_another_task(make_run):
    runs = load_runs([make_run("a"), make_run("b", env={"p_asym": 0.1})])
    labels = [task.label for task in summarise(runs, known).tasks]
    assert labels == ["Grid", "Grid (p_asym=0.1)"]


def test_runs_of_different_length_are_judged_at_the_common_budget(make_run):
    short = make_run("short", steps=5000, speed=1.5, seeds=SEEDS)
    long = make_run("long", method="dqn", steps=10_000, speed=3.0, seeds=SEEDS)
    summary = summarise(load_runs([short, long]), known)
    first, second = summary.rows
    assert first.budget == second.budget == 5000
    assert first.auc_by_seed == pytest.approx(second.auc_by_seed)
    assert first.final == pytest.approx(second.final)
    assert any("judged up to step 5,000" in note for note in summary.notes)


def test_different_evaluation_intervals_are_noted(make_run):
    runs = load_runs([make_run("a", every=500), make_run("b", method="dqn", every=1000)])
    assert any("different steps" in note for note in summarise(runs, known).notes)


def test_each_method_meets_the_best_of_the_others(make_run):
    speeds = {"slow": 1.0, "fast": 6.0, "middle": 3.0}
    runs = load_runs([make_run(m, method=m, speed=s, seeds=SEEDS) for m, s in speeds.items()])
    summary = summarise(runs, known)
    assert [row.method for row in summary.rows] == ["fast", "middle", "slow"]
    references = [row.comparison.reference for row in summary.rows]
    assert references == ["middle", "fast", "fast"]
    # All 8 seeds point one way, p = 2/256; fast-middle is one test, so Holm counts two.
    assert summary.tests == 2
    assert [row.comparison.p_value for row in summary.rows] == [2 / 256] * 3
    assert [row.comparison.p_holm for row in summary.rows] == [4 / 256] * 3
    assert [row.comparison.better for row in summary.rows] == [True, False, False]
    assert [row.comparison.worse for row in summary.rows] == [False, True, True]


def test_holm_runs_over_all_tasks_of_the_report(make_run):
    runs = [
        make_run(f"{task}-{method}", task=task, method=method, speed=speed, seeds=SEEDS)
        for task in ("A", "B", "C")
        for method, speed in (("dqn", 1.0), ("ddqn", 4.0))
    ]
    summary = summarise(load_runs(runs), known)
    assert summary.tests == 3
    assert {row.comparison.p_holm for row in summary.rows} == {6 / 256}


def test_unequal_seeds_are_not_tested_and_noted(make_run):
    runs = load_runs([make_run("a", seeds=(0, 1, 2)), make_run("b", method="dqn", seeds=(0, 1))])
    summary = summarise(runs, known)
    assert [row.comparison for row in summary.rows] == [None, None]
    assert summary.notes == ("Grid: ddqn and dqn have different seeds, so no paired test",)


def test_too_few_seeds_to_show_anything_is_noted(make_run):
    runs = load_runs([make_run("a"), make_run("b", method="dqn", speed=9.0)])
    (note,) = summarise(runs, known).notes
    assert note == (
        "3 paired seeds cannot show a difference at p < 0.05: the smallest p value there is 0.25"
    )


def test_a_single_seed_has_a_row_without_intervals(make_run):
    (row,) = summarise(load_runs([make_run(seeds=(5,))]), known).rows
    assert np.isfinite(row.auc.estimate)
    assert np.isnan(row.auc.low)
    assert np.isnan(row.std)


def test_a_task_that_is_not_known_still_gets_a_row(make_run):
    def refuse(task, env):
        raise InputError("task", task, "another name")

    summary = summarise(load_runs([make_run()]), refuse)
    assert summary.rows[0].normalised is None
    assert "threshold and optimum unknown" in summary.notes[0]


def test_facts_of_our_tasks_come_from_the_environments():
    facts = task_facts("RotMirrorGrid", {})
    assert facts.optimal_return == pytest.approx(-13.72, abs=0.01)
    assert facts.random_return < facts.threshold < facts.optimal_return
    assert task_facts("gym:Acrobot-v1", {}) == TaskFacts()


def test_a_task_where_play_cannot_matter_has_no_normalised_score(make_run):
    runs = load_runs([make_run()])
    (row,) = summarise(runs, lambda task, env: TaskFacts(None, -1.0, -1.0)).rows
    assert row.normalised is None


def test_notes_are_fit_to_print(make_run):
    runs = load_runs(
        [make_run("a", task="G\x1b[31m\n"), make_run("b", task="G\x1b[31m\n", method="m")]
    )
    assert all(note.isprintable() for note in summarise(runs, known).notes)
    assert summarise(runs, known).notes
