"""`gcr watch` on a real terminal while a run trains: drawn, refreshed, resized, left clean."""

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading

import pytest

from gcr_rl.bench.watch import watch
from gcr_rl.presets import preset
from gcr_rl.training import train

SMALL = {
    "steps": 500, "seeds": (0, 1), "network.hidden": (8,), "replay.learning_starts": 100,
    "evaluation.every": 100, "evaluation.episodes": 2, "run.log_every": 100,
    "run.checkpoint_every": 100,
}  # fmt: skip
OWN_SCREEN, NO_CURSOR = (b"\x1b[?1049h", b"\x1b[?1049l"), (b"\x1b[?25l", b"\x1b[?25h")
HOME = b"\x1b[H"
ON_ITS_TERMINAL = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGINT, signal.SIG_DFL)  # a parent in the background ignores it
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "gcr_rl.cli", *sys.argv[1:]])
"""


class Paced:
    """A reporter that holds the run at every stop until it is let go."""

    def __init__(self):
        self.go = threading.Semaphore(0)
        self.stopped = threading.Semaphore(0)

    def update(self, step, mean_return, loss):
        self.stopped.release()
        self.go.acquire()

    def start(self, label, step, total):
        pass

    stop = say = lambda *_: None


class Terminal:
    """A command on a pseudo-terminal."""

    def __init__(self, words, rows, columns):
        self.master, slave = pty.openpty()
        self.text = b""
        self.resize(rows, columns)
        modes = termios.tcgetattr(slave)
        modes[3] |= termios.NOFLSH  # else Ctrl-C may throw away what is written after it
        termios.tcsetattr(slave, termios.TCSANOW, modes)
        self.modes = termios.tcgetattr(self.master)
        kept = ("NO_COLOR", "COLUMNS", "LINES", "FORCE_COLOR", "TTY_COMPATIBLE")
        environment = {name: v for name, v in os.environ.items() if name not in kept}
        self.process = subprocess.Popen(
            [sys.executable, "-c", ON_ITS_TERMINAL, *words],
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            env={**environment, "TERM": "xterm-256color"},
        )  # fmt: skip
        os.close(slave)

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def send(self, data):
        os.write(self.master, data)

    def read_until(self, pattern, start=0):
        """Where in ``text`` the pattern ends; fails if the command ends first."""
        while (found := re.compile(pattern).search(self.text, start)) is None:
            assert self._read(), f"ended without {pattern!r}: {self.text[-2_000:]!r}"
        return found.end()

    def end(self):
        """The exit code, once the command has ended; all it wrote is in ``text``."""
        while self._read():
            pass
        os.close(self.master)
        return self.process.wait()

    def _read(self):
        try:
            data = os.read(self.master, 65_536)
        except OSError:  # how Linux says that the other side is closed
            return False
        self.text += data
        return bool(data)


def assert_left_clean(terminal, modes):
    for begin, end in (OWN_SCREEN, NO_CURSOR):
        assert terminal.text.count(begin) == terminal.text.count(end) == 1
        assert terminal.text.index(begin) < terminal.text.index(end)
    assert modes == terminal.modes
    return terminal.text.split(OWN_SCREEN[1])[1]


def lines_of(picture):
    text = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", picture).decode()
    return [line.rstrip() for line in text.replace("\r", "").split("\n")]


@pytest.fixture
def run(tmp_path):
    """A folder in which a run has made its first stop, and what lets it go on."""
    paced = Paced()
    config = preset("Probe-TwoState", "ddqn", SMALL)
    thread = threading.Thread(
        target=train, args=(config, tmp_path / "run"), kwargs={"reporter": paced}
    )
    thread.start()
    paced.stopped.acquire()
    yield tmp_path / "run", paced
    paced.go.release(100)
    thread.join()


def test_a_run_is_watched_to_its_end(run):
    folder, paced = run
    terminal = Terminal(["watch", str(folder), "--interval", "0.1"], 24, 100)
    terminal.read_until(rb"ddqn on Probe-TwoState.*training")
    paced.go.release()
    paced.stopped.acquire()
    seen = terminal.read_until(rb"200 / 500")
    terminal.resize(10, 50)
    resized = terminal.read_until(re.escape(HOME), seen)
    for _ in range(3):  # pictures that began after the new size was set
        resized = terminal.read_until(re.escape(HOME), resized)
    picture = lines_of(terminal.text[terminal.text.rindex(HOME, 0, resized - 3) : resized - 3])
    assert max(map(len, picture)) <= 50 and len(picture) <= 10
    assert any("200 / 500" in line for line in picture)
    modes = termios.tcgetattr(terminal.master)
    paced.go.release(100)
    assert terminal.end() == 0
    left = lines_of(assert_left_clean(terminal, modes))
    assert any("500 / 500" in line and "finished" in line for line in left)
    assert "1 of 1 begun runs finished" in left


def test_an_interruption_leaves_the_terminal_clean(run):
    folder, _ = run
    terminal = Terminal(["watch", str(folder), "--interval", "0.1"], 24, 100)
    terminal.read_until(rb"training")
    terminal.send(b"\x03")
    modes = termios.tcgetattr(terminal.master)
    assert terminal.end() == 130
    assert lines_of(assert_left_clean(terminal, modes))[-2:] == ["gcr: interrupted", ""]


class Interrupted(io.StringIO):
    """A terminal at which Ctrl-C is pressed while the first picture is on its way."""

    pressed = False

    def isatty(self):
        return True

    def flush(self):
        if "training" in self.getvalue() and not self.pressed:
            self.pressed = True
            raise KeyboardInterrupt


def test_an_interruption_of_the_first_picture_leaves_the_terminal_clean(run, monkeypatch):
    folder, _ = run
    terminal = Interrupted()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys, "stdout", terminal)
    with pytest.raises(KeyboardInterrupt):
        watch(str(folder), store=folder.parent)
    for begin, end in (OWN_SCREEN, NO_CURSOR):
        last = terminal.getvalue().rindex(end.decode())
        assert terminal.getvalue().rindex(begin.decode()) < last
