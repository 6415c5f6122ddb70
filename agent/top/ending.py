"""An end that a terminal cannot hold up: where nobody reads what was written to it, every further write waits."""

import contextlib
import os
import signal
import termios
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

PATIENCE_SECONDS = 1.0
TRIES = 100
RESTORED = b"\x1b[?2004l\x1b[?7h\x1b[?1004l\x1b[?1049l\x1b[0m\x1b[?25h"
"""No bracketed paste, lines wrap, no reports of focus, the screen from before, no style, the cursor."""


class Ending:
    """Ends by a signal: as ever where that goes, else a second later without what is still to be written."""

    def __init__(self, *, keys: int, screen: int) -> None:
        """Take the descriptors that keys are read from and the screen is written to, while all is as it was before."""
        self._keys, self._screen = keys, screen
        self._attributes: list[Any] | None = None
        with contextlib.suppress(termios.error):
            self._attributes = termios.tcgetattr(keys)

    def on(self, number: signal.Signals, end: Callable[[], object]) -> None:
        """End by this signal. ``end`` is what does so as ever, called at any moment of the main thread.

        That is also while the loop waits for room in the queue of the terminal, and calls nothing of its own.
        """

        def take(number: int, _: FrameType | None) -> None:
            late = threading.Timer(PATIENCE_SECONDS, self._begin, (number,))
            late.daemon = True
            late.start()
            with contextlib.suppress(RuntimeError):  # its loop has ended already
                end()

        signal.signal(signal.SIGURG, lambda *_: None)  # wakes a thread whose write waits
        signal.signal(number, take)

    def _begin(self, number: int) -> None:
        """In a thread that this process waits for: as soon as nothing waits any more it could end by itself."""
        threading.Thread(target=self._at_once, args=(number,), daemon=False).start()

    def _at_once(self, number: int) -> None:
        """What still waits to be written goes nowhere; the terminal drops what it holds, and is as it was."""
        terminal = os.dup(self._screen)
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._screen)
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and thread.ident is not None:
                signal.pthread_kill(thread.ident, signal.SIGURG)
        with contextlib.suppress(OSError, termios.error):
            if self._attributes is not None:
                termios.tcsetattr(self._keys, termios.TCSANOW, self._attributes)
            os.set_blocking(terminal, False)
            _write_instead(terminal, RESTORED)
            os.set_blocking(terminal, True)  # a shell has the same one
        os._exit(128 + number)


def _write_instead(terminal: int, content: bytes) -> None:
    """In place of what the terminal holds. A write that was interrupted keeps others out for a moment longer."""
    for _ in range(TRIES):
        termios.tcflush(terminal, termios.TCOFLUSH)
        try:
            os.write(terminal, content)
        except BlockingIOError:
            time.sleep(PATIENCE_SECONDS / TRIES)
        else:
            return
