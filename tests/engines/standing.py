"""A real server that stands still: its engine's processes are stopped, and what it exposes is what it exposed then."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import psutil

from tests.engines.scrape import Scrape


@contextmanager
def standing_still(
    processes: Sequence[psutil.Process],
    look: Callable[[], Scrape],
    wanted: Callable[[Scrape], bool],
    *,
    seconds: float,
) -> Iterator[Scrape]:
    """Stop the processes at a moment that is wanted, and let them go on after; who serves ``look`` goes on answering.

    The moment may have passed by the time they stop: then it is awaited again.

    Raises:
        TimeoutError: there was no such moment.
    """
    deadline = time.monotonic() + seconds
    while True:
        scrape = look()
        if wanted(scrape):
            with _stopped(processes):
                scrape = _settled(look)
                if wanted(scrape):
                    yield scrape
                    return
        if time.monotonic() > deadline:
            raise TimeoutError(f"no such moment within {seconds:.0f} s; last seen: {scrape.load()}")
        time.sleep(0.1)


@contextmanager
def _stopped(processes: Sequence[psutil.Process]) -> Iterator[None]:
    try:
        for process in processes:
            process.suspend()
        yield
    finally:
        for process in reversed(processes):
            process.resume()


def _settled(look: Callable[[], Scrape]) -> Scrape:
    """What is exposed once all that the engine still said has been taken in."""
    before = look()
    while True:
        time.sleep(0.3)
        scrape = look()
        if scrape.of_engine() == before.of_engine():
            return scrape
        before = scrape
