"""What runs on a machine of a Ray cluster: one job, in a worker process with a store of its own."""

import os
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

import gcr_rl
from gcr_rl.bench.archive import pack
from gcr_rl.bench.job import Job
from gcr_rl.bench.processes import Worker, WorkerDied
from gcr_rl.bench.store import Store, has_begun
from gcr_rl.config import Config
from gcr_rl.training import checkpoint
from gcr_rl.training.run_folder import read_json

LONGEST_WAIT = 1.0
"""Seconds that a question for news waits for some."""


class RayWorker:
    """An actor. Its job runs in a process of its own, which ends when this one does."""

    def __init__(self, environment: dict[str, str]) -> None:
        for name, value in environment.items():
            os.environ.setdefault(name, value)
        cache = Path.home() / ".cache" / "gcr_rl" / "jax"
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache))
        root = str(Path(gcr_rl.__file__).parents[1])  # the process imports what this one did
        os.environ["PYTHONPATH"] = os.pathsep.join(
            [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        )
        self._place = Path(tempfile.mkdtemp(prefix="gcr-ray-"))
        self._store = Store(self._place)
        self._news = _News()
        self._key = ""
        self._worker: Worker | None = None
        self._stopping = False
        self._end: dict[str, Any] | None = None

    def begin(self, version: str, config: dict[str, Any], command: str, run: bytes | None) -> None:
        """Start the job, from the packed ``run`` if there is one."""
        try:
            if version != gcr_rl.__version__:
                raise ValueError(f"gcr-rl is {gcr_rl.__version__} here and {version} there")
            job = Job(Config.from_json(config))
            self._key = job.key
            if run is not None:
                with self._store.claim(job.key):
                    self._store.receive(job.key, run)
            self._worker = Worker(self._store)
        except Exception as error:  # told as the end of the job, not of this actor
            self._conclude("failed", f"{type(error).__name__}: {error}", resumable=True)
            return
        threading.Thread(target=self._work, args=(job, command), daemon=True).start()

    def news(self) -> dict[str, Any]:
        """What has happened since the last question, the newest checkpoint and, once, the end."""
        self._news.wait()
        return {
            "events": self._news.take(),
            "checkpoint": max(self._checkpoints(), default=-1),
            "end": self._end,
        }

    def files(self) -> bytes | None:
        """The run: all its files once it has ended, before that what it needs to go on."""
        folder = self._store.folder(self._key)
        return pack(folder, ended=self._end is not None) if has_begun(folder) else None

    def stop(self) -> None:
        """Ask the job to write a checkpoint and end."""
        self._stopping = True
        if self._worker is not None:
            self._worker.close_input()

    def clear(self) -> None:
        """Remove what it has on this machine."""
        shutil.rmtree(self._place, ignore_errors=True)

    def _checkpoints(self) -> list[int]:
        return checkpoint.steps(self._store.folder(self._key) / "checkpoints")

    def _work(self, job: Job, command: str) -> None:
        assert self._worker is not None
        try:
            answer = self._worker.run(job, command, self._news)
        except WorkerDied as death:
            self._conclude("stopped" if self._stopping else "failed", str(death), resumable=True)
            return
        except Exception as error:
            self._conclude("failed", f"{type(error).__name__}: {error}", resumable=True)
            return
        self._worker.dismiss()
        note = self._place / "failures" / f"{job.key}.json"
        resumable = note.exists() and read_json(note, "store").get("resumable") is True
        self._conclude(answer["result"], answer["reason"], resumable=resumable)

    def _conclude(self, result: str, reason: str, *, resumable: bool) -> None:
        self._end = {
            "result": result, "reason": reason, "resumable": resumable, "place": str(self._place)
        }  # fmt: skip
        self._news.wake()


class _News:
    """A display and reporter that keeps what it hears until it is asked."""

    def __init__(self) -> None:
        self._events: list[tuple[str, dict[str, Any]]] = []
        self._lock, self._some = threading.Lock(), threading.Event()

    def wait(self) -> None:
        """Until there is something, or for a while."""
        self._some.wait(LONGEST_WAIT)
        self._some.clear()

    def wake(self) -> None:
        """End the waiting."""
        self._some.set()

    def take(self) -> list[tuple[str, dict[str, Any]]]:
        """What was heard since the last time."""
        with self._lock:
            events, self._events = self._events, []
        return events

    def begin(self, job: Job) -> "_News":
        """The job begins."""
        return self

    def end(self, job: Job, result: Any, reason: str) -> None:
        """Told by the worker's answer."""

    def start(self, label: str, step: int, total: int) -> None:
        """The run begins or goes on."""
        self._hear("start", {"label": label, "step": step, "total": total})

    def update(self, step: int, mean_return: float | None, loss: float | None) -> None:
        """The run has reached ``step``."""
        self._hear("update", {"step": step, "mean_return": mean_return, "loss": loss})

    def say(self, message: str) -> None:
        """One line."""
        self._hear("say", {"message": message})

    def stop(self) -> None:
        """Told by the worker's answer."""

    def _hear(self, event: str, content: dict[str, Any]) -> None:
        with self._lock:
            if event == "update" and self._events and self._events[-1][0] == "update":
                self._events.pop()  # only the newest matters
            self._events.append((event, content))
        self._some.set()
