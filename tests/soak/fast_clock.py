"""The clock of a program under test, in fast motion and at any rate: the C side makes its waits end by it."""

import mmap
import struct
import subprocess
import time
from pathlib import Path

from tests.real import require

SOURCE = Path(__file__).with_suffix(".c")
FLAGS = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
_LAYOUT = struct.Struct("=qdqqq")


class FastClock:
    """``environment`` puts a process and its children under it; ``now`` is the time that they see, in seconds."""

    def __init__(self, folder: Path) -> None:
        library, shared = folder / "libfast_clock.so", folder / "fast_clock"
        subprocess.run([require("gcc"), *FLAGS, "-o", str(library), str(SOURCE)], check=True)
        shared.write_bytes(bytes(_LAYOUT.size))
        with shared.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _LAYOUT.size)
        self.environment = {"LD_PRELOAD": str(library), "FAST_CLOCK": str(shared)}
        self._sequence = 0
        self._rate = 1.0
        self._real_base = self._shown_base = time.monotonic_ns()
        self._wall_offset = time.time_ns() - self._real_base
        self.run_at(1.0)

    @property
    def now(self) -> float:
        return self._shown(time.monotonic_ns()) / 1e9

    def run_at(self, rate: float) -> None:
        """From now on so many seconds pass in one."""
        real = time.monotonic_ns()
        self._shown_base, self._real_base, self._rate = self._shown(real), real, rate
        self._write(1)
        self._write(1)

    def sleep(self, seconds: float) -> None:
        """For as long as the program sees."""
        time.sleep(seconds / self._rate)

    def _shown(self, real: int) -> int:
        return self._shown_base + int(self._rate * (real - self._real_base))

    def _write(self, step: int) -> None:
        """Twice: while the sequence is odd, readers wait."""
        self._sequence += step
        fields = (self._rate, self._real_base, self._shown_base, self._wall_offset)
        self._memory[:] = _LAYOUT.pack(self._sequence, *fields)
