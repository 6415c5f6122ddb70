"""Keys from a terminal, whatever it sends: textual's reader ends at a byte that is not UTF-8, ours goes on after it."""

import contextlib

from textual.drivers.linux_driver import LinuxDriver


class Keyboard(LinuxDriver):
    """textual's own way to a terminal, for those of another encoding too: what is not UTF-8 there is no key."""

    def run_input_thread(self) -> None:
        """Read keys until it is told to end."""
        while not self.exit_event.is_set():
            with contextlib.suppress(UnicodeDecodeError):
                super().run_input_thread()
