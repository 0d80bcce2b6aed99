"""Suites as data, jobs keyed by what determines their results, stores that are never lost."""

from gcr_rl.bench.job import Job, key_of
from gcr_rl.bench.running import Outcome, engine_for, run_jobs, usual_jobs
from gcr_rl.bench.store import Standing, Store
from gcr_rl.bench.suite import Suite, load_suite, select, suite_names
from gcr_rl.bench.suite_run import list_suite, run_suite

__all__ = [
    "Job",
    "Outcome",
    "Standing",
    "Store",
    "Suite",
    "engine_for",
    "key_of",
    "list_suite",
    "load_suite",
    "run_jobs",
    "run_suite",
    "select",
    "suite_names",
    "usual_jobs",
]
