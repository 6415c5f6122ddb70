"""CPU and memory of a process and its children, as the kernel counts them."""

import time
from collections.abc import Callable

import psutil


class Family:
    """A process and the children it has now, each under its own name."""

    def __init__(self, pid: int) -> None:
        self._processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]

    def cpu_seconds(self) -> list[float]:
        """User and system time of each."""
        return [sum(process.cpu_times()[:2]) for process in self._processes]

    def resident_mib(self) -> list[float]:
        return [process.memory_info().rss / 2**20 for process in self._processes]


def cpu_share(families: list[Family], meanwhile: Callable[[], object]) -> list[list[float]]:
    """Percent of a core that each process took during ``meanwhile``; families side by side, in the same seconds."""
    started = time.monotonic()
    before = [family.cpu_seconds() for family in families]
    meanwhile()
    took = time.monotonic() - started
    after = [family.cpu_seconds() for family in families]
    return [
        [100 * (end - start) / took for start, end in zip(*pair, strict=True)]
        for pair in zip(before, after, strict=True)
    ]
