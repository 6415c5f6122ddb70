"""The rhythm: each source at its own pace, and a tick once a second. One event loop; what may block runs in a thread.

A source has one attempt at a time and a deadline; an attempt that hangs in its thread is not stacked upon.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Protocol, TypeVar

from agent.board import Board
from agent.fleet import Fleet, Source
from agent.processes import Look
from agent.recorder.writer import Writer
from agent.settings import Intervals
from agent.state_file import StateFile
from agent.watch import ServerWatch
from collectors.engine_logs.reader import LogReader
from collectors.probe_files import Place, Probes
from collectors.readings import ModelFiles, ServerReading
from collectors.run import Outcome, run

TICK_SECONDS = 1.0
TICK_AFTER_SECONDS = 0.25  # servers are asked on the second: most have answered by then
PROBE_SECONDS = 1.0
MODEL_RETRY_SECONDS = 60.0
ENDPOINT_DEADLINE_SECONDS = 6.0
RECORDER_SECONDS = 5.0
THREAD_DEADLINE_SECONDS = 10.0

T = TypeVar("T")
log = logging.getLogger("vramscope")


class DeviceSource(Protocol):
    """Streams passes over the devices into the board until cancelled."""

    async def run(self) -> None: ...


class Poller:
    """Runs all sources and the tick until cancelled; servers come and go as the fleet says."""

    def __init__(
        self,
        board: Board,
        fleet: Fleet,
        *,
        devices: Callable[[], DeviceSource],
        look: Callable[[], Look],
        intervals: Intervals,
        clock: Callable[[], float],
        probes: Probes | None = None,
        state_file: StateFile | None = None,
        recorder: Writer | None = None,
    ) -> None:
        self._board = board
        self._fleet = fleet
        self._devices = devices
        self._look = look
        self._intervals = intervals
        self._clock = clock
        self._probes = probes
        self._probe_files: tuple[Place, ...] = ()
        self._have_read_probes = False
        self._probed = asyncio.Event()  # there are files of probes to be read
        self._state_file = state_file
        self._recorder = recorder
        self._look_again = asyncio.Event()
        self._has_looked = False
        self._looked = asyncio.Event()  # set for a moment after each look
        self._restart_devices = asyncio.Event()
        self._following: dict[str, tuple[Source, tuple[asyncio.Task[None], ...]]] = {}

    async def run(self) -> None:
        """Poll until cancelled; a source that fails never ends another's loop."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read_devices())
            group.create_task(self._tick())
            if self._probes is not None:
                group.create_task(self._read_probes(self._probes))
            if self._state_file is not None:
                group.create_task(self._remember(self._state_file))
            if self._recorder is not None:
                group.create_task(self._say_of_recorder(self._recorder))
            self._follow(group)
            await self._watch_processes(group)

    def take_intervals(self, intervals: Intervals) -> None:
        """Go on at another pace, look at the processes and follow what the fleet says now."""
        if intervals != self._intervals:
            self._intervals = intervals
            self._restart_devices.set()
        self._look_again.set()

    async def _read_devices(self) -> None:
        """Run the device source; start a fresh one when the pace changed."""
        while True:
            self._restart_devices.clear()
            source = asyncio.create_task(self._devices().run())
            restart = asyncio.create_task(self._restart_devices.wait())
            try:
                await asyncio.wait({source, restart}, return_when=asyncio.FIRST_COMPLETED)
                if source.done():
                    source.result()
            finally:
                for task in (source, restart):
                    task.cancel()
                await asyncio.wait({source, restart})

    async def _watch_processes(self, group: asyncio.TaskGroup) -> None:
        while True:
            self._look_again.clear()
            async with self._threaded("processes", "", self._look) as outcome:
                self._take(outcome)
                self._follow(group)
                self._has_looked = True
                self._looked.set()
                self._looked.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._intervals.processes):  # wait_for of 3.11 can swallow a cancellation
                    await self._look_again.wait()

    def _take(self, outcome: Outcome[Look]) -> None:
        """Hand what a look saw to the fleet and the board."""
        self._board.took_processes(outcome)
        if outcome.value is None:
            for watch in self._fleet.watches:
                watch.saw(None, hidden=True)
            return
        self._fleet.found(outcome.value.found)
        self._probe_files = outcome.value.probes
        self._have_read_probes = False  # what they say may be of a server that is known only since
        if self._probe_files:
            self._probed.set()
        for watch in self._fleet.watches:
            name = watch.facts.name
            if name in outcome.value.trees or name in outcome.value.faults:
                fault = outcome.value.faults.get(name)
                tree = outcome.value.trees.get(name)
                seconds = outcome.duration_seconds
                self._board.took_tree(watch, Outcome(value=tree, fault=fault, duration_seconds=seconds, at=outcome.at))
            watch.take_home(outcome.value.homes.get(watch.tree.processes[0].pid) if watch.tree else None)

    def _follow(self, group: asyncio.TaskGroup) -> None:
        """Start what is new in the fleet, stop what left it or is to be read in another way."""
        for name, (source, tasks) in list(self._following.items()):
            if self._fleet.sources.get(name) is not source:
                for task in tasks:
                    task.cancel()
                del self._following[name]
        for name, source in self._fleet.sources.items():
            if name not in self._following:
                jobs = [self._endpoint(source)]
                if source.model is not None:
                    jobs.append(self._model(source, source.model))
                if source.log is not None:
                    jobs.append(self._log(source.watch, source.log))
                self._following[name] = (source, tuple(group.create_task(job) for job in jobs))

    async def _tick(self) -> None:
        failing = False
        async for _ in self._beats(lambda: TICK_SECONDS, after=TICK_AFTER_SECONDS):
            try:
                self._board.tick()
                failing = False
            except Exception:  # readers see the age of the last tick; a later reading may heal it
                if not failing:
                    log.exception("the tick failed; this is a bug of vramscope, please report it")
                failing = True

    async def _endpoint(self, source: Source) -> None:
        name, is_named = source.watch.facts.name, source.watch.facts.engine is not None
        try:
            if not is_named and not self._has_looked:
                await self._looked.wait()  # who listens there may tell
            async for _ in self._beats(lambda: self._intervals.endpoints):
                if not source.watch.may_ask:
                    continue
                deadline = max(ENDPOINT_DEADLINE_SECONDS, self._intervals.endpoints)
                read = source.reader.read if is_named else partial(self._name, source)
                outcome = await run("endpoint", name, read, deadline_seconds=deadline, clock=self._clock)
                if outcome.value is not None and not is_named:
                    self._look_again.set()  # it is read by another source now
                    return
                if self._board.took_server(source.watch, outcome):
                    self._look_again.set()
        finally:
            await source.close()

    async def _name(self, source: Source) -> ServerReading:
        """Let a server say which engine it is."""
        reading = await source.reader.read()
        self._fleet.named(source.watch, reading.engine)
        return reading

    async def _model(self, source: Source, model: Callable[[], ModelFiles]) -> None:
        read = False
        while not read:
            async with self._threaded("model", source.watch.facts.name, model) as outcome:
                self._board.took_model(source.watch, outcome)
                read = outcome.value is not None
            await asyncio.sleep(0 if read else MODEL_RETRY_SECONDS)

    async def _log(self, watch: ServerWatch, log: LogReader) -> None:
        held = True  # maybe by who followed it before
        try:
            async for _ in self._beats(lambda: self._intervals.endpoints):
                if watch.logs:
                    held = True
                    async with self._threaded("log", watch.facts.name, partial(log.read, watch.logs)) as outcome:
                        self._board.took_log(watch, outcome)
                    continue
                if held:
                    held = False
                    self._board.lost_log(watch)
                    in_daemon_thread(log.close)
                await self._looked.wait()  # nothing else finds a log
        finally:
            in_daemon_thread(log.close)

    async def _read_probes(self, probes: Probes) -> None:
        """Read the files of probes once a second while there are any; without one, not a thing is done."""
        while True:
            await self._probed.wait()
            files = self._probe_files
            async with self._threaded("probe", "", partial(probes.read, files)) as outcome:
                self._board.took_probes(outcome, {file.pid for file in files})
            self._have_read_probes = True
            if not files:
                self._probed.clear()
            await asyncio.sleep(PROBE_SECONDS)

    @property
    def awaits_probes(self) -> bool:
        """Whether files were found that have not been read yet."""
        return bool(self._probe_files) and not self._have_read_probes

    async def _remember(self, file: StateFile) -> None:
        """Take what the state file says, then write what is new; what fails is tried again, and the agent goes on."""
        upgrades = self._board.upgrades
        written: int | None = None
        seconds = 0.0
        async for _ in self._beats(lambda: upgrades.pause_seconds):
            fault = None
            if written is None:
                async with self._threaded("state", "", file.read) as found:
                    fault, seconds = found.fault, found.duration_seconds
                if found.value is not None:
                    self._board.recalled(found.value)
                    written = 0
            if fault is None and written != (revision := upgrades.revision):
                async with self._threaded("state", "", partial(file.write, dict(upgrades.records))) as done:
                    fault, seconds = done.fault, done.duration_seconds
                written = written if fault else revision
            self._board.took_state(fault, seconds)

    async def _say_of_recorder(self, recorder: Writer) -> None:
        async for _ in self._beats(lambda: RECORDER_SECONDS):
            self._board.took_recorder(recorder.status)

    @contextlib.asynccontextmanager
    async def _threaded(self, name: str, target: str, read: Callable[[], T]) -> AsyncIterator[Outcome[T]]:
        """The outcome of a blocking reading within its deadline; on leaving, waits for a thread that is still at it."""
        thread = in_daemon_thread(read)
        yield await run(
            name, target, lambda: asyncio.shield(thread), deadline_seconds=THREAD_DEADLINE_SECONDS, clock=self._clock
        )
        await asyncio.wait({thread})
        thread.exception()

    async def _beats(self, seconds: Callable[[], float], *, after: float = 0.0) -> AsyncIterator[None]:
        """Yield now and then at the multiples of so many seconds, where beats of one pace fall together.

        One waking serves them all, and what is done for one finds the processor warm for the next. ``after``: so much
        later than these. Beats missed by a slow turn are left out, not made up for.
        """
        due = self._clock()
        while True:
            yield
            pace = seconds()
            due = max(round((due - after) / pace + 1) * pace + after, self._clock())
            await asyncio.sleep(due - self._clock())


def in_daemon_thread(read: Callable[[], T]) -> asyncio.Future[T]:
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
