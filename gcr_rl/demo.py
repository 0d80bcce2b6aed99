"""`make demo`: the main job on one screen, two methods on RotMirrorGrid and a report.

Each method trains in a process of its own, so that two cores are used. What is finished
is kept: a second demo only reports, an interrupted one goes on where it stopped.
"""

import os
import subprocess
import sys
from pathlib import Path

METHODS = ("ddqn", "gcr-hard")
FOLDER = Path("runs/demo")
# Less than the presets' budget, network and updates, and the same for both: two cores, minutes.
OPTIONS = [
    "RotMirrorGrid", "--steps", "20000", "--seeds", "4", "--network.hidden", "128", "128",
    "--loop.updates", "1", "--exploration.fraction", "0.3", "--evaluation.every", "1000",
]  # fmt: skip


def command_for(method: str) -> list[str] | None:
    """What is left to do for ``method``: train, resume or nothing."""
    run = FOLDER / method
    gcr = [sys.executable, "-m", "gcr_rl.cli"]
    if (run / "summary.json").exists():
        return None
    if (run / "config.json").exists():
        return [*gcr, "resume", str(run)]
    return [*gcr, "train", *OPTIONS, "--method", method, "--out", str(run)]


def main() -> int:
    """Train what is missing, then report; 0 if all went well."""
    print(f"{' and '.join(METHODS)} on RotMirrorGrid (return -200 worst, -13.72 optimal)")
    commands = [command for command in map(command_for, METHODS) if command]
    # Two bars would draw over each other: lines of progress instead.
    environment = {**os.environ, "TTY_COMPATIBLE": "0"}
    processes = [subprocess.Popen(command, env=environment) for command in commands]
    try:
        failed = [code for process in processes if (code := process.wait())]
    except KeyboardInterrupt:
        for process in processes:
            process.wait()  # they received the interrupt too, and write their checkpoints
        print("interrupted; `make demo` goes on where it stopped", file=sys.stderr)
        return 130
    if failed:
        return failed[0]
    runs = [str(FOLDER / method) for method in METHODS]
    out = FOLDER / "report"
    report = [sys.executable, "-m", "gcr_rl.cli", "report", *runs, "--out", str(out)]
    return subprocess.run(report).returncode


if __name__ == "__main__":
    raise SystemExit(main())
