"""Findings for a terminal: tables, and a few lines on what a table cannot say."""

from collections.abc import Iterator, Mapping

from rich.console import Console
from rich.table import Table

from gcr_rl.inspection.diagnostics import Series, over_seeds, sections, sparkline, trend
from gcr_rl.inspection.findings import Findings, symmetry_changes

_PER_SEED = (
    "exact_return", "mean_return", "bellman_residual", "td_loss", "loss",
    "order_violation", "order_coverage", "edges_refused", "symmetry_in_force",
)  # fmt: skip


def show(findings: Findings, seed: int | None, console: Console | None = None) -> None:
    """Print one seed's trends, or without ``seed`` the means over seeds and a line per seed."""
    console = console or Console()
    blocks = (console.encoding or "").lower().startswith("utf")
    console.print(_heading(findings), highlight=False, markup=False, soft_wrap=True)
    if seed is not None or len(findings.series) == 1:
        shown = findings.snapshot.seed
        console.print(trends_table(findings.series[shown], f"seed {shown}", blocks))
    else:
        title = f"mean over {len(findings.series)} seeds"
        console.print(trends_table(over_seeds(findings.series), title, blocks))
        console.print(seeds_table(findings.series))
    for line in lines(findings, seed):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _heading(findings: Findings) -> str:
    snapshot = findings.snapshot
    at = f"checkpoint at step {snapshot.step:,} of {snapshot.config.steps:,}"
    return (
        f"{snapshot.path}: {snapshot.config.task}, {snapshot.config.method}, "
        f"{len(snapshot.config.seeds)} seed(s), {findings.status}, {at}"
    )


def trends_table(found: Mapping[str, Series], title: str, blocks: bool = True) -> Table:
    """A line per field: first, middle and last value, and the course between them."""
    table = Table(title=title, title_justify="left")
    table.add_column("field", no_wrap=True)
    for name in ("first", "middle", "last"):
        table.add_column(name, justify="right", no_wrap=True)
    if blocks:
        table.add_column("course", no_wrap=True)
    for heading, names in sections(found).items():
        table.add_section()
        table.add_row(f"[bold]{heading}[/bold]")
        for name in names:
            one = trend(found[name])
            numbers = [_number(value) for value in (one.first, one.middle, one.last)]
            course = [sparkline(found[name].values)] if blocks else []
            table.add_row(f"  {name}", *numbers, *course)
    return table


def seeds_table(series: Mapping[int, Mapping[str, Series]]) -> Table:
    """The last value of the fields that people ask for first, a line per seed."""
    names = [name for name in _PER_SEED if any(name in found for found in series.values())]
    for better, other in (("exact_return", "mean_return"), ("td_loss", "loss")):
        if better in names:
            names = [name for name in names if name != other]
    table = Table(title="last row of each seed", title_justify="left")
    table.add_column("seed", justify="right")
    for name in names:
        table.add_column(name.replace("_", " "), justify="right")
    for seed, found in series.items():
        cells = [_number(found[n].values[-1]) if n in found else "-" for n in names]
        table.add_row(str(seed), *cells)
    return table


def lines(findings: Findings, seed: int | None) -> Iterator[str]:
    """Symmetry and when, the order of a batch, the value map, and what is missing."""
    drawn = findings.snapshot.seed
    for one in findings.series if seed is None else [drawn]:
        yield from _symmetry_events(findings, one)
    symmetry = findings.symmetry
    if symmetry is not None and "elements" in symmetry:
        yield (
            f"seed {drawn}: group {symmetry['name']} of order {symmetry['order']}, "
            f"{len(symmetry['elements'])} transforms in force, {symmetry['revoked']} revocation(s)"
        )
        for element in symmetry["elements"]:
            certified = element["status"] == "certified"
            until = f", certified at {element['certified_at']:,}" if certified else ", provisional"
            yield f"  {element['name']}: in force since step {element['accepted_at']:,}{until}"
    if findings.batch_order is not None:
        order = findings.batch_order
        what = "states" if order["states_named"] else "slots"
        yield (
            f"seed {drawn}: order on {order['nodes']} {what}: {order['edges_proposed']} "
            f"comparisons, {order['edges_kept']} kept, {order['edges_refused']} refused; poset of "
            f"size {order['size']}, width {order['width']}, height {order['height']}"
        )
    if findings.values is not None:
        values = findings.values
        yield (
            f"seed {drawn}: greedy action optimal in {values['greedy_action_optimal']:.0%} of "
            f"{values['cells']} cells; |max Q - max Q*| {values['mean_value_error']:.4g} on "
            f"average, {values['largest_value_error']:.4g} at most"
        )
    if findings.value_variance is not None:
        variance = findings.value_variance
        steps = ", ".join(f"{step:,}" for step in variance["checkpoints"])
        yield (
            f"seed {drawn}: variance of max Q over the checkpoints {steps}: "
            f"{variance['variance']:.4g}, mean over {variance['states']} states"
        )
    yield from findings.remarks


def _symmetry_events(findings: Findings, seed: int) -> Iterator[str]:
    for name, moves in symmetry_changes(findings.series[seed]).items():
        if moves:
            told = ", ".join(
                f"{move['before']:.0f} to {move['after']:.0f} by {move['step']:,}" for move in moves
            )
            yield f"seed {seed}: {name} {told}"


def _number(value: float) -> str:
    return f"{value:.4g}"
