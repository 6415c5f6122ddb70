"""The fleet: the servers being watched, as settings name them and as they are found, each with the ways to read it.

A server in the settings is watched always; one that was only found, while its processes live and ten minutes longer.
Both are one when they share a local port: what settings say wins over what was found.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct

from agent.errors import InputError
from agent.memory.arguments import Arguments, merge
from agent.settings import ServerSettings, arguments_of, check_server, port_of
from agent.watch import ServerFacts, ServerWatch
from collectors.engine_logs.reader import LogReader
from collectors.errors import Unreadable
from collectors.http_text import Endpoint, parse_base_url
from collectors.model_files import read_engine, read_model
from collectors.readings import FoundServer, ModelFiles
from collectors.registry import ENGINES, Engine, EngineReader, engine_of

FORGET_SECONDS = 600.0
LOOPBACK = "127.0.0.1"
_UNNAMED = f"its engine is not known yet; set engine: of this server (--engine) to one of {', '.join(ENGINES)}"


class Source(Struct, frozen=True, kw_only=True):
    """The ways to read one server; ``model`` blocks, and is None where no path is known. ``close`` ends connections.

    ``log`` blocks too, and is None for an engine whose log says nothing.
    """

    watch: ServerWatch
    reader: EngineReader
    close: Callable[[], Awaitable[None]]
    model: Callable[[], ModelFiles] | None = None
    log: LogReader | None = None


class ServerSpec(Struct, frozen=True, kw_only=True):
    """Everything that decides how a server is read; another spec under the same name is read anew.

    ``engine`` is None while it is not known. ``flags`` it was started with, under the engine's names with dashes; None
    where nobody knows them.
    """

    name: str
    engine: str | None
    url: str
    settings: ServerSettings | None = None
    model: str | None = None
    network_pid: int | None = None
    flags: dict[str, int | float | str | bool] | None = None


class _Step(Struct, frozen=True, kw_only=True):
    """One server to be watched from now on; ``endpoint`` is a new connection, None where the old one stays."""

    spec: ServerSpec
    facts: ServerFacts
    found: FoundServer | None
    endpoint: Endpoint | None


class Fleet:
    """``watches`` is the list the board reads, changed in place. ``open_endpoint`` makes the connection of a spec;
    ``local_hosts`` are the names and addresses of this host. ``alone``: what is found only completes what settings
    name.
    """

    def __init__(
        self,
        servers: Sequence[ServerSettings],
        *,
        open_endpoint: Callable[[ServerSpec], Endpoint],
        local_hosts: frozenset[str],
        clock: Callable[[], float],
        alone: bool = False,
    ) -> None:
        self.watches: list[ServerWatch] = []
        self.sources: dict[str, Source] = {}
        self._open_endpoint = open_endpoint
        self._local_hosts = local_hosts
        self._clock = clock
        self._alone = alone
        self._specs: dict[str, ServerSpec] = {}
        self._logs: dict[str, LogReader] = {}  # they count, so they outlive the other ways of a server
        self._seen_at: dict[str, float] = {}
        self._engines: dict[str, str] = {}  # by URL, of those that settings leave out: as last found
        self._servers: Sequence[ServerSettings] = ()
        self._found: Sequence[FoundServer] = ()
        self.configure(servers)

    def configure(self, servers: Sequence[ServerSettings]) -> None:
        """Take the servers of (new) settings; those that stay as they were keep all that is remembered of them."""
        self.prepare(servers)()

    def prepare(self, servers: Sequence[ServerSettings]) -> Callable[[], None]:
        """What takes the servers of new settings; all that may fail is done before, and changes nothing."""
        return self._prepare(servers, self._found)

    @property
    def local_ports(self) -> dict[str, int]:
        """Port by name of the configured servers on this host, whose processes can be looked up."""
        return {server.label: port_of(server.url) for server in self._servers if self._is_local(server.url)}

    def found(self, servers: Sequence[FoundServer]) -> None:
        """Take what is found now; a server whose key can't be read any more is read as it was."""
        self._prepare(self._servers, servers, keeps=True)()

    def named(self, watch: ServerWatch, engine: str) -> None:
        """Take which engine a server of the settings says it is; it is read as that from now on.

        Raises:
            Unreadable: it can't be, for the settings name what can't be read any more.
        """
        self._engines[watch.facts.url] = engine
        try:
            self._prepare(self._servers, self._found)()
        except InputError as error:
            del self._engines[watch.facts.url]
            raise Unreadable("settings", error.message) from error

    def _prepare(
        self, configured: Sequence[ServerSettings], found: Sequence[FoundServer], *, keeps: bool = False
    ) -> Callable[[], None]:
        by_port = {one.port: one for one in found if one.network_pid is None and one.port is not None}
        matches = {one.label: by_port.get(port_of(one.url)) for one in configured if self._is_local(one.url)}
        taken = {match.port for match in matches.values() if match is not None}
        others = [] if self._alone else [one for one in found if one.network_pid is not None or one.port not in taken]
        named = self._named(others, reserved={server.label for server in configured})
        steps = [
            self._step(self._configured(one, matches.get(one.label)), matches.get(one.label), keeps=keeps)
            for one in configured
        ]
        steps += [self._step(self._spec(name, one), one) for name, one in named.items()]

        def take() -> None:
            now = self._clock()
            self._servers, self._found = configured, found
            for step in steps:
                self._watch(step)
            self._seen_at |= dict.fromkeys(named, now)
            self._forget(now, {step.spec.name for step in steps})

        return take

    def _configured(self, server: ServerSettings, match: FoundServer | None) -> ServerSpec:
        model = server.model or (match.model if match else None)
        url = str(parse_base_url(server.url)).rstrip("/")
        flags = _flags(server, match)
        if match is not None:
            self._engines[url] = match.engine
        engine = server.engine or self._engines.get(url)
        return ServerSpec(name=server.label, engine=engine, url=url, settings=server, model=model, flags=flags)

    def _spec(self, name: str, found: FoundServer) -> ServerSpec:
        known = self._specs.get(name)
        planned = f"http://{LOOPBACK}:{found.port}" if found.port is not None else ""
        url = found.url or (known.url if known else planned)
        return ServerSpec(
            name=name,
            engine=found.engine,
            url=url,
            model=found.model,
            network_pid=found.network_pid,
            flags=found.arguments,
        )

    def _named(self, servers: Sequence[FoundServer], *, reserved: set[str]) -> dict[str, FoundServer]:
        """By model and port, with a number behind it where several have the same.

        A process keeps its name while it lives; one that was started anew goes on under the name of the one it follows.
        """
        before = {watch.tree.processes[0].pid: watch.facts.name for watch in self.watches if watch.tree}
        named: dict[str, FoundServer] = {}
        fresh = []
        for one in servers:
            name = before.get(one.tree.processes[0].pid, "")
            if _label(one) in (name, name.rpartition("-")[0]) and name not in reserved | named.keys():
                named[name] = one
            else:
                fresh.append(one)
        for one in fresh:
            label, number = _label(one), 1
            name = label
            while name in reserved or name in named:
                number += 1
                name = f"{label}-{number}"
            named[name] = one
        return named

    def _step(self, spec: ServerSpec, found: FoundServer | None, *, keeps: bool = False) -> _Step:
        known = self._specs.get(spec.name)
        try:
            endpoint = self._open_endpoint(spec) if known != spec and spec.url else None
        except InputError:
            if not keeps or known is None:
                raise
            spec, endpoint = known, None
        given, unused = _given(spec)
        facts = ServerFacts(
            name=spec.name,
            engine=spec.engine,
            url=spec.url,
            given=given,
            command=_command(found) if found else None,
            version=found.version if found else None,
            devices=spec.settings.devices if spec.settings else (),
            on_this_host=found is not None or self._is_local(spec.url),
            configured=spec.settings is not None,
            model_path=spec.model,
            log=spec.settings.log if spec.settings else None,
            notes=(*(found.notes if found else ()), *unused, *_unread_log(spec)),
        )
        return _Step(spec=spec, facts=facts, found=found, endpoint=endpoint)

    def _watch(self, step: _Step) -> None:
        spec, found, engine = step.spec, step.found, engine_of(step.spec.engine)
        watch = self._by_name().get(spec.name)
        if watch is None or watch.facts.engine != spec.engine:
            place = len(self.watches) if watch is None else self.watches.index(watch)
            self._drop(spec.name)
            watch = ServerWatch(step.facts, rank_of=engine.rank_of, is_one_process=engine.is_one_process)
            self.watches.insert(place, watch)
        watch.facts = step.facts
        if (known := self._specs.get(spec.name)) is not None and known.model != spec.model:
            watch.forget_model()
        watch.may_ask = spec.settings is not None or (found is not None and found.listening)
        if step.endpoint is not None:
            self.sources[spec.name] = Source(
                watch=watch,
                reader=engine.open(step.endpoint, clock=self._clock, flags=spec.flags),
                close=step.endpoint.aclose,
                model=_model(engine, spec.model),
                log=self._log(spec),
            )
        self._specs[spec.name] = spec
        if found is not None:
            watch.saw(found.tree)

    def _log(self, spec: ServerSpec) -> LogReader | None:
        log = engine_of(spec.engine).log
        if log is None:
            return None
        return self._logs.setdefault(spec.name, LogReader(log, clock=self._clock))

    def _forget(self, now: float, present: set[str]) -> None:
        """Mark what is not present as down; drop what has not been for too long."""
        for name, watch in self._by_name().items():
            if name in present:
                continue
            watch.may_ask = False
            watch.lost()
            watch.saw(None)
            if now - self._seen_at.get(name, float("-inf")) > FORGET_SECONDS:
                self._drop(name)

    def _drop(self, name: str) -> None:
        self.watches[:] = [watch for watch in self.watches if watch.facts.name != name]
        self.sources.pop(name, None)
        self._specs.pop(name, None)
        self._logs.pop(name, None)
        self._seen_at.pop(name, None)

    def _by_name(self) -> dict[str, ServerWatch]:
        return {watch.facts.name: watch for watch in self.watches}

    def _is_local(self, url: str) -> bool:
        host = parse_base_url(url).host
        return host in self._local_hosts or host.startswith("127.")


def _model(engine: Engine, path: str | None) -> Callable[[], ModelFiles] | None:
    read = read_model if engine.holds_checkpoint else read_engine if engine.holds_engine else None
    return partial(read, Path(path)) if path and read else None


def _label(found: FoundServer) -> str:
    model = Path(found.served_name or found.model or found.engine).name
    return model if found.port is None else f"{model}:{found.port}"


def _given(spec: ServerSpec) -> tuple[Arguments, tuple[str, ...]]:
    """What settings say it was started with, and what is to be said of that; flags of another engine are left out."""
    if spec.settings is None:
        return Arguments(engine=spec.engine or ""), ()
    if spec.engine is not None and spec.settings.engine is None:
        return _fitting(spec.settings.arguments, spec.engine)
    return check_server(spec.settings, spec.name), () if spec.engine else (_UNNAMED,)


def _unread_log(spec: ServerSpec) -> tuple[str, ...]:
    if spec.engine is None or spec.settings is None or spec.settings.log is None or ENGINES[spec.engine].log:
        return ()
    return (f"log {spec.settings.log}: what the log of {spec.engine} says is not known, so it is not read",)


def _flags(server: ServerSettings, match: FoundServer | None) -> dict[str, int | float | str | bool] | None:
    """As found and as settings say, which win."""
    given = {name.lstrip("-").replace("_", "-"): value for name, value in server.arguments.items()}
    return {**(match.arguments if match else {}), **given} if match or given else None


def _command(found: FoundServer) -> Arguments:
    """The command line's flags as arguments; a flag that means nothing here, or a value out of range, is left out."""
    known, _ = _fitting(found.arguments, found.engine)
    return known


def _fitting(flags: Mapping[str, object], engine: str) -> tuple[Arguments, tuple[str, ...]]:
    """The flags as the engine's arguments, and why those are left out that are none."""
    known = Arguments(engine=engine)
    unused = []
    for flag, value in flags.items():
        try:
            known = merge(known, arguments_of({flag: value}, engine=engine))
        except ValueError as error:
            unused.append(f"not used: {error}")
    return known, tuple(unused)
