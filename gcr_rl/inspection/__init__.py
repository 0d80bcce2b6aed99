"""A run looked at from inside: its diagnostics as tables, its group, order and values drawn."""

from pathlib import Path
from typing import Any

from gcr_rl.inspection.files import check_folder, write_findings
from gcr_rl.inspection.findings import Findings, inspect_run
from gcr_rl.inspection.table import show


def inspect_and_show(run: str | Path, seed: int | None, out: Path) -> dict[str, Any]:
    """Inspect a run, print what was found, write the drawings to ``out`` and say where they are.

    Returns the numbers, and the files that were written, as plain data.
    """
    check_folder(out)
    findings = inspect_run(run, seed=seed)
    files = write_findings(findings, out)
    show(findings, seed)
    for path in files:
        print(path)
    return {**findings.data(), "files": [str(path) for path in files]}


__all__ = ["Findings", "inspect_and_show", "inspect_run", "show", "write_findings"]
