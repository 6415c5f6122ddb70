"""One thread that brings records from a bounded queue to the disk, once a second; nobody ever waits for it."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from agent.disk import translated
from agent.recorder.chunks import pack
from agent.recorder.records import Frozen, Record, Start
from agent.recorder.ring import OURS, Ring
from collectors.errors import CollectorError
from collectors.readings import Fault

MAX_QUEUED = 4096
"""Three minutes of eight GPUs and eight servers at the default rhythms."""
FLUSH_SECONDS = 1.0
CLOSE_SECONDS = 3.0

log = logging.getLogger("vramscope")


class Status(Struct, frozen=True, kw_only=True):
    """How it last went: ``fault`` while records do not reach the disk, ``seconds`` of the last flush; counts so far."""

    fault: Fault | None = None
    seconds: float = 0.0
    dropped: int = 0
    bundles: int = 0


class Writer:
    """Takes records from one thread, writes them in another. ``clock`` is monotonic, ``wall`` since the epoch."""

    def __init__(
        self,
        ring: Ring,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
        max_queued: int = MAX_QUEUED,
        flush_seconds: float = FLUSH_SECONDS,
    ) -> None:
        self._ring = ring
        self._clock = clock
        self._wall = wall
        self._flush_seconds = flush_seconds
        self._queue: deque[Record] = deque()
        self._max_queued = max_queued
        self._refused = 0
        self._lost = 0
        self._unfit = 0
        self._said = (0, 0)
        self._bundles = 0
        self._fault: Fault | None = None
        self._seconds = 0.0
        self._recording = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="vramscope-recorder")

    # On the event loop

    def start(self) -> None:
        self._thread.start()

    def put(self, record: Record, *, always: bool = False) -> bool:
        """Queue a record; False where the queue is full, unless it is one that is so rare that it always may."""
        if len(self._queue) >= self._max_queued and not always:
            return False
        self._queue.append(record)
        return True

    def drop(self) -> None:
        """Count a record that was not queued."""
        self._refused += 1

    @property
    def has_room(self) -> bool:
        """Whether it has caught up, so that going on makes sense."""
        return len(self._queue) <= self._max_queued // 2

    @property
    def needs_start(self) -> bool:
        """Whether what is put is thrown away until a ``Start`` comes: a write failed."""
        return not self._recording

    @property
    def wants_start(self) -> bool:
        """Whether the segment has grown so large that another should begin."""
        return self._recording and self._ring.is_full

    @property
    def status(self) -> Status:
        """Of the last flush; drops and bundles since it began."""
        return Status(
            fault=self._fault,
            seconds=self._seconds,
            dropped=self._refused + self._lost + self._unfit,
            bundles=self._bundles,
        )

    def close(self) -> None:
        """Write what is queued, and end; a disk that hangs is left behind."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS)

    # In the thread

    def _run(self) -> None:
        while not self._stop.wait(self._flush_seconds):
            self.flush()
        self.flush()
        self._ring.close()

    def flush(self) -> None:
        """Write what is queued, then freeze what is asked for; what fails is remembered as the fault."""
        begun = time.perf_counter()
        fault: Fault | None = None
        try:
            with translated(self._ring.folder, "record in it", ours=OURS):
                self._write([self._queue.popleft() for _ in range(len(self._queue))])
                self._answer()
        except CollectorError as error:
            fault = error.fault()
        except Exception as error:  # whatever it is, the agent goes on, and says so
            log.exception("the recorder failed; this is a bug of vramscope, please report it")
            fault = Fault(reason="bug", message=f"the recorder failed with {type(error).__name__}")
        if fault is not None:
            self._recording = False
            self._ring.end()
        elif not self._recording:
            fault = self._fault
        else:
            fault = self._left_out()
        self._said = (self._refused + self._lost, self._unfit)
        self._fault = fault
        self._seconds = time.perf_counter() - begun

    def _left_out(self) -> Fault | None:
        """What was left out since the last flush, although the disk takes what it gets."""
        late, unfit = self._said
        if self._unfit > unfit:
            message = "readings were left out: they hold what its format can't, or are too large for it"
            return Fault(reason="dropped", message=message)
        if self._refused + self._lost > late:
            return Fault(reason="dropped", message="the disk is too slow for the recorder: readings were left out")
        return None

    def _write(self, records: Sequence[Record]) -> None:
        written = 0
        try:
            for part in _segments(records):
                if isinstance(part[0], Start):
                    self._ring.begin()
                    self._recording = True
                if self._recording:
                    self._add(part)
                    written += len(part)
        finally:
            self._lost += len(records) - written

    def _add(self, part: Sequence[Record]) -> None:
        chunk, unfit = pack(part)
        self._unfit += unfit
        if chunk:
            self._ring.add(chunk)
        frozen = next((one for one in part if isinstance(one, Frozen)), None)
        if frozen is not None:
            self._freeze(frozen)

    def _answer(self) -> None:
        """Do what somebody asks for by a file in the recorder's folder."""
        if self._ring.is_asked:
            try:
                self._freeze(Frozen(at=self._clock(), wall=self._wall(), reason="asked"))
            finally:
                self._ring.answered()

    def _freeze(self, frozen: Frozen) -> Path:
        path = self._ring.freeze(frozen)
        self._bundles += 1
        what = f"{frozen.reason.replace('_', ' ')} {frozen.subject}".strip()
        log.info("recording kept (%s): %s", what, path)
        return path


def _segments(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """Split before each ``Start``."""
    begin = 0
    for index, record in enumerate(records):
        if isinstance(record, Start) and index > begin:
            yield records[begin:index]
            begin = index
    if begin < len(records):
        yield records[begin:]
