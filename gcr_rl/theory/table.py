"""The rows of a measurement as a table for people."""

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from gcr_rl.theory.row import Row

SIGNS = {"at most": "<=", "equal": "=", "at least": ">="}


def as_table(rows: Iterable[Row]) -> Table:
    """One line per guarantee: what is measured, predicted, measured, tolerance, holds."""
    table = Table(title="guarantees, predicted against measured", title_justify="left")
    for name in ("guarantee", "paper", "measured quantity"):
        table.add_column(name, overflow="fold")
    for name in ("predicted", "measured", "tolerance"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("holds")
    for row in rows:
        numbers = (f"{SIGNS[row.relation]} {row.predicted:.4g}", f"{row.measured:.4g}")
        verdict = "yes" if row.holds else "NO"
        table.add_row(row.name, row.label, row.what, *numbers, f"{row.tolerance:.1g}", verdict)
    return table


def show(rows: Iterable[Row]) -> list[Row]:
    """Measure with a word of progress on a terminal, print the table, return the rows."""
    console, progress = Console(), Console(stderr=True)
    done: list[Row] = []
    with progress.status("measuring ...") as status:
        for row in rows:
            done.append(row)
            status.update(f"measured {len(done)}: {row.name}")
    console.print(as_table(done))
    return done
