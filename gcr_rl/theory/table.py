"""The rows of a measurement as a table for people."""

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from gcr_rl.theory.row import Row

SIGNS = {"at most": "<=", "equal": "=", "at least": ">="}


def as_table(rows: Iterable[Row], width: int = 160) -> Table:
    """One line per guarantee: predicted, measured, tolerance, holds; with the paper's label and
    the measured quantity where the terminal is wide enough."""
    table = Table(title="guarantees, predicted against measured", title_justify="left")
    table.add_column("guarantee", no_wrap=True)
    words = (("paper", 100), ("measured quantity", 130))
    shown = [name for name, least in words if width >= least]
    for name in shown:
        table.add_column(name, overflow="fold")
    for name in ("predicted", "measured", "tolerance"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("holds", no_wrap=True)
    for row in rows:
        told = [row.label, row.what][: len(shown)]
        numbers = (f"{SIGNS[row.relation]} {row.predicted:.4g}", f"{row.measured:.4g}")
        verdict = "yes" if row.holds else "NO"
        table.add_row(row.name, *told, *numbers, f"{row.tolerance:.2g}", verdict)
    return table


def show(rows: Iterable[Row]) -> list[Row]:
    """Measure with a word of progress on a terminal, print the table, return the rows."""
    console, progress = Console(), Console(stderr=True)
    done: list[Row] = []
    with progress.status("measuring ...") as status:
        for row in rows:
            done.append(row)
            status.update(f"measured {len(done)}: {row.name}")
    console.print(as_table(done, console.width))
    return done
