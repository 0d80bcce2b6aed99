"""A store: a folder with one run folder per job. What is in it decides what is left to do.

jobs/KEY/            the run folder of a job, written by training/
failures/KEY.json    why the newest attempt at a job ended without a result
failed/KEY-N/        run folders of failed attempts that were tried again
locks/KEY            held while a process works on the job
incoming/KEY         a run that another machine sent, before it takes its place
suites/LABEL.json    the index of a suite: its jobs and how they stand
reports/LABEL/       its reports

Nothing but the run folders is needed to go on: the index is written for people and programs
that look on.
"""

import fcntl
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gcr_rl.bench.archive import unpack
from gcr_rl.bench.job import Job, key_of
from gcr_rl.errors import InputError
from gcr_rl.training.run_folder import read_json, read_summary, write_json

Status = Literal["waiting", "interrupted", "finished", "failed"]


@dataclass(frozen=True)
class Standing:
    """How a job stands; ``reason`` says why it failed."""

    status: Status
    reason: str = ""


class Busy(Exception):
    """Another process works on the job."""


@dataclass(frozen=True)
class Store:
    """The folder ``root``; nothing is made before it is needed."""

    root: Path

    def folder(self, key: str) -> Path:
        """The run folder of a job."""
        return self.root / "jobs" / key

    def index_file(self, label: str) -> Path:
        """The index of a suite."""
        return self.root / "suites" / f"{label}.json"

    def report_folder(self, label: str) -> Path:
        """Where the reports of a suite go."""
        return self.root / "reports" / label

    def standing(self, key: str) -> Standing:
        """How the job stands, read from its files."""
        failure = self.root / "failures" / f"{key}.json"
        folder = self.folder(key)
        if (folder / "summary.json").exists():
            _check_owner(folder, key)
            summary = read_summary(folder)
            if summary["status"] == "finished":
                return Standing("finished")
            return Standing("failed", str(summary["reason"]))
        if failure.exists():
            return Standing("failed", str(read_json(failure, "store").get("reason", "unknown")))
        return Standing("interrupted" if has_begun(folder) else "waiting")

    def note_failure(self, key: str, reason: str, *, resumable: bool) -> None:
        """Remember why the job has no result, and whether its run could go on."""
        path = self.root / "failures" / f"{key}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        note = {"key": key, "reason": " ".join(reason.split()), "resumable": resumable}
        write_json(path, note)

    def forgive(self, key: str) -> None:
        """Make a failed job one that is left to do; a run that cannot go on is put aside."""
        failure, folder = self.root / "failures" / f"{key}.json", self.folder(key)
        goes_on = failure.exists() and read_json(failure, "store").get("resumable") is True
        if folder.exists() and ((folder / "summary.json").exists() or not goes_on):
            aside = self.root / "failed"
            aside.mkdir(parents=True, exist_ok=True)
            number = 1
            while (aside / f"{key}-{number}").exists():
                number += 1
            folder.rename(aside / f"{key}-{number}")
        failure.unlink(missing_ok=True)

    @contextmanager
    def claim(self, key: str) -> Iterator[Path]:
        """The run folder of a job, for this process alone; raises :class:`Busy`.

        A folder that a kill left without its configuration or provenance holds no result yet:
        it is emptied.
        """
        locks = self.root / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        with open(locks / key, "a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Busy(key) from None
            folder = self.folder(key)
            folder.parent.mkdir(parents=True, exist_ok=True)
            self._settle(key)
            if folder.exists() and not has_begun(folder):
                shutil.rmtree(folder)
            if folder.exists():
                _check_owner(folder, key)
            yield folder

    def receive(self, key: str, data: bytes) -> None:
        """Put a packed run in the place of the job's run folder, which the caller has claimed.

        As a whole: a kill at any moment leaves the old run or the new one.
        """
        incoming, folder = self.root / "incoming", self.folder(key)
        staged, replaced = incoming / key, incoming / f"{key}.replaced"
        self._settle(key)
        unpack(data, staged)
        _check_owner(staged, key)
        if folder.exists():
            folder.rename(replaced)
        staged.rename(folder)
        shutil.rmtree(replaced, ignore_errors=True)

    def _settle(self, key: str) -> None:
        """Undo what a kill in the middle of :meth:`receive` left."""
        incoming, folder = self.root / "incoming", self.folder(key)
        staged, replaced = incoming / key, incoming / f"{key}.replaced"
        if replaced.exists() and not folder.exists():
            replaced.rename(folder)
        for rest in (staged, replaced):
            if rest.exists():
                shutil.rmtree(rest)

    def write_index(self, label: str, about: Mapping[str, Any], jobs: Iterable[Job]) -> None:
        """Write how every job of a suite stands, as a whole."""
        path = self.index_file(label)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {**about, "jobs": [self.record(job) for job in jobs]})

    def record(self, job: Job) -> dict[str, Any]:
        """What the index says of a job."""
        standing = self.standing(job.key)
        return {
            "key": job.key,
            "name": job.name,
            "task": job.config.task,
            "env": job.config.env,
            "method": job.config.method,
            "seeds": list(job.config.seeds),
            "steps": job.config.steps,
            "report": job.report,
            "status": standing.status,
            "reason": standing.reason,
            "folder": str(self.folder(job.key)),
        }


def has_begun(folder: Path) -> bool:
    """Whether training wrote down what it is about to do."""
    return (folder / "config.json").exists() and (folder / "provenance.json").exists()


def _check_owner(folder: Path, key: str) -> None:
    """Refuse a folder whose configuration is not that of the job it is named after."""
    found = key_of(read_json(folder / "config.json", "store"))
    if found != key:
        raise InputError("store", str(folder), f"the run of this job (config.json is of {found})")
