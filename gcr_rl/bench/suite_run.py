"""`gcr bench`: run a suite in a store, keep its index, end with its reports."""

import shlex
import threading
from pathlib import Path
from typing import Any

from gcr_rl.bench.engine import Engine, run_here
from gcr_rl.bench.job import SCHEMA, Job
from gcr_rl.bench.running import list_failures, run_jobs
from gcr_rl.bench.store import Store
from gcr_rl.bench.suite import Suite, load_suite, select
from gcr_rl.report import format_table, load_runs, summarise, write_summary
from gcr_rl.training.run_folder import read_json

DEFAULT_STORE = Path("runs/bench")


def run_suite(
    name: str,
    *,
    out: Path = DEFAULT_STORE,
    scale: str = "full",
    engine: Engine = run_here,
    only: str | None = None,
    retry: bool = False,
    command: str = "",
) -> dict[str, Any]:
    """Bring a suite to its end and report on it; the same call goes on after an interruption.

    ``command`` is what a person who interrupts it is told to go on with. Returns what
    `--json` writes: the index, the reports and the failures.
    """
    suite, store = load_suite(name, scale), Store(out)
    chosen = select(suite.jobs, only)

    def command_of(job: Job) -> str:
        return shlex.join(["gcr", "bench", name, "--scale", scale, "--only", job.key])

    writing = threading.Lock()  # jobs may end at the same time in two threads

    def write_index() -> None:
        with writing:
            store.write_index(suite.label, _about(suite, name), suite.jobs)

    write_index()
    try:
        outcome = run_jobs(
            store, chosen, engine=engine, retry=retry, command_of=command_of,
            after_each=write_index, command=command,
        )  # fmt: skip
    finally:
        write_index()
    reports = _write_reports(store, suite)
    for line in list_failures(chosen, outcome.failed):
        print(line)
    every = len({job.key for job in suite.jobs})
    print(f"{len(_finished(store, suite))} of {every} jobs finished; store: {store.root}")
    return {
        **read_json(store.index_file(suite.label), "store"),
        "index": str(store.index_file(suite.label)),
        "reports": reports,
        "failed": outcome.failed,
    }


def list_suite(name: str, *, out: Path, scale: str, only: str | None) -> dict[str, Any]:
    """Print how each job of a suite stands; nothing is run or written."""
    suite, store = load_suite(name, scale), Store(out)
    records = [store.record(job) for job in select(suite.jobs, only)]
    print(f"{suite.label}: {suite.summary}")
    for record in records:
        reason = f" ({record['reason']})" if record["reason"] else ""
        print(f"{record['status']:<11} {record['key']}  {record['name']}{reason}")
    return {**_about(suite, name), "jobs": records}


def _about(suite: Suite, name: str) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "suite": suite.name,
        "scale": suite.scale,
        "summary": suite.summary,
        "command": shlex.join(["gcr", "bench", name, "--scale", suite.scale]),
    }


def _finished(store: Store, suite: Suite) -> set[str]:
    keys = {job.key for job in suite.jobs}
    return {key for key in keys if store.standing(key).status == "finished"}


def _write_reports(store: Store, suite: Suite) -> dict[str, list[str]]:
    """One report per name that the suite gives, over its finished jobs; printed as tables too."""
    finished, written = _finished(store, suite), {}
    for report in dict.fromkeys(job.report for job in suite.jobs):
        keys = [job.key for job in suite.jobs if job.report == report and job.key in finished]
        if not keys:
            continue
        folders = [store.folder(key) for key in keys]
        runs = load_runs(folders)
        summary = summarise(runs)
        if report != "report":
            print(f"== {report}")
        print(format_table(summary.rows))
        for note in summary.notes:
            print(note)
        out = store.report_folder(suite.label) / report
        written[report] = [str(path) for path in write_summary(summary, runs, out)]
        print(f"report: {out / 'report.html'}")
    for line in _commit_notes(store, finished):
        print(line)
    return written


def _commit_notes(store: Store, finished: set[str]) -> list[str]:
    """A word if the results come from several states of the code."""
    commits = {
        str(read_json(store.folder(key) / "provenance.json", "store").get("commit"))
        for key in finished
    }
    if len(commits) < 2:
        return []
    shown = ", ".join(sorted(commit[:12] for commit in commits))
    return [f"note: these results come from {len(commits)} states of the code: {shown}"]
