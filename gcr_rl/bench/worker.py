"""A worker process: jobs come as lines of JSON on standard input, progress goes out as such.

``python -m gcr_rl.bench.worker STORE``. A closed input asks it to stop: it writes a checkpoint
and ends, so no worker outlives the process that started it.
"""

import contextlib
import json
import os
import queue
import signal
import sys
import threading
from pathlib import Path
from typing import IO, Any

from gcr_rl.bench.engine import run_job
from gcr_rl.bench.job import Job
from gcr_rl.bench.store import Busy, Store
from gcr_rl.config import Config
from gcr_rl.training import Interrupted


class _Lines:
    """Progress of a run as lines of JSON."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out

    def send(self, event: str, **content: Any) -> None:
        """One line."""
        with contextlib.suppress(OSError):  # nobody listens any more: the input is closed too
            self._out.write(json.dumps({"event": event, **content}) + "\n")
            self._out.flush()

    def start(self, label: str, step: int, total: int) -> None:
        """The run begins or goes on."""
        self.send("start", step=step)

    def update(self, step: int, mean_return: float | None, loss: float | None) -> None:
        """The run has reached ``step``."""
        self.send("update", step=step, mean_return=mean_return, loss=loss)

    def say(self, message: str) -> None:
        """One line for the person in front of the screen."""
        self.send("say", message=message)

    def stop(self) -> None:
        """The end is told by the result."""


def main() -> None:
    """Work until the input is closed."""
    store, lines = Store(Path(sys.argv[1])), _Lines(_private_output())
    jobs: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_listen, args=(jobs,), daemon=True).start()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # outside a run there is nothing to save
    while (line := jobs.get()) is not None:
        asked = json.loads(line)
        job = Job(Config.from_json(asked["config"]))
        try:
            result, reason = run_job(store, job, asked["command"], lines)
        except Busy:
            lines.send("busy")
        except Interrupted:
            break
        else:
            lines.send("end", result=result, reason=reason)


def _listen(jobs: "queue.Queue[str | None]") -> None:
    for line in sys.stdin:
        jobs.put(line)
    jobs.put(None)
    os.kill(os.getpid(), signal.SIGTERM)  # a run under way saves itself and stops


def _private_output() -> IO[str]:
    """Standard output for our lines alone; what libraries print goes to standard error."""
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return lines


if __name__ == "__main__":
    main()
