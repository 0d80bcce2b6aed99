"""What stands beside the summary: logs, costs, ablations, aggregates, groups and orders."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from run_folders import METHODS, write_inspection, write_rows

from gcr_rl.errors import InputError
from gcr_rl.evaluation import statistics
from gcr_rl.methods import METHODS as OUR_METHODS
from gcr_rl.report import TaskFacts, load_runs, summarise
from gcr_rl.report.ablations import ABLATIONS, ablations
from gcr_rl.report.aggregate import LEVELS, aggregates
from gcr_rl.report.details import collect_details
from gcr_rl.report.logs import FIELDS, read_log
from gcr_rl.report.structure import MOST_NODES, hasse_diagram, recovered_groups

DOCS = Path(__file__).parents[2] / "docs"
UNIT = TaskFacts(threshold=0.5, optimal_return=1.0, random_return=0.0)


def flat(*finals):
    """A curve per seed that stands at its final return."""
    return [[final] * 3 for final in finals]


def score_run(make_run, task, method, *finals, seeds=None):
    return make_run(
        f"{task}-{method}", task=task, method=method, seeds=seeds or tuple(range(len(finals))),
        steps=1000, every=500, curves=flat(*finals), noise=0,
    )  # fmt: skip


def aggregated(folders):
    return aggregates(summarise(load_runs(folders), lambda task, env: UNIT))


# --- logs


def test_fields_are_means_and_ranges_over_seeds(make_run):
    folder = make_run(seeds=(4, 2), steps=1000, every=500)
    write_rows(folder / "log.jsonl", [
        {"step": 500, "seed": 4, "order_violation": 1.0, "td_error_abs": None},
        {"step": 500, "seed": 2, "order_violation": 3.0},
        {"step": 1000, "seed": 4, "order_violation": 5.0},
        {"step": 1000, "seed": 99, "order_violation": 7.0},
    ])  # fmt: skip
    (run,) = load_runs([folder])
    fields = read_log(run).fields
    assert list(fields) == ["bellman_residual", "order_violation"]
    violation = fields["order_violation"]
    np.testing.assert_array_equal(violation.steps, [500, 1000])
    np.testing.assert_array_equal(violation.band.estimate, [2.0, 5.0])
    np.testing.assert_array_equal(violation.band.low, [1.0, 5.0])
    np.testing.assert_array_equal(violation.band.high, [3.0, 5.0])
    residual = fields["bellman_residual"].band
    np.testing.assert_allclose(residual.estimate, run.residual.mean(axis=0))


def test_a_run_without_a_log_has_no_speed(make_run):
    (run,) = load_runs([make_run()])
    log = read_log(run)
    assert (log.steps_per_s, log.wall_s) == (None, None)


@pytest.mark.parametrize("line", ["{broken", "[1]", '{"step": 1}', '{"step": 0.5, "seed": 0}'])
def test_a_corrupt_log_is_named_with_its_line(make_run, line):
    folder = make_run(log=True)
    with open(folder / "log.jsonl", "a") as file:
        file.write(line)
    (run,) = load_runs([folder])
    with pytest.raises(InputError, match=r"log\.jsonl:61"):
        read_log(run)


def test_speed_is_the_median_of_chunks_with_updates(make_run):
    # Of the generated chunks the first makes no update and is fast, the second compiles.
    (run,) = load_runs([make_run(log=True, rate=5000.0)])
    log = read_log(run)
    assert log.steps_per_s == 5000.0
    chunk = 500 * 3 / 5000
    assert log.wall_s == pytest.approx(chunk / 100 + 20 * chunk + 18 * chunk, rel=1e-3)


def test_costs_are_relative_to_double_dqn_of_the_same_size(make_run):
    folders = [
        make_run("base", log=True, rate=6000.0),
        make_run("slow", method="gcr-hard", log=True, rate=2000.0),
        make_run("wide", method="dqn", log=True, rate=6000.0, seeds=(0, 1, 2, 3)),
        make_run("other", task="Else", method="gcr-hard", log=True),
    ]
    runs = load_runs(folders)
    summary = summarise(runs, lambda task, env: TaskFacts())
    first, other = collect_details(summary, runs).costs
    relative = {cost.method: cost.relative for cost in first}
    assert relative == {"ddqn": 1.0, "gcr-hard": 3.0, "dqn": None}
    assert [cost.relative for cost in other] == [None]


def test_fields_of_the_report_are_written_by_training():
    logged = (DOCS / "gcr.md").read_text()
    logged += (DOCS / "training.md").read_text()
    assert [name for name in FIELDS if f"`{name}`" not in logged] == []


# --- ablations


def test_ablations_name_methods_that_exist():
    named = {*ABLATIONS, *(variant for variants in ABLATIONS.values() for variant in variants)}
    assert named <= set(OUR_METHODS)


def test_an_ablation_is_the_paired_difference_over_shared_seeds(make_run):
    folders = [
        score_run(make_run, "A", "gcr-hard", 0.9, 0.8, 0.7),
        score_run(make_run, "A", "sym-only", 0.5, 0.2, seeds=(2, 1)),
        score_run(make_run, "A", "dqn", 0.1),
    ]
    (task,) = summarise(load_runs(folders), lambda task, env: UNIT).tasks
    (found,) = ablations(task)
    assert (found.full, found.variant, found.pairs) == ("gcr-hard", "sym-only", 2)
    assert found.difference.estimate == pytest.approx(((0.5 - 0.7) + (0.2 - 0.8)) / 2)


# --- over tasks


def test_aggregates_by_hand(make_run):
    folders = [
        score_run(make_run, "A", "ddqn", 0.25, 0.75),
        score_run(make_run, "B", "ddqn", 0.5, 0.5),
        score_run(make_run, "A", "dqn", 0.5, 0.5),
        score_run(make_run, "B", "dqn", 0.4, 0.9),
    ]
    (found,), notes = aggregated(folders)
    assert notes == []
    assert found.tasks == ("A", "B")
    scores = {one.method: one for one in found.methods}
    assert scores["ddqn"].iqm.estimate == pytest.approx(0.5)  # of 0.25, 0.5, 0.5, 0.75
    assert scores["dqn"].iqm.estimate == pytest.approx(0.5)  # of 0.4, 0.5, 0.5, 0.9
    at = int(np.flatnonzero(np.isclose(LEVELS, 0.6))[0])
    assert scores["ddqn"].profile.estimate[at] == 0.25
    (pair,) = found.improvements
    # A: 0.25 loses twice and 0.75 wins twice; B: 0.5 wins against 0.4 and loses against 0.9.
    assert pair.probability.estimate == pytest.approx(0.5)
    assert (pair.first, pair.second) == ("ddqn", "dqn")


def test_only_what_all_have_run_is_compared(make_run):
    folders = [
        score_run(make_run, "A", "ddqn", 0.2, 0.3),
        score_run(make_run, "A", "dqn", 0.4, 0.5),
        score_run(make_run, "A", "gcr-hard", 0.8, 0.9),
        score_run(make_run, "B", "ddqn", 0.2, 0.3),
        score_run(make_run, "B", "dqn", 0.1, 0.2),
    ]
    (shared, everywhere), _ = aggregated(folders)
    assert shared.tasks == ("A",) and len(shared.methods) == 3
    assert everywhere.tasks == ("A", "B")
    assert {one.method for one in everywhere.methods} == {"ddqn", "dqn"}


def test_seeds_that_a_task_lacks_are_left_out_and_noted(make_run):
    folders = [
        score_run(make_run, "A", "ddqn", 0.2, 0.3, 0.4),
        score_run(make_run, "B", "ddqn", 0.5, 0.6),
        score_run(make_run, "A", "dqn", 0.1, 0.1),
        score_run(make_run, "B", "dqn", 0.1, 0.1),
    ]
    (found,), notes = aggregated(folders)
    assert {one.method: one.seeds for one in found.methods}["ddqn"] == (0, 1)
    assert len(notes) == 1 and "ddqn is judged on the 2 seed(s)" in notes[0]


def test_tasks_without_an_optimum_have_no_aggregate(make_run):
    folders = [make_run("a"), make_run("b", method="dqn")]
    summary = summarise(load_runs(folders), lambda task, env: TaskFacts())
    assert aggregates(summary) == ([], [])


def test_profiles_are_the_statistics_rooms(make_run):
    folders = [score_run(make_run, "A", method, 0.1, 0.6, 0.9) for method in ("ddqn", "dqn")]
    (found,), _ = aggregated(folders)
    expected = statistics.performance_profile(
        [[0.1], [0.6], [0.9]], LEVELS, seed=0, resamples=2_000
    )
    np.testing.assert_array_equal(found.methods[0].profile.low, expected.low)


# --- groups and orders


def test_groups_are_read_from_the_summary(make_run):
    (run,) = load_runs([make_run(symmetry=True, seeds=(0, 3))])
    found, lost = recovered_groups(run)
    assert (found["name"], found["order"], found["transforms"]) == ("D4", 8, 3)
    assert found["elements"][0]["relabel"] == [2, 3, 1, 0]
    assert (lost["seed"], lost["order"], lost["elements"]) == ("3", 1, [])


@pytest.mark.parametrize("symmetry", [None, 3, [1], {"0": 3}, {"0": {"order": "x"}}, {"0": {}}])
def test_what_is_no_group_is_left_out(make_run, symmetry):
    (run,) = load_runs([make_run()])
    assert recovered_groups(replace(run, summary={"symmetry": symmetry})) == []


def test_a_relabelling_must_be_a_permutation(make_run):
    (run,) = load_runs([make_run()])
    elements = [{"name": "a", "relabel": r} for r in ([0, 0], ["<b>"], 7, [1, 0])]
    summary = {"symmetry": {"0": {"name": "x", "order": 2, "elements": elements}}}
    (found,) = recovered_groups(replace(run, summary=summary))
    assert [one["relabel"] for one in found["elements"]] == [None, None, None, [1, 0]]


def test_an_inspection_inside_the_run_gives_its_diagram(make_run):
    folder = make_run(method="gcr-hard")
    (run,) = load_runs([folder])
    assert hasse_diagram(run) is None
    write_inspection(folder)
    found = hasse_diagram(run)
    height = found["y"]
    assert all(height[upper] > height[lower] for upper, lower in found["covers"])
    assert max(height[5:]) < min(height[:5])  # what is compared with nothing stands below
    assert len({*zip(found["x"], found["y"], strict=True)}) == 9


@pytest.mark.parametrize(
    "change",
    [
        {"nodes": 0}, {"nodes": MOST_NODES + 1}, {"nodes": "9"}, {"labels": []},
        {"values": [None] * 9}, {"covers": [[0, 9]]}, {"covers": [[0]]},
        {"covers": [[0, 1], [1, 0]]},
    ],
)  # fmt: skip
def test_what_is_no_order_is_left_out(make_run, change):
    folder = make_run()
    write_inspection(folder)
    path = folder / "inspection" / "inspection.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "order": {**content["order"], **change}}))
    (run,) = load_runs([folder])
    assert hasse_diagram(run) is None


def test_generated_methods_are_ours():
    assert set(METHODS) <= set(OUR_METHODS)
