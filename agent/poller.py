"""The rhythm: each source at its own pace, and a tick once a second. One event loop; what may block runs in a thread.

A source has one attempt at a time and a deadline; an attempt that hangs in its thread is not stacked upon.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct

from agent.board import Board
from agent.watch import ServerWatch
from collectors.readings import ModelFiles, ProcessTree, ServerReading
from collectors.run import Outcome, run

TICK_SECONDS = 1.0
MODEL_RETRY_SECONDS = 60.0
ENDPOINT_DEADLINE_SECONDS = 3.0
THREAD_DEADLINE_SECONDS = 10.0

T = TypeVar("T")
log = logging.getLogger("vramscope")


class EngineReader(Protocol):
    """Reads one server's endpoints."""

    async def read(self) -> ServerReading: ...


class DeviceSource(Protocol):
    """Streams passes over the devices into the board until cancelled."""

    async def run(self) -> None: ...


class Source(Struct, frozen=True, kw_only=True):
    """The ways to read one server. ``tree`` and ``model`` block; None where there is nothing to read."""

    watch: ServerWatch
    reader: EngineReader
    tree: Callable[[], ProcessTree | None] | None = None
    model: Callable[[], ModelFiles] | None = None


class Poller:
    """Runs all sources and the tick until cancelled."""

    def __init__(
        self,
        board: Board,
        *,
        devices: DeviceSource,
        servers: Sequence[Source],
        endpoints_seconds: float,
        processes_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self._board = board
        self._devices = devices
        self._servers = servers
        self._endpoints_seconds = endpoints_seconds
        self._processes_seconds = processes_seconds
        self._clock = clock

    async def run(self) -> None:
        """Poll until cancelled; a source that fails never ends another's loop."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._devices.run())
            tasks.create_task(self._tick())
            for source in self._servers:
                changed = asyncio.Event()
                tasks.create_task(self._endpoint(source, changed))
                if source.tree is not None:
                    tasks.create_task(self._tree(source, source.tree, changed))
                if source.model is not None:
                    tasks.create_task(self._model(source, source.model))

    async def _tick(self) -> None:
        failing = False
        async for _ in self._beats(TICK_SECONDS):
            try:
                self._board.tick()
                failing = False
            except Exception:  # readers see the age of the last tick; a later reading may heal it
                if not failing:
                    log.exception("the tick failed; this is a bug of vramscope, please report it")
                failing = True

    async def _endpoint(self, source: Source, changed: asyncio.Event) -> None:
        name = source.watch.facts.name
        deadline = max(ENDPOINT_DEADLINE_SECONDS, self._endpoints_seconds)
        async for _ in self._beats(self._endpoints_seconds):
            outcome = await run("endpoint", name, source.reader.read, deadline_seconds=deadline, clock=self._clock)
            if self._board.took_server(source.watch, outcome):
                changed.set()

    async def _tree(self, source: Source, tree: Callable[[], ProcessTree | None], changed: asyncio.Event) -> None:
        while True:
            changed.clear()
            async with self._threaded("processes", source, tree) as outcome:
                self._board.took_tree(source.watch, outcome)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), self._processes_seconds)

    async def _model(self, source: Source, model: Callable[[], ModelFiles]) -> None:
        read = False
        while not read:
            async with self._threaded("model", source, model) as outcome:
                self._board.took_model(source.watch, outcome)
                read = outcome.value is not None
            await asyncio.sleep(0 if read else MODEL_RETRY_SECONDS)

    @contextlib.asynccontextmanager
    async def _threaded(self, name: str, source: Source, read: Callable[[], T]) -> AsyncIterator[Outcome[T]]:
        """The outcome of a blocking reading within its deadline; on leaving, waits for a thread that is still at it."""
        thread = _in_daemon_thread(read)
        target = source.watch.facts.name
        yield await run(
            name, target, lambda: asyncio.shield(thread), deadline_seconds=THREAD_DEADLINE_SECONDS, clock=self._clock
        )
        await asyncio.wait({thread})
        thread.exception()

    async def _beats(self, seconds: float) -> AsyncIterator[None]:
        """Yield every ``seconds``; beats missed by a slow turn are left out, not made up for."""
        due = self._clock()
        while True:
            yield
            due = max(due + seconds, self._clock())
            await asyncio.sleep(due - self._clock())


def _in_daemon_thread(read: Callable[[], T]) -> asyncio.Future[T]:
    """Run a blocking call in a thread that never keeps the process from ending, even when it hangs in the kernel."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: Exception | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)  # type: ignore[arg-type] # None only where T allows it

    def work() -> None:
        value, error = None, None
        try:
            value = read()
        except Exception as exc:  # handed to the loop, which translates it
            error = exc
        with contextlib.suppress(RuntimeError):  # the loop closed meanwhile
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=work, daemon=True, name="vramscope-blocking").start()
    return future
