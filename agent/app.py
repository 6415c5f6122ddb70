"""The wiring: the one place that makes collectors, board, poller and HTTP server, and hands each what it needs."""

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path

import psutil

from agent.board import Board
from agent.poller import Poller, Source
from agent.settings import ServerSettings, Settings, check_server, parse_listen, read_api_key
from agent.snapshot import Snapshot
from agent.watch import ServerFacts, ServerWatch
from agent.web.routes import build_app
from agent.web.serving import HttpServer, bind
from collectors.http_text import Endpoint, parse_base_url
from collectors.model_files import read_model
from collectors.nvml.source import NvmlSource
from collectors.procfs import HostProcesses, ProcessTable
from collectors.registry import ENGINES
from collectors.simulated.processes import SimulatedProcesses

ENDPOINT_SECONDS = 2.5
ONCE_SECONDS = 15.0
ONCE_POLL_SECONDS = 0.05


class Agent:
    """Board and poller over the sources that settings name; ``simulated_state`` replaces driver and process table."""

    def __init__(self, settings: Settings, *, simulated_state: Path | None = None) -> None:
        self._endpoints: list[Endpoint] = []
        table: ProcessTable = SimulatedProcesses(simulated_state) if simulated_state else HostProcesses()
        addresses = _own_addresses()
        sources = [self._source(server, table, addresses) for server in settings.servers]
        self.board = Board(
            [source.watch for source in sources],
            memory_interval_seconds=settings.intervals.memory,
            clock=time.monotonic,
            wall=time.time,
        )
        self.sources: Sequence[Source] = sources
        self.poller = Poller(
            self.board,
            devices=NvmlSource(
                on_reading=self.board.took_node,
                on_fault=self.board.lost_node,
                memory_interval_seconds=settings.intervals.memory,
                processes_interval_seconds=settings.intervals.processes,
                simulated_state=simulated_state,
            ),
            servers=sources,
            endpoints_seconds=settings.intervals.endpoints,
            processes_seconds=settings.intervals.processes,
            clock=time.monotonic,
        )

    @contextlib.asynccontextmanager
    async def polling(self) -> AsyncIterator[asyncio.Task[None]]:
        """Poll while inside; on leaving, all sources are stopped and connections closed."""
        task = asyncio.create_task(self.poller.run())
        try:
            yield task
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            for endpoint in self._endpoints:
                await endpoint.aclose()

    def _source(self, server: ServerSettings, table: ProcessTable, addresses: frozenset[str]) -> Source:
        engine = ENGINES[server.engine]
        endpoint = Endpoint(
            server.url, paths=engine.paths, deadline_seconds=ENDPOINT_SECONDS, api_key=read_api_key(server)
        )
        self._endpoints.append(endpoint)
        facts = ServerFacts(
            name=server.label,
            engine=server.engine,
            url=endpoint.url,
            given=check_server(server, server.label),
            devices=server.devices,
            on_this_host=_is_local(endpoint.url, addresses),
        )
        return Source(
            watch=ServerWatch(facts, rank_of=engine.rank_of),
            reader=engine.open(endpoint, clock=time.monotonic),
            tree=partial(table.tree, facts.port) if facts.on_this_host else None,
            model=partial(read_model, Path(server.model)) if server.model else None,
        )


async def serve(
    settings: Settings,
    *,
    announce: Callable[[str], None],
    simulated_state: Path | None = None,
    until: asyncio.Event | None = None,
) -> None:
    """Run the agent until SIGINT, SIGTERM or ``until``; ``announce`` gets the base URL once it answers.

    Raises:
        RunError: the address can't be listened on.
        InputError: an API key file can't be read.
    """
    host, port = parse_listen(settings.listen, where="listen")
    listener = bind(host, port)
    agent = Agent(settings, simulated_state=simulated_state)
    server = HttpServer(build_app(agent.board, host_names=_host_names()), listener)
    async with agent.polling() as polling:
        http = asyncio.create_task(server.run_forever())
        stopped = asyncio.create_task(_stop_signal(until or asyncio.Event()))
        announce(f"http://{_shown_host(host)}:{listener.getsockname()[1]}")
        await asyncio.wait({polling, http, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        server.stop()
        await http
        if polling.done():
            polling.result()


async def collect_once(settings: Settings, *, simulated_state: Path | None = None) -> Snapshot:
    """Read every source once, or wait for its failure, and give one snapshot."""
    agent = Agent(settings, simulated_state=simulated_state)
    async with agent.polling():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ONCE_SECONDS):
                while not agent.board.has_heard_of(_expected(agent.sources)):  # noqa: ASYNC110 - a few polls, then done
                    await asyncio.sleep(ONCE_POLL_SECONDS)
        return agent.board.tick().snapshot


def _expected(sources: Sequence[Source]) -> frozenset[tuple[str, str]]:
    """The collectors that must have reported once before a snapshot is whole."""
    wanted = {("nvml", "")}
    for source in sources:
        name = source.watch.facts.name
        wanted.add(("endpoint", name))
        wanted |= {("processes", name)} if source.tree else set()
        wanted |= {("model", name)} if source.model else set()
    return frozenset(wanted)


async def _stop_signal(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(ValueError):  # not in the main thread
            loop.add_signal_handler(number, stop.set)
    await stop.wait()


def _own_addresses() -> frozenset[str]:
    found = {address.address.partition("%")[0] for nic in psutil.net_if_addrs().values() for address in nic}
    return frozenset(found) | _host_names() | {"localhost"}


def _host_names() -> frozenset[str]:
    return frozenset(name.lower() for name in (socket.gethostname(), socket.getfqdn(), "localhost"))


def _is_local(url: str, addresses: frozenset[str]) -> bool:
    host = (parse_base_url(url).host or "").lower()
    return host in addresses or host.startswith("127.")


def _shown_host(host: str) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - shown, not bound
    return f"[{host}]" if ":" in host else host
