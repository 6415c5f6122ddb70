"""Which call the child is in, told in memory that it shares with its parent: no system call, and nobody wakes up."""

import mmap
import os
import struct

_LAYOUT = struct.Struct("=d56s")  # since when (CLOCK_MONOTONIC), and the step as ASCII


class Step:
    """The child enters steps, ``CALL [DEVICE]`` or ``rest SECONDS``; the parent reads the latest after a long silence.

    ``descriptor`` is what both have open; the one who made it closes it.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, _LAYOUT.size)

    @classmethod
    def make(cls) -> "Step":
        """Raises: OSError: the host has no room for it."""
        descriptor = os.memfd_create("vramscope-step")
        try:
            os.ftruncate(descriptor, _LAYOUT.size)
            return cls(descriptor)
        except OSError:
            os.close(descriptor)
            raise

    def enter(self, step: str, now: float) -> None:
        self._memory[:] = _LAYOUT.pack(now, step.encode("ascii"))

    def read(self) -> tuple[list[str], float]:
        """The words of the step, none before the first, and since when."""
        content = self._memory[:]
        while content != (again := self._memory[:]):  # it was just being written
            content = again
        since, step = _LAYOUT.unpack(content)
        return step.rstrip(b"\0").decode("ascii").split(), since

    def close(self) -> None:
        self._memory.close()
        os.close(self.descriptor)
