"""Run jobs side by side in worker processes of this machine."""

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from gcr_rl.bench.cores import keep_to, shares_of_cores
from gcr_rl.bench.engine import PATIENCE, CommandOf, Display
from gcr_rl.bench.job import Job
from gcr_rl.bench.store import Store

GRACE = 120.0
"""Seconds that workers get to write their checkpoints after a request to stop."""


class WorkerDied(Exception):
    """The process of a worker ended in the middle of a job."""


def run_in_processes(
    store: Store, jobs: Sequence[Job], command_of: CommandOf, display: Display, count: int
) -> None:
    """Run jobs in ``count`` worker processes; a worker that dies fails its job alone."""
    crew = _Crew(store, command_of, display)
    for job in jobs:
        crew.queue.put(job)
    threads = [
        threading.Thread(target=crew.serve, args=(cores,), daemon=True)
        for cores in shares_of_cores(min(count, len(jobs)))
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():  # with a limit, or signals would have to wait
                thread.join(0.2)
    except BaseException:
        crew.stop()
        deadline = time.monotonic() + GRACE
        try:
            for thread in threads:
                thread.join(max(deadline - time.monotonic(), 0.0))
        finally:
            crew.kill()
        raise
    if crew.errors:
        raise crew.errors[0]


@dataclass
class _Crew:
    """The workers and what is left for them."""

    store: Store
    command_of: CommandOf
    display: Display
    queue: "queue.SimpleQueue[Job]" = field(default_factory=queue.SimpleQueue)
    stopping: threading.Event = field(default_factory=threading.Event)
    workers: "set[Worker]" = field(default_factory=set)
    errors: list[BaseException] = field(default_factory=list)

    def serve(self, cores: Collection[int]) -> None:
        """One thread: hand jobs to a worker of its own until there are none."""
        worker: Worker | None = None
        try:
            while not self.stopping.is_set():
                try:
                    job = self.queue.get_nowait()
                except queue.Empty:
                    return
                worker = worker or self.hire(cores)
                if not self.give(worker, job):
                    worker.kill()
                    worker = None
        except BaseException as error:
            self.errors.append(error)
        finally:
            if worker is not None:
                worker.dismiss()

    def hire(self, cores: Collection[int]) -> "Worker":
        """A new worker process, on these cores if any are named."""
        worker = Worker(self.store)
        keep_to(worker.pid, cores)
        self.workers.add(worker)
        return worker

    def give(self, worker: "Worker", job: Job) -> bool:
        """Have one job done; False if the worker died of it."""
        try:
            answer = worker.run(job, self.command_of(job), self.display)
        except WorkerDied as death:
            if not self.stopping.is_set():
                self.store.note_failure(job.key, str(death), resumable=True)
                self.display.end(job, "failed", str(death))
            return False
        if answer["event"] == "busy":
            self.queue.put(job)
            self.stopping.wait(PATIENCE)
        else:
            self.display.end(job, answer["result"], answer["reason"])
        return True

    def stop(self) -> None:
        """Ask all workers to save what they have and end."""
        self.stopping.set()
        for worker in list(self.workers):
            worker.close_input()

    def kill(self) -> None:
        """End all workers at once."""
        for worker in list(self.workers):
            worker.kill()


class Worker:
    """One worker process, spoken to in lines of JSON."""

    def __init__(self, store: Store) -> None:
        # A device's memory is shared by all workers: none may take most of it beforehand.
        environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **os.environ}
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "gcr_rl.bench.worker", str(store.root)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            env=environment, text=True,
            start_new_session=True,  # Ctrl-C reaches it through us alone
        )  # fmt: skip

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def run(self, job: Job, command: str, display: Display) -> dict[str, Any]:
        """The answer to one job; progress goes to the display."""
        asked = {"config": job.config.to_json(), "command": command}
        reporter = display.begin(job)
        try:
            self._pipe("stdin").write(json.dumps(asked) + "\n")
            self._pipe("stdin").flush()
        except OSError:
            raise WorkerDied(self._last_words()) from None
        for line in self._pipe("stdout"):
            answer: dict[str, Any] = json.loads(line)
            event = answer.pop("event")
            if event in ("end", "busy"):
                return {"event": event, **answer}
            if event == "start":
                reporter.start(job.name, answer["step"], job.config.steps)
            elif event == "update":
                reporter.update(**answer)
            else:
                reporter.say(answer["message"])
        raise WorkerDied(self._last_words())

    def close_input(self) -> None:
        """Ask it to end after what it can save."""
        with contextlib.suppress(OSError, ValueError):
            self._pipe("stdin").close()

    def dismiss(self) -> None:
        """Let it end, and wait for that."""
        self.close_input()
        self._process.wait()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()

    def _pipe(self, name: str) -> IO[str]:
        pipe: IO[str] | None = getattr(self._process, name)
        assert pipe is not None
        return pipe

    def _last_words(self) -> str:
        code = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
        how = f"signal {-code}" if code < 0 else f"code {code}"
        return f"the worker process ended with {how}: {said}"
