"""A headless Chromium, driven over its debugging pipe; nothing beyond the standard library is needed."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

PROGRAM = next((p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name))), None)
_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
]


class Browser:
    """One page of one browser: `with Browser() as page: page.open(path)`."""

    def __init__(self, patience: float = 60.0) -> None:
        self.patience, self.events, self._number, self._left = patience, [], 0, b""

    def __enter__(self) -> "Browser":
        self._home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs, self._out = os.pipe()
        self._in, ours = os.pipe()

        def ends():
            # The browser reads commands from 3 and writes answers to 4; the copies come first, the two may overlap.
            a, b = os.dup(theirs), os.dup(ours)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self._process = subprocess.Popen(
            [PROGRAM, *_FLAGS, f"--user-data-dir={self._home.name}"],
            preexec_fn=ends,
            close_fds=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs)
        os.close(ours)
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_) -> None:
        for end in (self._in, self._out):
            os.close(end)
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._home.cleanup()

    def call(self, method: str, **values):
        """A command to the page, and its answer."""
        return self._send(method, self._session, **values)

    def open(self, path: Path, *, width: int = 1280, height: int = 900, dark: bool = False, script: bool = True):
        """Opens a file in a window of that width, light or dark."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.events = []
        self.call("Page.navigate", url=path.resolve().as_uri())
        limit = time.monotonic() + self.patience
        while not any(e["method"] == "Page.loadEventFired" for e in self.events):
            self._read(limit)

    def run(self, code: str):
        """The value of an expression on the page."""
        answer = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str, code: int) -> None:
        """Presses and releases one key."""
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def picture(self, path: Path, full: bool = True) -> Path:
        """A screenshot of the whole page, or of what the window shows."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=full)
        path.write_bytes(base64.b64decode(answer["data"]))
        return path

    def errors(self) -> list[str]:
        """What the console holds against the page."""
        bad = [e for e in self.events if e["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")]
        bad += [e for e in self.events if e["method"] == "Runtime.consoleAPICalled"]
        return [json.dumps(e["params"])[:400] for e in bad]

    def requests(self) -> list[str]:
        """Addresses that the page asked for, without those that carry their content."""
        sent = [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return [address for address in sent if not address.startswith("data:")]

    def _send(self, method: str, session: str | None = None, **values):
        self._number += 1
        message = {"id": self._number, "method": method, "params": values}
        os.write(self._out, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        limit = time.monotonic() + self.patience
        while True:
            answer = self._read(limit)
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def _read(self, limit: float) -> dict:
        while b"\0" not in self._left:
            ready, _, _ = select.select([self._in], [], [], max(limit - time.monotonic(), 0))
            assert ready, "the browser does not answer"
            chunk = os.read(self._in, 1 << 20)
            assert chunk, "the browser has gone"
            self._left += chunk
        line, _, self._left = self._left.partition(b"\0")
        message = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message
