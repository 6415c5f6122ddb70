"""The wiring: the one place that makes collectors, board, poller and HTTP server, and hands each what it needs."""

import asyncio
import contextlib
import gc
import logging
import secrets
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import psutil

from agent.board import Board
from agent.errors import InputError
from agent.fleet import Fleet, ServerSpec
from agent.poller import Poller, in_daemon_thread
from agent.processes import Look, look, with_names
from agent.recorder.past import Past
from agent.recorder.player import Player
from agent.recorder.records import Start
from agent.recorder.ring import Ring
from agent.recorder.tape import Tape
from agent.recorder.writer import Writer
from agent.settings import Settings, parse_listen, read_api_key
from agent.snapshot import Recording, Snapshot
from agent.state_file import StateFile
from agent.watch import ServerWatch
from agent.web.routes import build_app
from agent.web.serving import HttpServer, bind
from agent.web.web_file import WebFile
from collectors.discovery.host import Discovery, HostDiscovery
from collectors.errors import CollectorError
from collectors.home import Homes
from collectors.http_streams import StreamTransport
from collectors.http_text import Endpoint
from collectors.netns import connect_in_network_of
from collectors.nvml.source import NvmlSource
from collectors.own_process import OwnProcess
from collectors.probe_files import ProbeFiles, Probes
from collectors.procfs import HostProcesses, ProcessTable
from collectors.readings import NodeReading
from collectors.registry import ENGINES, engine_of
from collectors.simulated.probes import SimulatedProbes
from collectors.simulated.processes import SimulatedDiscovery, SimulatedProcesses

log = logging.getLogger("vramscope")

ENDPOINT_SECONDS = 4.0
"""A vLLM whose host is busy was seen to stall for seconds before it answered; it is then serving all the same."""
ONCE_SECONDS = 15.0
ONCE_POLL_SECONDS = 0.05
YOUNG_OBJECTS = 10_000
"""More than a tick makes and drops again, so that Python's collector does not look through each snapshot; a few MB."""


class Agent:
    """Board, fleet and poller over the sources of a host; ``simulated_state`` stands for its driver and processes.

    ``alone``: no servers but those that settings name.

    Without a ``state_directory`` nothing of earlier runs is remembered over restarts. ``per_process``: with what each
    process holds.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        web: WebFile | None = None,
        simulated_state: Path | None = None,
        state_directory: Path | None = None,
        pace: float = 1.0,
        alone: bool = False,
        per_process: bool = False,
    ) -> None:
        self.settings = settings
        self._per_process = per_process
        self._web = web
        self._simulated_state = simulated_state
        commands = {name: engine.command for name, engine in ENGINES.items()}
        if simulated_state:
            self._table: ProcessTable = SimulatedProcesses(simulated_state)
            self._discovery: Discovery = SimulatedDiscovery(simulated_state, commands)
        else:
            self._discovery = found = HostDiscovery(commands)
            self._table = HostProcesses(table=found.table)
        self._homes = None if simulated_state else Homes()
        self._probes: Probes = (
            SimulatedProbes(simulated_state)
            if simulated_state
            else ProbeFiles(directory=_path(settings.probe_directory))
        )
        self.fleet = Fleet(
            settings.servers,
            open_endpoint=_endpoint,
            local_hosts=_own_addresses(),
            clock=time.monotonic,
            alone=alone,
        )
        self.board = Board(
            self.fleet.watches,
            memory_interval_seconds=settings.intervals.memory,
            clock=time.monotonic,
            wall=time.time,
            settle_seconds=settings.intervals.settle,
            pace=pace,
            web_problem=lambda: web.problem if web is not None else None,
            simulated=simulated_state is not None,
            usage=OwnProcess().usage,
        )
        self.past: Past | None = None
        self._state_file = StateFile(state_directory) if state_directory is not None else None
        recorded = state_directory if settings.recorder.minutes else None
        writer = self._recorder(recorded, pace) if recorded is not None else None
        self._pace(settings)
        self.poller = Poller(
            self.board,
            self.fleet,
            devices=self._devices,
            look=self._look,
            intervals=settings.intervals,
            clock=time.monotonic,
            probes=self._probes,
            state_file=self._state_file,
            recorder=writer,
        )

    def apply(self, settings: Settings) -> None:
        """Go on with these settings; servers that stay as they were keep what is remembered of them.

        Raises:
            InputError: they can't be used; nothing has changed then.
        """
        for server in settings.servers:
            read_api_key(server)
        if settings.listen != self.settings.listen:
            raise InputError(
                f"listen is {self.settings.listen!r} until a restart; the new settings say {settings.listen!r}"
            )
        if settings.recorder != self.settings.recorder:
            raise InputError("recorder is as it was until a restart; the new settings say otherwise")
        if settings.state_directory != self.settings.state_directory:
            raise InputError(
                f"state_directory is {self.settings.state_directory!r} until a restart; "
                f"the new settings say {settings.state_directory!r}"
            )
        if settings.probe_directory != self.settings.probe_directory:
            raise InputError(
                f"probe_directory is {self.settings.probe_directory!r} until a restart; "
                f"the new settings say {settings.probe_directory!r}"
            )
        take_servers = self.fleet.prepare(settings.servers)
        if self._web is not None:
            self._web.use(_path(settings.web_config_file))
        take_servers()
        self.settings = settings
        self._pace(settings)
        self.poller.take_intervals(settings.intervals)

    def _recorder(self, state_directory: Path, pace: float) -> Writer:
        """Let the board's readings be recorded there."""
        sizes = self.settings.recorder
        ring = Ring(state_directory, minutes=sizes.minutes, max_bytes=sizes.max_bytes)
        writer = Writer(ring, clock=time.monotonic, wall=time.time)
        self.past = Past(ring.segments)
        self.board.tape = Tape(
            writer,
            watches=self.fleet.watches,
            recalled=lambda: self.board.upgrades.records,
            run=secrets.token_hex(8),
            simulated=self._simulated_state is not None,
            pace=pace,
            clock=time.monotonic,
            wall=time.time,
        )
        return writer

    def _pace(self, settings: Settings) -> None:
        self.board.took_pace(
            memory_interval_seconds=settings.intervals.memory,
            settle_seconds=settings.intervals.settle,
            headroom_ratio=settings.thresholds.headroom_ratio,
        )

    def _devices(self) -> NvmlSource:
        return NvmlSource(
            on_reading=self._took_node,
            on_fault=self.board.lost_node,
            memory_interval_seconds=self.settings.intervals.memory,
            processes_interval_seconds=self.settings.intervals.processes,
            simulated_state=self._simulated_state,
        )

    def _took_node(self, node: NodeReading) -> None:
        self.board.took_node(with_names(node, self._discovery.name) if self._per_process else node)

    def _look(self) -> Look:
        discovery = self._discovery if self.settings.discovery else None
        return look(self._table, discovery, self.fleet.local_ports, homes=self._homes, probes=self._probes)

    @property
    def has_read_all(self) -> bool:
        """Whether each source has been read, or has failed, at least once."""
        return self.board.has_heard_of(_expected(self.fleet)) and not self.poller.awaits_probes

    @contextlib.asynccontextmanager
    async def polling(self) -> AsyncIterator[asyncio.Task[None]]:
        """Poll while inside; on leaving, all sources are stopped and connections closed."""
        tape = self.board.tape
        if tape is not None:
            tape.writer.start()
        task = asyncio.create_task(self.poller.run())
        try:
            yield task
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            if tape is not None:
                tape.close()
            if self._state_file is not None:
                self._state_file.close()


def replayed_board(
    start: Start,
    watches: Sequence[ServerWatch],
    *,
    clock: Callable[[], float],
    wall: Callable[[], float],
    recording: Recording,
) -> Board:
    """The board of an agent whose recording begins like this, on the clocks of the recording."""
    return Board(
        watches,
        memory_interval_seconds=1.0,  # until the recording says otherwise
        clock=clock,
        wall=wall,
        simulated=start.simulated,
        pace=start.pace,
        recording=recording,
    )


async def serve_replay(
    player: Player,
    *,
    listen: str,
    announce: Callable[[str], None],
    until: asyncio.Event | None = None,
) -> None:
    """Play a recording and answer as the agent did that made it; after its end, with its last figures.

    Raises:
        RunError: the address can't be listened on.
    """
    host, port = parse_listen(listen, where="--listen")
    listener = bind(host, port)
    server = HttpServer(build_app(player, host_names=_host_names(), past=_past_of(player)), listener)
    http = asyncio.create_task(server.run_forever())
    playing = asyncio.create_task(player.play())
    stop = until or asyncio.Event()
    _on_signals(signal.SIGINT, signal.SIGTERM, act=stop.set)
    stopped = asyncio.create_task(stop.wait())
    announce(f"http://{_shown_host(host)}:{listener.getsockname()[1]}")
    await asyncio.wait({http, stopped}, return_when=asyncio.FIRST_COMPLETED)
    for task in (stopped, playing):
        task.cancel()
    server.stop()
    await http
    await asyncio.wait({playing})
    if not playing.cancelled():
        playing.result()


def _past_of(player: Player) -> Callable[[], Awaitable[bytes]] | None:
    """What a recording holds of the minutes before the moment that is shown; None of one that can be read but once."""
    path = player.file.path
    if not path.is_file():
        return None
    past = Past(lambda: [path], wall=lambda: player.board.published.snapshot.time, rest=lambda _: None)
    return partial(past.asked, in_daemon_thread)


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _endpoint(spec: ServerSpec) -> Endpoint:
    """The connection to a server: a key only where settings name one, the server's own network where it has one."""
    pid = spec.network_pid
    return Endpoint(
        spec.url,
        paths=engine_of(spec.engine).paths,
        deadline_seconds=ENDPOINT_SECONDS,
        api_key=read_api_key(spec.settings) if spec.settings else None,
        transport=None if pid is None else StreamTransport(connect=connect_in_network_of(pid)),
    )


async def serve(
    settings: Settings,
    *,
    announce: Callable[[str], None],
    reload_settings: Callable[[], Settings] | None = None,
    simulated_state: Path | None = None,
    state_directory: Path | None = None,
    pace: float = 1.0,
    per_process: bool = False,
    until: asyncio.Event | None = None,
) -> None:
    """Run the agent until SIGINT, SIGTERM or ``until``; ``announce`` gets the base URL once it answers.

    ``reload_settings`` gives the settings anew on SIGHUP; while it fails, the old ones stay in force. ``pace``: how
    fast a simulated node lives. ``per_process``: with series of each process on a device.

    Raises:
        RunError: the address can't be listened on.
        InputError: an API key file or the web config can't be used.
    """
    host, port = parse_listen(settings.listen, where="listen")
    listener = bind(host, port)
    web = WebFile(_path(settings.web_config_file))
    agent = Agent(
        settings,
        web=web,
        simulated_state=simulated_state,
        state_directory=state_directory,
        pace=pace,
        per_process=per_process,
    )
    agent.board.settings_reloaded(success=True)

    async def reload() -> str | None:
        return _reload(agent, reload_settings)

    past = partial(agent.past.asked, in_daemon_thread) if agent.past is not None else None
    app = build_app(agent.board, host_names=_host_names(), web=web, reload=reload, past=past)
    server = HttpServer(app, listener, web)
    async with agent.polling() as polling:
        http = asyncio.create_task(server.run_forever())
        stop = until or asyncio.Event()
        _on_signals(signal.SIGINT, signal.SIGTERM, act=stop.set)
        _on_signals(signal.SIGHUP, act=lambda: _reload(agent, reload_settings))
        stopped = asyncio.create_task(stop.wait())
        gc.freeze()  # what imports left stays: to look through it again was 40 ms a minute
        gc.set_threshold(YOUNG_OBJECTS)
        announce(f"{web.scheme}://{_shown_host(host)}:{listener.getsockname()[1]}")
        await asyncio.wait({polling, http, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        server.stop()
        await http
        if polling.done():
            polling.result()


def _reload(agent: Agent, reload_settings: Callable[[], Settings] | None) -> str | None:
    """Take the settings anew; the sentence that says why not, when they can't be used."""
    try:
        agent.apply(reload_settings() if reload_settings else agent.settings)
    except Exception as error:  # whatever it is, the old settings are in force, and who asked is told
        unexpected = f"unexpected {type(error).__name__}; please report this bug of vramscope"
        problem = error.message if isinstance(error, InputError) else unexpected
        agent.board.settings_reloaded(success=False)
        log.error("settings not reloaded, the old ones stay in force: %s", problem)
        return problem
    agent.board.settings_reloaded(success=True)
    log.info("settings reloaded")
    return None


async def collect_once(
    settings: Settings,
    *,
    simulated_state: Path | None = None,
    state_directory: Path | None = None,
    alone: bool = False,
) -> Snapshot:
    """Read every source once, or wait for its failure, and give one snapshot; the state file is only looked at.

    ``alone``: of no servers but those that settings name.
    """
    agent = Agent(settings, simulated_state=simulated_state, alone=alone)
    if state_directory is not None:
        _recall(agent.board, StateFile(state_directory))
    async with agent.polling():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ONCE_SECONDS):
                while not agent.has_read_all:  # noqa: ASYNC110 - a few polls, then done
                    await asyncio.sleep(ONCE_POLL_SECONDS)
        return agent.board.tick().snapshot


@contextlib.asynccontextmanager
async def watching(settings: Settings) -> AsyncIterator[Board]:
    """The board of an agent that polls while inside, listens nowhere and writes nothing."""
    agent = Agent(settings)
    async with agent.polling():
        yield agent.board


def _recall(board: Board, file: StateFile) -> None:
    """Take what an agent on this host remembers."""
    begun = time.monotonic()
    fault = None
    try:
        board.recalled(file.look())
    except CollectorError as error:
        fault = error.fault()
    board.took_state(fault, time.monotonic() - begun)


def _expected(fleet: Fleet) -> frozenset[tuple[str, str]]:
    """The collectors that must have reported once before a snapshot is whole."""
    wanted = {("nvml", ""), ("processes", "")}
    for name, source in fleet.sources.items():
        wanted |= {("endpoint", name)} if source.watch.may_ask else set()
        wanted |= {("model", name)} if source.model else set()
        wanted |= {("log", name)} if source.log and source.watch.logs else set()
    return frozenset(wanted)


def _on_signals(*numbers: int, act: Callable[[], object]) -> None:
    loop = asyncio.get_running_loop()
    for number in numbers:
        with contextlib.suppress(ValueError, RuntimeError):  # not in the main thread
            loop.add_signal_handler(number, act)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})


def _own_addresses() -> frozenset[str]:
    found = {address.address.partition("%")[0] for nic in psutil.net_if_addrs().values() for address in nic}
    return frozenset(found) | _host_names() | {"localhost"}


def _host_names() -> frozenset[str]:
    return frozenset(name.lower() for name in (socket.gethostname(), socket.getfqdn(), "localhost"))


def _shown_host(host: str) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - shown, not bound
    return f"[{host}]" if ":" in host else host
