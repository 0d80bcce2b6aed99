import json
import os
import struct
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

from gcr_rl.errors import InputError
from gcr_rl.report import TaskFacts, load_runs, write_report
from gcr_rl.report.figures import method_styles, spread

SEEDS = tuple(range(6))


def facts(task, env):
    return TaskFacts(threshold=-60.0, optimal_return=-10.0, random_return=-200.0)


def write(runs, out):
    return write_report(runs, out, facts_of=facts)


@pytest.fixture
def two_methods(make_run):
    return [
        make_run("first", seeds=SEEDS, speed=6.0),
        make_run("second", method="dqn", seeds=SEEDS, speed=1.0),
    ]


def test_a_report_has_its_page_index_and_figures(two_methods, tmp_path):
    out = tmp_path / "deep" / "report"
    written = write(two_methods, out)
    kinds = ("pdf", "png", "svg")
    names = sorted(
        [f"{stem}.{kind}" for stem in ("curves-grid", "scores-grid", "profiles") for kind in kinds]
        + ["report.html", "report.json", "report.md", "table.md", "table.tex"]
    )
    assert sorted(path.name for path in written) == names
    assert sorted(path.name for path in out.iterdir()) == names
    page = (out / "report.md").read_text()
    assert "(curves-grid.png)" in page
    assert "Holm-corrected over the 1 test of this report" in page
    assert "†" in page
    assert "`gcr train Grid --method dqn`" in page


def test_the_figures_are_images(two_methods, tmp_path):
    write(two_methods, tmp_path / "out")
    for stem in ("curves-grid", "scores-grid", "profiles"):
        png, svg, pdf = (
            (tmp_path / "out" / f"{stem}.{kind}").read_bytes() for kind in ("png", "svg", "pdf")
        )
        assert png[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = struct.unpack(">II", png[16:24])
        assert width > 1000
        assert height > 300
        assert ElementTree.fromstring(svg).tag.endswith("svg")
        assert pdf.startswith(b"%PDF-") and b"CreationDate" not in pdf


def test_the_same_runs_give_the_same_bytes(two_methods, tmp_path):
    first, second = write(two_methods, tmp_path / "a"), write(two_methods, tmp_path / "b")
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


def test_pyplot_is_never_imported(two_methods, tmp_path):
    before = "matplotlib.pyplot" in sys.modules
    write(two_methods, tmp_path / "out")
    assert ("matplotlib.pyplot" in sys.modules) == before


def test_the_index_holds_every_number_and_where_it_came_from(two_methods, tmp_path):
    write(two_methods, tmp_path / "out")
    index = json.loads((tmp_path / "out" / "report.json").read_text())
    runs = load_runs(two_methods)
    assert [row["method"] for row in index["rows"]] == ["ddqn", "dqn"]
    row = index["rows"][0]
    assert len(row["auc_by_seed"]) == len(row["final_by_seed"]) == len(SEEDS)
    assert row["auc"]["estimate"] == pytest.approx(np.mean(row["auc_by_seed"]))
    assert row["to_threshold"]["reached"] == [True] * 6
    assert row["comparison"]["p_value"] == 2 / 64
    (figure,) = index["figures"]
    assert figure["files"] == ["curves-grid.png", "curves-grid.svg", "curves-grid.pdf"]
    curve = figure["curves"][1]
    source = index["runs"][curve["runs"][0]]
    assert source["rows"] == str(two_methods[1] / "evaluation.jsonl")
    assert source["rows_sha256"] == runs[1].evaluation_sha256
    assert source["config"] == json.loads((two_methods[1] / "config.json").read_text())
    assert source["command"] == "gcr train Grid --method dqn"
    assert curve["estimate"] == pytest.approx(runs[1].sampled.mean(axis=0))
    assert index["settings"]["smoothing_window"] == 5


def test_the_page_says_when_returns_are_exact(make_run, tmp_path):
    write([make_run(exact=True)], tmp_path / "exact")
    assert "exact expected returns" in (tmp_path / "exact" / "report.md").read_text()
    write([make_run("sampled")], tmp_path / "sampled")
    assert "sampled evaluation episodes" in (tmp_path / "sampled" / "report.md").read_text()


def test_a_single_seed_gives_valid_json_and_a_figure(make_run, tmp_path):
    write([make_run(seeds=(3,))], tmp_path / "out")
    text = (tmp_path / "out" / "report.json").read_text()
    assert "NaN" not in text
    assert json.loads(text)["rows"][0]["auc"]["low"] is None


def test_nasty_names_stay_text(make_run, tmp_path):
    name = "a|b\n<script>alert(1)</script> $\\frac{$ `x` ../../etc"
    write([make_run(task=name, method=name)], tmp_path / "out")
    page = (tmp_path / "out" / "report.md").read_text()
    assert "<script" not in page
    (svg,) = (tmp_path / "out").glob("curves-*.svg")
    assert b"<script" not in svg.read_bytes()
    assert svg.name == "curves-a-b-script-alert-1-script-frac-x-..-..-etc.svg"


def test_tasks_whose_names_look_alike_get_their_own_figures(make_run, tmp_path):
    written = write([make_run("a", task="A/B"), make_run("b", task="A B")], tmp_path / "out")
    pictures = [path.name for path in written if path.suffix == ".png"]
    assert pictures == ["curves-a-b-2.png", "curves-a-b.png", "scores-a-b-2.png", "scores-a-b.png"]


def test_names_that_differ_in_case_only_do_not_share_a_file(make_run, tmp_path):
    written = write([make_run("a", task="Grid"), make_run("b", task="grid")], tmp_path / "out")
    assert len({path.name.lower() for path in written}) == len(written)


def test_a_report_can_be_written_again(two_methods, tmp_path):
    out = tmp_path / "out"
    write(two_methods, out)
    before = (out / "report.md").read_text()
    write(two_methods[:1], out)
    assert (out / "report.md").read_text() != before


def test_figures_of_an_earlier_report_stay_ours(make_run, tmp_path):
    out = tmp_path / "out"
    grid, maze = make_run("grid"), make_run("maze", task="Maze")
    for runs in ([grid], [maze], [grid]):
        write(runs, out)
    index = json.loads((out / "report.json").read_text())
    kinds = ("pdf", "png", "svg")
    assert index["earlier_files"] == [
        f"{stem}-maze.{kind}" for stem in ("curves", "scores") for kind in kinds
    ]


@pytest.mark.parametrize(
    "name", ["report.md", "report.json", "report.html", "curves-grid.svg", "table.tex"]
)
def test_a_file_of_somebody_else_is_never_overwritten(two_methods, tmp_path, name):
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text('{"mine": true}')
    with pytest.raises(InputError, match=name):
        write(two_methods, out)
    assert [path.name for path in out.iterdir()] == [name]
    assert (out / name).read_text() == '{"mine": true}'


def test_files_beside_the_report_are_left_alone(two_methods, tmp_path):
    out = two_methods[0]
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    write(two_methods, out)
    assert all((out / name).read_bytes() == content for name, content in before.items())


def test_an_interrupted_report_can_be_written_again(two_methods, tmp_path, monkeypatch):
    out = tmp_path / "out"
    replace, calls = os.replace, []

    def fail_later(source, target):
        calls.append(target)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail_later)
    with pytest.raises(InputError, match="No space left"):
        write(two_methods, out)
    assert not list(out.glob(".*"))
    monkeypatch.undo()
    assert len(write(two_methods, out)) == 14


def test_a_target_that_cannot_be_written_is_refused(two_methods, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="out"):
        write(two_methods, tmp_path / "file")
    with pytest.raises(InputError, match="out"):
        write(two_methods, tmp_path / "file" / "below")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_refused(two_methods, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(InputError, match="writable"):
        write(two_methods, tmp_path / "locked" / "out")


def test_bad_runs_write_nothing(two_methods, tmp_path):
    (two_methods[1] / "summary.json").unlink()
    with pytest.raises(InputError):
        write(two_methods, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_methods_look_different_from_each_other():
    styles = method_styles([f"m{i}" for i in range(20)])
    assert len({str(style) for style in styles.values()}) == 20
    assert method_styles(["b", "a"]) == method_styles(["a", "b"])
    assert len({style["color"] for style in list(styles.values())[:14]}) == 14
    assert list(method_styles(["zzz", "gcr-hard", "aaa", "dqn"])) == [
        "dqn",
        "gcr-hard",
        "aaa",
        "zzz",
    ]


def test_labels_are_moved_apart_and_keep_their_order():
    np.testing.assert_allclose(spread(np.array([0.5, 0.5]), 0.1), [0.45, 0.55])
    np.testing.assert_allclose(spread(np.array([0.9, 0.1]), 0.1), [0.9, 0.1])
    moved = spread(np.array([0.98, 0.99, 1.0, 0.2]), 0.1)
    np.testing.assert_allclose(moved, [0.8, 0.9, 1.0, 0.2])
    crowd = spread(np.full(40, 0.7), 0.1)
    assert 0 <= crowd.min() <= crowd.max() <= 1 + 1e-9
    assert (np.diff(np.sort(crowd)) > 0.02).all()
