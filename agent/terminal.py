"""A snapshot as text: one table per device and server, readable in 80 columns."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from io import StringIO

from msgspec.structs import replace
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from agent.memory.risk import Risk
from agent.memory.transients import Transient
from agent.memory.units import duration_text
from agent.printable import all_printable
from agent.risk_words import sentence, what_to_do
from agent.snapshot import FULL_RATIO, Collector, Device, Fragmentation, Log, Pool, Rank, Server, Snapshot, Upgrade
from agent.sources import explained

GIB = 2**30
MOSTLY_LONG = 0.5


def print_snapshot(snapshot: Snapshot, *, explain: bool, console: Console | None = None) -> None:
    """Print devices, servers and failing collectors; ``explain`` adds how each number is known."""
    console = console or Console(highlight=False)
    snapshot = all_printable(snapshot)
    if snapshot.simulated:
        console.print("simulated node, not this host", style="bold")
    if snapshot.recording is not None:
        when = datetime.fromtimestamp(snapshot.time, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        console.print(f"recording {escape(snapshot.recording.file)} at {when}, not this host now", style="bold")
    for device in snapshot.devices:
        _print_device(console, snapshot, device, explain=explain)
    for server in snapshot.servers:
        _print_server(console, server, explain=explain)
    if not snapshot.devices:
        console.print("No device: nothing is known about GPU memory.")
    if not snapshot.servers:
        console.print("No server is configured, and none was found.")
    for collector in snapshot.collectors:
        if not collector.success:
            console.print(f"failed: {escape(_source(collector))}: {escape(collector.error or 'no reading yet')}")


def detail(snapshot: Snapshot, *, device: Device | None, server: Server | None, width: int) -> str:
    """A device, a server or both as plain text, with how each number is known; long sentences are not wrapped."""
    text = StringIO()
    console = Console(file=text, width=width, color_system=None, highlight=False)
    if device is not None:
        of = replace(snapshot, devices=(device,), servers=_on(device, snapshot), collectors=())
        printed = all_printable(of)
        _print_device(console, printed, printed.devices[0], explain=True)
    if server is not None:
        _print_server(console, all_printable(server), explain=True)
    return text.getvalue()


def _on(device: Device, snapshot: Snapshot) -> tuple[Server, ...]:
    names = {part.server for part in device.components}
    return tuple(server for server in snapshot.servers if server.name in names)


def _print_device(console: Console, snapshot: Snapshot, device: Device, *, explain: bool) -> None:
    console.print(f"gpu {device.gpu}  {device.name or ''}  {device.uuid}", style="bold", markup=False)
    if device.headroom_ratio is not None:
        rule = snapshot.thresholds.headroom_ratio
        low = f", below the {100 * rule:.4g}% rule" if device.headroom_ratio < rule else ""
        console.print(f"headroom {device.headroom_ratio:.1%} of {_gib(device.total_bytes)}{low}")
    console.print(_device(device, explain=explain))
    for line in (*_risk(device.risk, explain=explain), *_growing(device, explain=explain)):
        _say(console, line)
    for line in filter(None, (_room(server, room) for server, room in device.transients.items())):
        _say(console, line)
    for line in explained(snapshot, device) if explain else ():
        console.print(f"  {escape(line)}", soft_wrap=True)


def _print_server(console: Console, server: Server, *, explain: bool) -> None:
    facts = (server.name, f"{server.engine or ''} {server.version or ''}".strip(), server.state, server.url)
    console.print("  ".join(fact for fact in facts if fact), style="bold", markup=False)
    if server.pools:
        console.print(_pools(server))
    console.print(_counts(server), markup=False)
    for line in (*_risk(server.risk, explain=explain, is_down=server.state == "down"), *_filling(server)):
        _say(console, line)
    if server.upgrade is not None:
        _say(console, server.upgrade.summary)
        if explain:
            console.print(_upgrade(server.upgrade))
    for line in (*_fragmented(server), *_beside(server), *(_facts(server) if explain else ())):
        _say(console, line)


def _say(console: Console, sentence: str) -> None:
    """A sentence under what it is of; what goes on in a further line stands further in."""
    for number, line in enumerate(Text(sentence).wrap(console, max(20, console.width - 4))):
        console.print(("    " if number else "  ") + line.plain.rstrip(), markup=False, soft_wrap=True)


def _device(device: Device, *, explain: bool) -> Table:
    table = Table(box=None, pad_edge=False)
    for name, justify in (("component", "left"), ("server", "left"), ("live", "right"), ("share", "right")):
        table.add_column(name, justify="right" if justify == "right" else "left", overflow="fold")
    table.add_column("budget", justify="right")
    if explain:
        table.add_column("known by")
    budget = {(line.server, line.component): line.bytes for line in device.budget if line.bound == "likely"}
    for component, server, count, evidence in _rows(device):
        share = f"{count / device.total_bytes:.1%}" if device.total_bytes else ""
        row = [component, server, _gib(count), share, _gib(budget.get((server, component)))]
        table.add_row(*(escape(cell) for cell in row), *([evidence] if explain else []))
    table.add_row("total", "", _gib(device.total_bytes), "", "")
    for what, amounts in (("unexplained", device.unexplained_bytes), ("over-attributed", device.overattributed_bytes)):
        for server, count in amounts.items():
            if count:
                table.add_row(f"of it {what}", escape(server), _gib(count), "", "")
    return table


def _room(server: str, room: Transient) -> str | None:
    """A sentence on the highest peak of temporaries and the room for one; None where either is not known."""
    if room.peak_bytes is None or room.room_bytes is None:
        return None
    peak = f"{_gib(room.peak_bytes)} ({room.peak_evidence})"
    if room.is_short:
        return f"no room: a prefill of {server} needs {peak} for a moment, {_gib(room.room_bytes)} are there"
    return f"a prefill of {server} needs up to {peak} for a moment, {_gib(room.room_bytes)} are there"


def _fragmented(server: Server) -> Iterator[str]:
    """Each kind by its name; they are never summed."""
    for one in server.fragmentation:
        if one.kind == "allocator":
            rank = next((rank for rank in server.ranks if rank.gpu == one.gpu), None)
            yield _allocator(one, rank)
        else:
            of = f" of replica {one.replica}" if len(server.replicas) > 1 else ""
            yield f"fragmentation inside KV blocks{of}: {one.low:.1%} to {one.high:.1%} of the slots handed out"


def _allocator(one: Fragmentation, rank: Rank | None) -> str:
    text = f"fragmentation of the allocator on gpu {one.gpu}: {one.high:.1%} of what it reserves is not active"
    inside = rank.allocator if rank else None
    if inside is None:
        return text
    counts = (("out of memory", inside.ooms), ("retries of an allocation", inside.alloc_retries))
    told = [f"{what} {_count(number)} times" for what, number in counts if number]
    return ", ".join((text, *told))


def _rows(device: Device) -> Iterator[tuple[str, str, int, str]]:
    """Component, server, bytes, evidence; a server's KV parts are indented under their sum."""
    pools: set[str] = set()
    for part in device.components:
        if not part.component.startswith("kv_"):
            yield part.component, part.server, part.bytes, part.evidence
            continue
        if part.server not in pools:
            pools.add(part.server)
            parts = [p for p in device.components if p.server == part.server and p.component.startswith("kv_")]
            yield "kv_pool", part.server, sum(p.bytes for p in parts), ""
        yield f"  {part.component}", part.server, part.bytes, part.evidence


def _pools(server: Server) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("pool")
    for name in ("used", "of tokens", "ratio", "growth/s", "pool", "per token"):
        table.add_column(name, justify="right", overflow="fold")
    for pool in server.pools:
        ratio = "" if pool.used_ratio is None else f"{pool.used_ratio:.1%}"
        growth = "" if pool.growth_tokens_per_second is None else f"{pool.growth_tokens_per_second:+.1f}"
        slope = "" if pool.bytes_per_token is None else f"{pool.bytes_per_token:,} B"
        name = f"{pool.kind} {pool.replica}" if len(server.pools) > 1 else pool.kind
        table.add_row(
            escape(name),
            _count(pool.used_tokens),
            _count(pool.capacity_tokens),
            ratio,
            growth,
            _gib(pool.pool_bytes),
            slope,
        )
    return table


def _counts(server: Server) -> str:
    """Of its requests; of a server that tells nothing what it does instead."""
    counts = {"running": server.requests.running, "waiting": server.requests.waiting}
    counts["preemptions"] = server.counters.preemptions
    said = [f"{what} {_count(number)}" for what, number in counts.items()]
    if all(number is None for number in counts.values()):
        said = [server.state if server.state == "down" else f"{server.state}, no figures yet"]
        if server.age_seconds is not None:
            said.append(f"last answer {duration_text(server.age_seconds)} ago")
    return ", ".join([*said, f"restarts {_count(server.restarts)}"])


def _risk(risk: Risk | None, *, explain: bool, is_down: bool = False) -> Iterator[str]:
    """The level and its reason, with the numbers that it comes from and what to do; nothing while all is well."""
    told = sentence(risk, numbers=explain)
    page = what_to_do(risk, is_down=is_down) if explain else None
    yield from filter(None, (told, page))


def _filling(server: Server) -> Iterator[str]:
    """How long its pools have left."""
    for pool in server.pools:
        if pool.forecast is not None and pool.forecast.exhaustion_seconds.likely is not None:
            which = f"pool {pool.kind} {pool.replica}" if len(server.pools) > 1 else "pool"
            yield f"{which} {_left(pool)}"
        yield from _long(pool)


def _long(pool: Pool) -> Iterator[str]:
    """How much of its growth short requests do not explain, where that is most of it."""
    chains = pool.forecast.chains if pool.forecast is not None else None
    if chains is not None and chains.long_ratio is not None and chains.long_ratio >= MOSTLY_LONG:
        yield (
            f"at least {chains.long_ratio:.0%} of what running requests have added is in ones longer than "
            f"{chains.short_tokens:,} tokens; nine in ten that ended were shorter"
        )


def _left(pool: Pool) -> str:
    forecast = pool.forecast
    assert forecast is not None
    likely, early = forecast.exhaustion_seconds.likely, forecast.exhaustion_seconds.early
    if forecast.exhausted:
        roomy = pool.used_ratio is not None and pool.used_ratio < FULL_RATIO
        return f"{'ran out less than 2 min ago' if roomy else 'full'}: {forecast.outcome}"
    soonest = "" if early is None or early == likely else f", {duration_text(early)} at the soonest"
    return f"full in {duration_text(likely or 0.0)}{soonest}, then: {forecast.outcome}"


def _growing(device: Device, *, explain: bool) -> Iterator[str]:
    """What of a device is known to grow; with ``explain`` also what came or went at once."""
    if device.forecast is not None:
        likely = device.forecast.exhaustion_seconds.likely
        full = "" if likely is None else f"full in {duration_text(likely)}; "
        yield f"{full}{device.forecast.cause}"
    for step in device.steps if explain else ():
        yield f"step {duration_text(step.age_seconds)} ago: {step.owner} {step.bytes / GIB:+,.2f} GiB"


def _upgrade(upgrade: Upgrade) -> Table:
    """The run before beside this one, component by component."""
    table = Table(box=None, pad_edge=False)
    table.add_column("  gpu")
    table.add_column("component")
    for heading in (upgrade.from_version or "before", upgrade.to_version or "now", "difference"):
        table.add_column(escape(heading), justify="right")
    for moved in upgrade.components:
        sizes = (_gib(moved.before_bytes), _gib(moved.after_bytes), f"{moved.delta_bytes / GIB:+,.2f} GiB")
        table.add_row(f"  {escape(moved.gpu)}", moved.component, *sizes)
    return table


def _beside(server: Server) -> Iterator[str]:
    """What it has beside its pools and in no component: KV off its devices, adapters."""
    for one in server.offload:
        of = f" of replica {one.replica}" if one.replica is not None and len(server.replicas) > 1 else ""
        unit = "states" if one.kind == "state" else "tokens"
        amounts = (
            _amount(one.used_bytes, one.capacity_bytes, _gib),
            _amount(one.used_tokens, one.capacity_tokens, _in(unit)),
            _amount(one.used_blocks, one.capacity_blocks, _in("blocks")),
            "" if one.used_ratio is None else f"{one.used_ratio:.1%} used",
        )
        yield f"KV{of} elsewhere, {one.tier}: {', '.join(filter(None, (one.by, *amounts)))}"
    for adapters in server.adapters:
        slots = _amount(adapters.used_slots, adapters.slots, _in("slots"))
        named = (("running", adapters.running), ("waiting", adapters.waiting))
        shown = (f"{what} {', '.join(names)}" for what, names in named if names)
        yield f"LoRA adapters: {'; '.join(filter(None, (slots, *shown)))}"


def _in(unit: str) -> Callable[[int], str]:
    return lambda number: f"{number:,} {unit}"


def _amount(used: int | None, capacity: int | None, text: Callable[[int], str]) -> str:
    if used is None:
        return "" if capacity is None else f"room for {text(capacity)}"
    return text(used) if capacity is None else f"{text(used)} of {text(capacity)}"


def _facts(server: Server) -> Iterator[str]:
    """What is known about a server beside its memory."""
    yield "from the settings" if server.configured else "found by its process, not in the settings"
    if server.pids:
        yield f"pids {' '.join(map(str, server.pids))}"
    if server.model_path:
        yield f"model {server.model_path}"
    if server.container:
        names = {field: getattr(server.container, field) for field in server.container.__struct_fields__}
        yield "in " + ", ".join(f"{field.replace('_', ' ')} {value}" for field, value in names.items() if value)
    if server.log:
        yield from _log(server.log)
    if server.host_oom_kills:
        yield f"the host killed a process of its control group for want of memory {server.host_oom_kills} times"
    if server.arguments:
        yield "arguments " + ", ".join(f"{name} {value}" for name, value in server.arguments.items())
    yield from server.notes


def _log(log: Log) -> Iterator[str]:
    """What its log says, by rank or device, and what ran out."""
    for one in log.ranks:
        who = f"device {one.device}" if one.rank is None else f"rank tp {one.rank.tp_rank} pp {one.rank.pp_rank}"
        sizes = {name: getattr(one, name) for name in one.__struct_fields__ if name.endswith("_bytes")}
        shown = [
            f"{name.removesuffix('_bytes').replace('_', ' ')} {_gib(size)}" for name, size in sizes.items() if size
        ]
        if shown:
            yield f"log: {who}: {', '.join(shown)}"
    for kind, count in log.failures.items():
        if count:
            yield f"log: {kind} {count} times"
    if log.last_failure and log.last_failure.figures:
        figures = (f"{name} {value:,}" for name, value in log.last_failure.figures.items())
        yield f"log: last of them, {log.last_failure.kind}: {', '.join(figures)}"


def _source(collector: Collector) -> str:
    return f"{collector.name} {collector.target}".strip()


def _gib(count: int | None) -> str:
    return "" if count is None else f"{count / GIB:,.2f} GiB"


def _count(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"
