"""Headless Chromium by its DevTools protocol over a pipe: no driver and no websocket."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
MISSING = "chromium is not installed (Debian: apt-get install chromium)"

# Chromium reads commands from file descriptor 3 and answers on 4; zero bytes end messages.
_LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for place, end in zip((3, 4), ends):
    os.dup2(end, place)
os.execv(sys.argv[3], sys.argv[3:])
"""
_OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions",
    "--allow-file-access-from-files", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip


class Browser:
    """One headless page. ``complaints`` collects console errors, exceptions and dialogs."""

    def __init__(self):
        self._profile = tempfile.mkdtemp(prefix="gcr-chromium-")
        into_child, self._write = os.pipe()
        self._read, out_of_child = os.pipe()
        launch = [sys.executable, "-c", _LAUNCH, str(into_child), str(out_of_child), CHROMIUM]
        self._process = subprocess.Popen(
            [*launch, *_OPTIONS, f"--user-data-dir={self._profile}", "about:blank"],
            pass_fds=(into_child, out_of_child), stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(into_child)
        os.close(out_of_child)
        self._number, self._buffer, self.complaints = 0, b"", []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = None
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    _session = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(AssertionError, OSError):
            self._session = None
            self.call("Browser.close")
        os.close(self._write)
        os.close(self._read)
        self._process.kill()  # it has ended, or it hangs
        self._process.wait()
        shutil.rmtree(self._profile, ignore_errors=True)

    def call(self, method, **parameters):
        """Send a command and wait for its answer; events on the way are looked at."""
        number = self._send(method, **parameters)
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self._notice(answer)

    def _send(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        return self._number

    def _receive(self):
        while b"\0" not in self._buffer:
            part = os.read(self._read, 1 << 20)
            assert part, f"chromium went away (exit code {self._process.poll()})"
            self._buffer += part
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def _notice(self, event):
        name, told = event.get("method"), event.get("params", {})
        if name == "Runtime.exceptionThrown":
            self.complaints.append(told["exceptionDetails"].get("exception", told))
        if name == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.complaints.append(told["args"])
        if name == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.complaints.append(told["entry"])
        if name == "Page.javascriptDialogOpening":
            self.complaints.append(f"a dialog: {told['message']}")
            self._send("Page.handleJavaScriptDialog", accept=True)

    def size(self, width, height, dark=False):
        """The size of the window and the colours that its system prefers."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, path):
        """Load a file and wait until it is complete and has been painted."""
        self.call("Page.navigate", url=path.absolute().as_uri())
        while not self.evaluate(
            "document.readyState === 'complete' && location.protocol === 'file:'"
        ):
            time.sleep(0.02)
        self.settle()

    def settle(self):
        """Wait for two frames: observers have run and the page has been painted."""
        self.evaluate(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))"
        )

    def evaluate(self, script):
        """The value of an expression in the page, awaited if it is a promise."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True,
                           awaitPromise=True, userGesture=True)  # fmt: skip
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def point(self, x, y):
        """Move the pointer there."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.settle()

    def screenshot(self):
        """The window as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
