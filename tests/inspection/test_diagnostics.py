"""Rows as series, trends and bars."""

import json

import numpy as np
import pytest
from rich.console import Console

from gcr_rl.errors import InputError
from gcr_rl.inspection.diagnostics import (
    Series,
    changes,
    over_seeds,
    read_series,
    sections,
    sparkline,
    trend,
)
from gcr_rl.inspection.table import seeds_table, trends_table


def written(folder, log, evaluation=()):
    for name, rows in (("log", log), ("evaluation", evaluation)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def series(values, steps=None):
    values = np.array(values, float)
    return Series("x", np.arange(len(values)) * 10 if steps is None else np.array(steps), values)


def test_rows_become_series_of_each_seed(tmp_path):
    log = [
        {"step": 10, "seed": 0, "loss": 1.0, "wall_s": 3.0},
        {"step": 10, "seed": 1, "loss": 3.0, "wall_s": 3.0},
        {"step": 20, "seed": 0, "loss": None, "wall_s": 3.0},
        {"step": 20, "seed": 1, "loss": 5.0, "wall_s": 3.0},
    ]
    evaluation = [{"step": 0, "seed": 1, "bellman_residual": 0.5, "returns": [1.0]}]
    found = read_series(written(tmp_path, log, evaluation), (0, 1))
    assert set(found[0]) == {"loss"} and set(found[1]) == {"loss", "bellman_residual"}
    np.testing.assert_array_equal(found[0]["loss"].steps, [10])
    mean = over_seeds(found)
    np.testing.assert_array_equal(mean["loss"].values, [2.0, 5.0])
    np.testing.assert_array_equal(mean["bellman_residual"].values, [0.5])


@pytest.mark.parametrize("row", [[], {"step": 1}, {"step": 1, "seed": 9}, {"step": "1", "seed": 0}])
def test_a_row_that_no_run_wrote_is_refused(tmp_path, row):
    with pytest.raises(InputError, match=r"log\.jsonl"):
        read_series(written(tmp_path, [row]), (0,))


def test_the_middle_is_half_of_the_steps_not_of_the_rows():
    one = trend(series([4.0, 3.0, 2.0, 9.0], steps=[0, 1, 60, 100]))
    assert (one.first, one.middle, one.last) == (4.0, 2.0, 9.0)
    assert (one.least, one.most, one.rows) == (2.0, 9.0, 4)


def test_bars_follow_the_values():
    assert sparkline(np.arange(8.0)) == "▁▂▃▄▅▆▇█"
    assert sparkline(np.array([3.0, 3.0 + 1e-9])) == "▁▁"
    assert sparkline(np.repeat([0.0, 7.0], 50), width=2) == "▁█"
    assert len(sparkline(np.arange(100.0))) == 16


def test_changes_name_the_row_that_shows_them():
    assert changes(series([0, 0, 5, 5, 3])) == [
        {"step": 20, "before": 0.0, "after": 5.0},
        {"step": 40, "before": 5.0, "after": 3.0},
    ]


def test_every_field_has_one_place():
    names = ["new_thing", "latent_alpha", "bellman_residual", "td_loss", "edges_refused"]
    found = sections(names)
    assert found["other"] == ["new_thing"] and found["latent"] == ["latent_alpha"]
    assert sorted(name for part in found.values() for name in part) == sorted(names)


def text_of(table):
    console = Console(width=120, record=True, file=open("/dev/null", "w"))
    console.print(table)
    return console.export_text()


def test_tables_show_numbers_and_bars_only_where_they_can_be_shown():
    found = {"td_loss": series([1.5, 2.5, 3.5]), "exact_return": series([-7.25])}
    text = text_of(trends_table(found, "seed 0"))
    assert "1.5" in text and "2.5" in text and "3.5" in text and "█" in text
    assert "█" not in text_of(trends_table(found, "seed 0", blocks=False))
    last = text_of(seeds_table({0: found, 4: {"td_loss": series([8.5])}}))
    assert "-7.25" in last and "8.5" in last and "-" in last and "2.5" not in last
