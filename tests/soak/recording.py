"""A recorder that writes and keeps recordings all the time; to be killed.

``python -m tests.soak.recording DIRECTORY`` prints the number of the last record on the disk after each flush. Segments
are short, and a recording is kept every tenth flush.
"""

import itertools
import sys
import time
from pathlib import Path

from agent.recorder.records import Frozen, Processes, Start
from agent.recorder.ring import Ring
from agent.recorder.writer import Writer

PAUSE_SECONDS = 0.001
EACH_FLUSH = 40
FLUSHES_PER_SEGMENT = 7


def main(directory: Path) -> None:
    ring = Ring(directory, minutes=5, max_bytes=4 << 20)
    writer = Writer(ring, clock=time.monotonic, wall=time.time)
    numbers = itertools.count()
    for flush in itertools.count():
        if flush % FLUSHES_PER_SEGMENT == 0:
            at, wall = time.monotonic(), time.time()
            writer.put(Start(at=at, wall=wall, run="soak", version="", simulated=True, state=()))
        last = 0
        for last in itertools.islice(numbers, EACH_FLUSH):
            writer.put(Processes(at=time.monotonic(), name=f"{last}", seconds=0.0))
        if flush % 10 == 9:
            writer.put(Frozen(at=time.monotonic(), wall=time.time(), reason="asked"))
        writer.flush()
        assert writer.status.fault is None, writer.status
        print(last, flush=True)
        time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
