from dataclasses import replace

import numpy as np
import pytest

from gcr_rl.evaluation.metrics import StepsToThreshold
from gcr_rl.evaluation.statistics import Interval
from gcr_rl.report import Comparison, MethodRow, format_table, latex_table, markdown_table
from gcr_rl.report.escaping import clean, escape_latex, escape_markdown
from gcr_rl.report.text import format_interval, format_number

REACHED = StepsToThreshold(np.array([4000.0, 6000.0]), np.array([True, True]), 5000.0, False)
CENSORED = StepsToThreshold(np.array([4000.0, 9000.0]), np.array([True, False]), 6500.0, True)


def row(method="ddqn", value=-50.0, task="Grid", **changes):
    interval = Interval(value, value - 1, value + 1)
    base = MethodRow(
        task=task,
        method=method,
        seeds=(0, 1),
        budget=9000,
        auc_by_seed=(value * 9000,) * 2,
        auc=Interval(value * 9000, (value - 1) * 9000, (value + 1) * 9000),
        mean_training_return=interval,
        to_threshold=REACHED,
        final_by_seed=(value, value),
        final=interval,
        std=1.5,
        worst=value,
        normalised=Interval(0.5, 0.4, 0.6),
        comparison=None,
    )
    return replace(base, **changes)


def cells(line):
    return [cell.strip() for cell in line.replace(r"\|", "¦").strip("|").split("|")]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0.000"),
        (0.98765, "0.988"),
        (-13.724, "-13.72"),
        (430.51, "430.5"),
        (-4321.4, "-4321"),
        (123456.0, "123.5k"),
        (-4_680_000.0, "-4.680M"),
        (45_300_000.0, "45.30M"),
        (2.5e9, "2.500G"),
        (float("nan"), "n/a"),
    ],
)
def test_numbers_keep_the_digits_that_matter(value, shown):
    assert format_number(value) == shown


def test_an_interval_without_ends_is_its_estimate():
    assert format_interval(Interval(1.5, float("nan"), float("nan"))) == "1.50"
    assert format_interval(None) == "–"


def test_markdown_table_has_a_cell_per_column():
    header, rule, line = markdown_table([row()]).splitlines()
    assert cells(header)[:5] == ["task", "method", "seeds", "steps", "AUC@N"]
    assert len(cells(header)) == len(cells(rule)) == len(cells(line))
    assert cells(line)[:5] == ["Grid", "ddqn", "2", "9,000", r"-450.0k \[-459.0k, -441.0k\]"]
    assert cells(line)[6] == "5,000 (2/2)"


def test_best_is_bold_and_second_best_of_three_is_italic():
    rows = [row("a", -10.0), row("b", -20.0), row("c", -30.0)]
    final = [cells(line)[7] for line in markdown_table(rows).splitlines()[2:]]
    assert final[0].startswith("**-10.00")
    assert final[0].endswith("**")
    assert final[1].startswith("*-20.00")
    assert final[2].startswith("-30.00")


def test_of_two_methods_only_the_best_is_marked():
    worst = [
        cells(line)[9] for line in markdown_table([row("a", -1.0), row("b", -2.0)]).splitlines()[2:]
    ]
    assert worst == ["**-1.00**", "-2.00"]


def test_marks_are_per_task_and_a_lone_method_or_a_tie_has_none():
    rows = [row("a", -1.0, "A"), row("a", -9.0, "B"), row("b", -9.0, "B")]
    assert "**" not in markdown_table(rows)


def test_a_censored_median_is_a_lower_bound_and_never_the_best():
    rows = [row("a", to_threshold=CENSORED), row("b", to_threshold=REACHED)]
    first, second = (cells(line)[6] for line in markdown_table(rows).splitlines()[2:])
    assert (first, second) == ("≥ 6,500 (1/2)", "**5,000 (2/2)**")


@pytest.mark.parametrize(
    ("difference", "p_holm", "shown"),
    [
        (5.0, 0.01, "0.010 vs dqn †"),
        (-5.0, 0.01, "0.010 vs dqn ‡"),
        (5.0, 0.05, "0.050 vs dqn"),
        (5.0, 0.00012, "1.2e-04 vs dqn †"),
    ],
)
def test_a_dagger_needs_a_corrected_p_below_five_per_cent(difference, p_holm, shown):
    tested = row(comparison=Comparison("dqn", difference, 0.001, p_holm, 8))
    assert cells(markdown_table([tested]).splitlines()[2])[-1] == shown


NASTY = "x | y\n| z <script>alert(1)</script> `a` *b* _c_ [l](u) & \x1b[31mred\u202e"


def test_names_cannot_break_the_markdown_table():
    lines = markdown_table([row(NASTY, task=NASTY)]).splitlines()
    assert len(lines) == 3
    assert len(cells(lines[2])) == len(cells(lines[0]))
    assert "<script" not in lines[2]
    assert "\x1b" not in lines[2]
    assert escape_markdown("a|b*c") == r"a\|b\*c"
    assert escape_markdown("<b>&") == "&lt;b&gt;&amp;"


def test_names_cannot_reach_the_terminal():
    text = format_table([row(NASTY, task=NASTY)])
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert len(text.splitlines()) == 4


def test_long_names_are_cut():
    assert clean("m" * 500, 10) == "mmmmmmmmm…"


def test_terminal_table_is_aligned_and_marked():
    rows = [row("gcr", -10.0), row("ddqn", -20.0), row("dqn", -30.0)]
    title, header, rule, *body = format_table(rows).splitlines()
    assert title == "Grid, 9,000 steps"
    start = header.index("final return")
    assert rule[start - 2 : start + 1] == "  -"
    shown = [line[start:].split("  ")[0] for line in body]
    assert shown == [
        "-10.00 [-11.00, -9.00] *",
        "-20.00 [-21.00, -19.00] +",
        "-30.00 [-31.00, -29.00]",
    ]


def test_terminal_table_leaves_out_columns_that_nobody_has():
    text = format_table([row(to_threshold=None, normalised=None)])
    assert "threshold" not in text
    assert "score" not in text
    assert "p (Holm)" not in text


def test_no_rows_is_no_table():
    assert format_table([]).strip() == ""


def test_latex_table_is_booktabs_with_its_marks():
    rows = [row("a", -10.0), row("b", -20.0), row("c", -30.0)]
    lines = latex_table(rows).splitlines()
    assert lines[1].startswith("\\begin{tabular}{llr") and lines[-1] == "\\end{tabular}"
    assert [line for line in lines if "rule" in line] == ["\\toprule", "\\midrule", "\\bottomrule"]
    body = [line for line in lines if line.endswith("\\\\")]
    assert len({line.count(" & ") for line in body}) == 1
    assert "\\textbf{$-$10.00 {[}$-$11.00, $-$9.00{]}}" in body[1]
    assert "\\textit{$-$20.00" in body[2]
    assert "\\text" not in body[3]


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        (r"\input{x}", r"\textbackslash{}input\{x\}"),
        ("50% & $x_1^2$ ~#", r"50\% \& \$x\_1\textasciicircum{}2\$ \textasciitilde{}\#"),
        ("-3.5 to -1e-04", "$-$3.5 to $-$1e-04"),
        ("gcr-hard", "gcr-hard"),
        ("≥ 5 †", r"$\geq$ 5 \dag{}"),
        ("a\nb", "a b"),
    ],
)
def test_latex_sets_names_as_they_are(text, escaped):
    assert escape_latex(text) == escaped


def test_names_cannot_break_the_latex_table():
    lines = latex_table([row(NASTY + r" \\ \end{tabular} % gone", task=NASTY)]).splitlines()
    assert len(lines) == 8
    assert lines[5].replace(r"\&", "").count("&") == lines[3].count("&")
    assert r"\end{tabular}" not in lines[5]
