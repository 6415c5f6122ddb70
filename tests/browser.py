"""A real Chromium, driven over its debugging pipe: pages as a person sees them, without a driver to install.

The protocol is JSON messages that end in NUL, on file descriptors 3 (to the browser) and 4 (from it).
https://chromedevtools.github.io/devtools-protocol/
"""

import base64
import fcntl
import json
import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
ANSWER_SECONDS = 30.0


class BrowserError(Exception):
    """The browser ended, fell silent, or refused a command; or a page's script threw."""


class Browser:
    """One running Chromium. Use ``chromium`` to start and end it."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to_browser = to_browser
        self._from_browser = from_browser
        self._pending = b""
        self._last_id = 0
        self._events: list[dict[str, Any]] = []

    def open(self, url: str, *, width: int = 1280, height: int = 900) -> "Page":
        """A new page that watches its own console from the start and has begun to load the address."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, target, session)
        for domain in ("Page", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        page.resize(width, height)
        page.call("Page.navigate", url=url)
        return page

    def call(self, method: str, *, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """One command and its answer.

        Raises:
            BrowserError: refused, no answer in 30 s, or the browser is gone.
        """
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._to_browser, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            answer = self._receive(method, deadline)
            if answer.get("id") != self._last_id:
                self._events.append(answer)
            elif "error" in answer:
                raise BrowserError(f"{method}: {answer['error']['message']}")
            else:
                result: dict[str, Any] = answer["result"]
                return result

    def events(self, session: str) -> list[dict[str, Any]]:
        """What a page has reported so far."""
        return [event for event in self._events if event.get("sessionId") == session]

    def _receive(self, method: str, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._pending:
            readable, _, _ = select.select([self._from_browser], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(self._from_browser, 1 << 16) if readable else b""
            if not chunk:
                raise BrowserError(f"{method}: {'the browser has ended' if readable else 'no answer'}")
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message


class Page:
    """One tab."""

    def __init__(self, browser: Browser, target: str, session: str) -> None:
        self._browser = browser
        self._target = target
        self._session = session

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, session=self._session, **parameters)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page; a promise is awaited.

        Raises:
            BrowserError: the expression threw.
        """
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise BrowserError(details.get("exception", {}).get("description", details["text"]))
        return result["result"].get("value")

    def wait_until(self, expression: str, *, seconds: float = 20.0) -> Any:
        """The first true value of an expression, asked again and again.

        Raises:
            BrowserError: not true within the deadline.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            value = self.evaluate(expression)
            if value or value == {}:  # a found element arrives as an empty object
                return value
            time.sleep(0.1)
        raise BrowserError(f"not true within {seconds:g} s: {expression}; the console says {self.problems()[:1]}")

    def resize(self, width: int, height: int) -> None:
        """Give the page a window of so many CSS pixels; up to 600 wide it is a phone's."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if width <= 600 else 1,
            mobile=width <= 600,
        )

    def prefer(self, scheme: str) -> None:
        """``light`` or ``dark``, as the person's system would ask for."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def without_scripts(self) -> None:
        """From the next load on, the page's own scripts do not run."""
        self.call("Emulation.setScriptExecutionDisabled", value=True)

    def screenshot(self, path: Path) -> None:
        """The whole page, beyond the window too, as PNG."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def problems(self) -> list[str]:
        """Uncaught exceptions, console errors and warnings, and what the browser blocked (security policy, network)."""
        self.evaluate("0")  # whatever was reported before this answer has been read
        found = [_problem(event["method"], event["params"]) for event in self._browser.events(self._session)]
        return [text for text in found if text]

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)


def _problem(method: str, parameters: dict[str, Any]) -> str | None:
    if method == "Runtime.exceptionThrown":
        details = parameters["exceptionDetails"]
        return str(details.get("exception", {}).get("description", details["text"]))
    if method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
        return " ".join(str(value.get("value", value.get("description"))) for value in parameters["args"])
    if method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
        return str(parameters["entry"]["text"])
    return None


@contextmanager
def chromium(path: str, directory: Path) -> Iterator[Browser]:
    """A Chromium with an empty profile under ``directory``, ended with all its processes on exit."""
    read_here, write_there = _pipe()
    read_there, write_here = _pipe()
    pid = os.posix_spawn(
        path,
        [path, *FLAGS, f"--user-data-dir={directory / 'profile'}", "about:blank"],
        {**os.environ, "HOME": str(directory)},
        file_actions=[
            (os.POSIX_SPAWN_DUP2, read_there, 3),
            (os.POSIX_SPAWN_DUP2, write_there, 4),
            (os.POSIX_SPAWN_OPEN, 2, str(directory / "chromium.log"), os.O_WRONLY | os.O_CREAT, 0o600),
        ],
        setpgroup=0,
    )
    os.close(read_there)
    os.close(write_there)
    try:
        yield Browser(write_here, read_here)
    finally:
        os.close(write_here)
        os.close(read_here)
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _pipe() -> tuple[int, int]:
    """A pipe on descriptors above those that the browser expects its own on."""
    low = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in low)
    for end in low:
        os.close(end)
    return high[0], high[1]
