"""Rows -> Markdown, LaTeX and plain text. Names come from run folders and are never trusted."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from gcr_rl.evaluation.statistics import Interval
from gcr_rl.report.escaping import clean, escape_latex, escape_markdown
from gcr_rl.report.summary import MethodRow


def format_number(value: float) -> str:
    """Three to five significant digits; millions and billions by their letter."""
    if not math.isfinite(value):
        return "n/a"
    size = abs(value)
    for scale, smallest, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e3, 1e5, "k")):
        if size >= smallest:
            decimals = 3 if size < 10 * scale else 2 if size < 100 * scale else 1
            return f"{value / scale:.{decimals}f}{letter}"
    if size >= 1000:
        return f"{value:.0f}"
    return f"{value:.{1 if size >= 100 else 2 if size >= 1 else 3}f}"


def format_interval(interval: Interval | None) -> str:
    """``mean [low, high]``; the mean alone where there is no interval."""
    if interval is None:
        return "–"
    mean = format_number(interval.estimate)
    if not math.isfinite(interval.low):
        return mean
    return f"{mean} [{format_number(interval.low)}, {format_number(interval.high)}]"


def format_steps(row: MethodRow) -> str:
    """Median steps to the threshold and how many seeds got there; ``≥`` marks a lower bound."""
    if row.to_threshold is None:
        return "–"
    reached, of = int(row.to_threshold.reached.sum()), len(row.seeds)
    bound = "≥ " if row.to_threshold.median_censored else ""
    return f"{bound}{row.to_threshold.median:,.0f} ({reached}/{of})"


def format_test(row: MethodRow) -> str:
    """Holm-corrected p value, the reference, † significantly better, ‡ significantly worse."""
    test = row.comparison
    if test is None:
        return "–"
    mark = " †" if test.better else " ‡" if test.worse else ""
    value = f"{test.p_holm:.3f}" if test.p_holm >= 0.001 else f"{test.p_holm:.1e}"
    return f"{value} vs {test.reference}{mark}"


def _format_score(row: MethodRow) -> str:
    return "–" if row.normalised is None else format_number(row.normalised.estimate)


@dataclass(frozen=True)
class _Column:
    title: str
    text: Callable[[MethodRow], str]
    merit: Callable[[MethodRow], float | None] | None = None
    """Larger is better, None is never marked; without it the column has no best."""


def _steps_merit(row: MethodRow) -> float | None:
    if row.to_threshold is None or row.to_threshold.median_censored:
        return None
    return -row.to_threshold.median


_SCORE = "normalised score"
_METHOD = _Column("method", lambda row: row.method)
_SEEDS = _Column("seeds", lambda row: str(len(row.seeds)))
_MEASURED = (
    _Column(
        "mean return over training",
        lambda row: format_interval(row.mean_training_return),
        lambda row: row.mean_training_return.estimate,
    ),
    _Column("steps to threshold", format_steps, _steps_merit),
    _Column("final return", lambda row: format_interval(row.final), lambda row: row.final.estimate),
    _Column("std", lambda row: format_number(row.std)),
    _Column("worst seed", lambda row: format_number(row.worst), lambda row: row.worst),
    _Column(
        _SCORE,
        lambda row: format_interval(row.normalised),
        lambda row: None if row.normalised is None else row.normalised.estimate,
    ),
    _Column("p (Holm)", format_test),
)
_MARKDOWN_COLUMNS = (
    _Column("task", lambda row: row.task),
    _METHOD,
    _SEEDS,
    _Column("steps", lambda row: f"{row.budget:,}"),
    _Column("AUC@N", lambda row: format_interval(row.auc), lambda row: row.auc.estimate),
    *_MEASURED,
)
# A terminal is narrow: AUC@N, N times the mean return, and one interval are left to the page.
_TERMINAL_COLUMNS = (
    _METHOD,
    _SEEDS,
    *(
        replace(column, title="score", text=_format_score) if column.title == _SCORE else column
        for column in _MEASURED
    ),
)


class Cell(NamedTuple):
    """What stands in a cell, not escaped yet; ``rank`` 1 is best of its task, 2 second best."""

    text: str
    rank: int


TITLES = tuple(column.title for column in _MARKDOWN_COLUMNS)
"""Titles of the columns of every written table: Markdown, LaTeX and the page."""


def table_cells(rows: Iterable[MethodRow]) -> list[list[list[Cell]]]:
    """[task][method][column], in the order of :data:`TITLES`."""
    return [
        [
            [Cell(c.text(group[place]), _rank(c, group, place)) for c in _MARKDOWN_COLUMNS]
            for place in range(len(group))
        ]
        for group in _by_task(rows)
    ]


def markdown_table(rows: Iterable[MethodRow]) -> str:
    """The table, rows of a task together; best of a task bold, second best in italics."""
    lines = ["| " + " | ".join(TITLES) + " |", "|" + "|".join("---" for _ in TITLES) + "|"]
    for group in table_cells(rows):
        for line in group:
            marks = [("", "**", "*")[cell.rank] for cell in line]
            cells = [
                f"{mark}{escape_markdown(cell.text)}{mark}"
                for cell, mark in zip(line, marks, strict=True)
            ]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def latex_table(rows: Iterable[MethodRow]) -> str:
    """A booktabs table, the tasks set apart; best of a task bold, second best in italics.

    It needs ``\\usepackage{booktabs}``.
    """
    lines = [
        "% needs \\usepackage{booktabs}",
        f"\\begin{{tabular}}{{ll{'r' * (len(TITLES) - 2)}}}",
        "\\toprule",
        " & ".join(map(escape_latex, TITLES)) + r" \\",
    ]
    for group in table_cells(rows):
        lines.append("\\midrule")
        for line in group:
            commands = [("{}", "\\textbf{{{}}}", "\\textit{{{}}}")[cell.rank] for cell in line]
            cells = [
                command.format(escape_latex(cell.text))
                for cell, command in zip(line, commands, strict=True)
            ]
            lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"]) + "\n"


def format_table(rows: Iterable[MethodRow]) -> str:
    """Plain aligned text for a terminal: a block per task, ``*`` best, ``+`` second best."""
    blocks = []
    for group in _by_task(rows):
        table = [[column.title for column in _TERMINAL_COLUMNS]]
        for place in range(len(group)):
            table.append(
                [
                    clean(column.text(group[place])) + ("", " *", " +")[_rank(column, group, place)]
                    for column in _TERMINAL_COLUMNS
                ]
            )
        kept = [column for column in zip(*table, strict=True) if set(column[1:]) != {"–"}]
        widths = [max(map(len, column)) for column in kept]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in zip(*kept, strict=True)
        ]
        title = f"{clean(group[0].task)}, {group[0].budget:,} steps"
        rule = "  ".join("-" * width for width in widths)
        blocks.append("\n".join([title, lines[0], rule, *lines[1:]]))
    return "\n\n".join(blocks) + "\n"


def _by_task(rows: Iterable[MethodRow]) -> list[list[MethodRow]]:
    groups: dict[str, list[MethodRow]] = {}
    for row in rows:
        groups.setdefault(row.task, []).append(row)
    return list(groups.values())


def _rank(column: _Column, group: Sequence[MethodRow], place: int) -> int:
    """1 best, 2 second best, 0 neither. Of two methods the second is the worst: no mark."""
    if column.merit is None or len(group) < 2:
        return 0
    merits = [column.merit(row) for row in group]
    mine = merits[place]
    values = sorted({merit for merit in merits if merit is not None}, reverse=True)
    if mine is None or len(set(merits)) < 2:
        return 0
    rank = values.index(mine) + 1
    return rank if rank == 1 or (rank == 2 and len(group) > 2) else 0
