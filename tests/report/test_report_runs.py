import json

import numpy as np
import pytest

from gcr_rl.errors import InputError
from gcr_rl.report import load_runs


def edit_rows(folder, change):
    path = folder / "evaluation.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(row) + "\n" for row in change(rows)))


def test_a_run_is_read_as_it_was_written(make_run):
    folder = make_run(seeds=(4, 2), steps=1000, every=500, curves=[[1, 2, 3], [4, 5, 6]], noise=0)
    (run,) = load_runs([folder])
    assert (run.task, run.method, run.seeds, run.budget) == ("Grid", "ddqn", (4, 2), 1000)
    np.testing.assert_array_equal(run.steps, [0, 500, 1000])
    np.testing.assert_allclose(run.sampled, [[1, 2, 3], [4, 5, 6]])
    assert run.exact is None


def test_exact_returns_are_read_only_when_every_row_has_one(make_run):
    whole, partial = make_run("whole", exact=True), make_run("partial", exact=True)
    edit_rows(partial, lambda rows: [{**rows[0], "exact_return": None}, *rows[1:]])
    exact, none = load_runs([str(whole), partial])
    assert exact.exact.shape == exact.sampled.shape
    assert none.exact is None


def test_rows_may_come_in_any_order(make_run):
    folder = make_run()
    (before,) = load_runs([folder])
    edit_rows(folder, lambda rows: rows[::-1])
    (after,) = load_runs([folder])
    np.testing.assert_array_equal(before.sampled, after.sampled)
    assert before.evaluation_sha256 != after.evaluation_sha256


def test_no_paths_and_missing_folders_are_refused(tmp_path):
    with pytest.raises(InputError, match="at least one run folder"):
        load_runs([])
    with pytest.raises(InputError, match="an existing run folder"):
        load_runs([tmp_path / "nowhere"])


def test_an_unfinished_run_is_refused_with_the_way_out(make_run):
    folder = make_run()
    (folder / "summary.json").unlink()
    with pytest.raises(InputError, match="gcr resume"):
        load_runs([folder])


def test_a_failed_run_is_refused_with_its_reason(make_run):
    folder = make_run()
    (folder / "summary.json").write_text('{"status": "failed", "reason": "loss is not finite"}')
    with pytest.raises(InputError, match="failed: loss is not finite"):
        load_runs([folder])
    (folder / "summary.json").write_text("{}")
    with pytest.raises(InputError, match="no status"):
        load_runs([folder])


@pytest.mark.parametrize("name", ["config.json", "provenance.json", "evaluation.jsonl"])
def test_a_missing_file_is_named(make_run, name):
    folder = make_run()
    (folder / name).unlink()
    with pytest.raises(InputError, match=name):
        load_runs([folder])


@pytest.mark.parametrize(
    "name", ["config.json", "provenance.json", "summary.json", "evaluation.jsonl"]
)
@pytest.mark.parametrize("content", [b"{broken", b"[1]", b"\xff\xfe\x00", b"[" * 100_000])
def test_a_corrupt_file_is_named(make_run, name, content):
    folder = make_run()
    (folder / name).write_bytes(content)
    with pytest.raises(InputError, match=name):
        load_runs([folder])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("task", ""),
        ("task", 3),
        ("method", None),
        ("steps", 0),
        ("steps", 1.5),
        ("steps", True),
        ("env", [1]),
        ("seeds", []),
        ("seeds", 3),
        ("seeds", [0, 0]),
        ("seeds", ["a"]),
    ],
)
def test_a_bad_config_names_the_field(make_run, field, value):
    folder = make_run()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, field: value}))
    with pytest.raises(InputError, match=f"config.json: {field}"):
        load_runs([folder])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: [{**rows[0], "returns": []}, *rows[1:]], "jsonl:1: returns"),
        (lambda rows: [rows[0], {**rows[1], "returns": [float("nan")]}], "jsonl:2: returns"),
        (lambda rows: [{**rows[0], "returns": ["1"]}], "returns"),
        (lambda rows: [{**rows[0], "mean_return": 1e6}], "mean_return"),
        (lambda rows: [{**rows[0], "exact_return": float("inf")}], "exact_return"),
        (lambda rows: [{**rows[0], "step": 0.5}], "step"),
        (lambda rows: [{**rows[0], "seed": None}], "seed"),
        (lambda rows: [*rows, rows[0]], "one row per seed and step"),
        (lambda rows: rows[:-1], "no row of seed 2 at step 10000"),
        (lambda rows: [row for row in rows if row["seed"] != 1], "no row of seed 1"),
        (lambda rows: [*rows, {**rows[0], "seed": 99}], r"seeds \[99\]"),
        (lambda rows: [row for row in rows if row["step"]], "one at step 0"),
        (lambda rows: [row for row in rows if not row["step"]], "one later"),
        (lambda rows: [], "no rows"),
    ],
)
def test_a_bad_row_is_named_by_its_place(make_run, change, message):
    folder = make_run()
    edit_rows(folder, change)
    with pytest.raises(InputError, match=message):
        load_runs([folder])


def test_a_half_written_last_line_is_named(make_run):
    folder = make_run()
    path = folder / "evaluation.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InputError, match="jsonl:63"):
        load_runs([folder])


def test_a_single_path_is_a_list_of_one(make_run):
    folder = make_run()
    assert [run.folder for run in load_runs(str(folder))] == [folder]
    assert [run.folder for run in load_runs(folder)] == [folder]
