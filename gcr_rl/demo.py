"""`make demo`: the main job on one screen, two methods on RotMirrorGrid and a report.

Each method trains in a process of its own, so that two cores are used. What is finished
is kept: a second demo only reports, an interrupted one goes on where it stopped. Runs of other
settings (of an earlier version, say) stay where they are, and new ones go beside them.
"""

import os
import subprocess
import sys
from pathlib import Path

from gcr_rl.bench import key_of
from gcr_rl.errors import InputError
from gcr_rl.presets import preset
from gcr_rl.training.run_folder import read_json

METHODS = ("ddqn", "gcr-hard")
FOLDER = Path("runs/demo")
# Less than the presets' budget, network and updates, and the same for both: two cores, minutes.
SETTINGS = {
    "steps": 20_000, "seeds": (0, 1, 2, 3), "network.hidden": (128, 128), "loop.updates": 1,
    "exploration.fraction": 0.3, "evaluation.every": 1_000,
}  # fmt: skip


def options() -> list[str]:
    """These settings as words of `gcr train`."""
    words = ["RotMirrorGrid"]
    for name, value in SETTINGS.items():
        several = value if isinstance(value, tuple) else (value,)
        words += [f"--{name}", *map(str, (len(several),) if name == "seeds" else several)]
    return words


def folder_of(method: str) -> Path:
    """The first folder that is free or holds a run of these settings."""
    wanted = key_of(preset("RotMirrorGrid", method, SETTINGS).to_json())
    run, number = FOLDER / method, 1
    while (run / "config.json").exists() and key_in(run) != wanted:
        print(f"{run} has other settings and stays as it is")
        number += 1
        run = FOLDER / f"{method}-{number}"
    return run


def key_in(run: Path) -> str | None:
    """The key of a run's settings; None where they cannot be read."""
    try:
        return key_of(read_json(run / "config.json", "run"))
    except InputError:
        return None


def command_for(method: str, run: Path) -> list[str] | None:
    """What is left to do for ``method``: train, resume or nothing."""
    gcr = [sys.executable, "-m", "gcr_rl.cli"]
    if (run / "summary.json").exists():
        return None
    if (run / "config.json").exists():
        return [*gcr, "resume", str(run)]
    return [*gcr, "train", *options(), "--method", method, "--out", str(run)]


def main() -> int:
    """Train what is missing, then report; 0 if all went well."""
    print(f"{' and '.join(METHODS)} on RotMirrorGrid (return -200 worst, -13.72 optimal)")
    runs = {method: folder_of(method) for method in METHODS}
    commands = [command for pair in runs.items() if (command := command_for(*pair))]
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
    out = FOLDER / "report"
    folders = [str(run) for run in runs.values()]
    report = [sys.executable, "-m", "gcr_rl.cli", "report", *folders, "--out", str(out)]
    return subprocess.run(report).returncode


if __name__ == "__main__":
    raise SystemExit(main())
