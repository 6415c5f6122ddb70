"""The two tables: a row for each GPU, and for each server with a row for each further pool of it."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from msgspec import Struct
from rich.style import Style
from rich.text import Text

from agent.memory.levels import LEVELS, Level
from agent.memory.risk import Risk
from agent.snapshot import Device, Pool, Server, Snapshot
from agent.top import words
from agent.top.changes import Key, of_generation, of_pool
from agent.top.columns import Column, table
from agent.top.parts import bar, pool_bar

Sort = Literal["risk", "left", "used", "name"]
SORTS: tuple[Sort, ...] = ("risk", "left", "used", "name")
STALE_SECONDS = 5.0
_LEFT = len("119 min")
_RISK = len("critical pool fills")
"""Figures stay where they are while they and the risk change: columns have the width of what is to be expected."""
GREY = Style(color="bright_black")
Standing = Level | Literal["down"] | None
"""How grave it is about something: its level of risk, or that it is down; None where that is not known."""
STANDINGS: tuple[Standing, ...] = ("ok", None, *LEVELS[1:], "down")
RISKY: dict[Standing, Style] = {
    "watch": Style(color="yellow"),
    "at_risk": Style(color="red"),
    "critical": Style(color="red", bold=True),
    "down": Style(color="red", bold=True),
}


class Drawn(Struct, frozen=True, kw_only=True):
    """How all is drawn: ``colours`` as the terminal has them, ``current``: what is shown is of now.

    ``changes``: tokens per second as they were seen here.
    """

    width: int
    colours: bool
    current: bool = True
    changes: Mapping[Key, float] = {}

    @property
    def is_wide(self) -> bool:
        """Whether there is room for reasons and whole names."""
        return self.width >= 60

    @property
    def of_risk(self) -> int:
        """Cells that a risk takes."""
        return _RISK if self.is_wide else len("critical")


class Table(Struct, frozen=True, kw_only=True):
    """A heading, and lines with the key of what each is of: ``gpu UUID`` or ``server NAME``."""

    heading: Text
    lines: tuple[tuple[str, Text], ...]


class Row(Struct, frozen=True, kw_only=True):
    """A server with one of its pools; ``is_first``: the row that tells of the server itself."""

    server: Server
    pool: Pool | None
    is_first: bool


def devices(records: tuple[Device, ...], servers: tuple[Server, ...], *, sort: Sort, drawn: Drawn) -> Table:
    """A row for each GPU."""
    rows = sorted(records, key=lambda one: (*_rank(sort, *_of_device(one)), one.index, one.gpu))
    old = [one.age_seconds is None or one.age_seconds > STALE_SECONDS for one in rows]

    def drawn_bar(row: int, width: int) -> Text:
        return bar(rows[row], width, colours=drawn.colours and drawn.current and not old[row])

    forecasts = [one.forecast.exhaustion_seconds if one.forecast else None for one in rows]
    lefts = map(words.left, forecasts)
    least = 24 if drawn.is_wide else 12
    columns = [
        Column(title="GPU", cells=_texts(one.gpu for one in rows), left=True, least=3),
        Column(
            title="MEMORY",
            cells=_texts("" for _ in rows),
            elastic=True,
            least=least,
            drawn=drawn_bar,
        ),
        Column(title="USED GiB", cells=_texts(words.gib(_used(one), one.total_bytes) for one in rows), priority=1),
        Column(title="HEADROOM", cells=_texts(words.ratio(one.headroom_ratio) for one in rows), priority=2),
        *([Column(title="LEFT", cells=_texts(lefts), least=_LEFT, priority=3)] if any(forecasts) else []),
        Column(title="NAME", cells=_texts(map(_short, rows)), left=True, priority=6),
        Column(title="SERVERS", cells=_texts(_names(one, servers) for one in rows), left=True, priority=5),
        Column(title="RISK", cells=tuple(_device_risk(one, drawn) for one in rows), left=True, least=drawn.of_risk),
    ]
    return _finished(columns, [f"gpu {one.uuid}" for one in rows], drawn, old)


def servers(records: tuple[Server, ...], *, sort: Sort, drawn: Drawn) -> Table:
    """A row for each server with its first pool, and one for each further pool."""
    ranked = sorted(records, key=lambda one: (*_rank(sort, *_of_server(one)), one.name))
    rows = [row for server in ranked for row in _of(server)]
    names = _texts(map(_label, rows))
    least = min(18 if drawn.is_wide else 8, max((name.cell_len for name in names), default=0))
    old = [row.server.age_seconds is None or row.server.age_seconds > STALE_SECONDS for row in rows]

    def drawn_bar(row: int, width: int) -> Text:
        pool = rows[row].pool
        ratio = None if pool is None else pool.used_ratio
        return pool_bar(ratio, width, colours=drawn.colours and drawn.current and not old[row])

    columns = [
        Column(title="SERVER", cells=names, left=True, least=max(6, least), elastic=True),
        Column(title="POOL", cells=_texts("" for _ in rows), elastic=True, least=8, priority=10, drawn=drawn_bar),
        *_of_pools(rows, drawn.changes),
        *_of_requests(rows, drawn.changes),
        Column(title="RISK", cells=tuple(_server_risk(row, drawn) for row in rows), left=True, least=drawn.of_risk),
    ]
    return _finished(columns, [f"server {row.server.name}" for row in rows], drawn, old)


def gravest(snapshot: Snapshot | None) -> str | None:
    """The key of what stands worst; of several the first GPU, else the first server."""
    found = {} if snapshot is None else standings(snapshot)
    return max(found, key=lambda key: STANDINGS.index(found[key]), default=None)


def standings(snapshot: Snapshot) -> dict[str, Standing]:
    """How grave it is about each, by its key."""
    gpus = {f"gpu {one.uuid}": _standing(one.risk) for one in snapshot.devices}
    return {**gpus, **{f"server {one.name}": _of_state(one) for one in snapshot.servers}}


def _of(server: Server) -> list[Row]:
    pools: list[Pool | None] = [*sorted(server.pools, key=_nearest)] or [None]
    return [Row(server=server, pool=pool, is_first=number == 0) for number, pool in enumerate(pools)]


def _of_pools(rows: list[Row], changes: Mapping[Key, float]) -> list[Column]:
    pools = [row.pool for row in rows]
    ratios = [None if pool is None else pool.used_ratio for pool in pools]
    forecasts = [None if pool is None else pool.forecast for pool in pools]
    lefts = [None if one is None else one.exhaustion_seconds for one in forecasts]
    known = list(zip(lefts, ratios, strict=True))
    return [
        Column(title="USED", cells=_texts(map(words.ratio, ratios)), least=6),
        Column(title="TOKENS", cells=_texts(map(_tokens, pools)), least=13, priority=9),
        Column(title="GROWTH", cells=_texts(_growth(row, changes) for row in rows), least=7, priority=4),
        Column(title="LEFT", cells=_texts(words.left(one, used) for one, used in known), least=_LEFT, priority=1),
        Column(
            title="EARLY",
            cells=_texts(words.left(one, used, early=True) for one, used in known),
            least=_LEFT,
            priority=7,
        ),
    ]


def _of_requests(rows: list[Row], changes: Mapping[Key, float]) -> list[Column]:
    generated = _first(rows, lambda one: words.count(changes.get(of_generation(one))))
    return [
        Column(title="RUN", cells=_first(rows, lambda one: words.count(one.requests.running)), least=4, priority=3),
        Column(title="WAIT", cells=_first(rows, lambda one: words.count(one.requests.waiting)), least=4, priority=2),
        Column(title="TOK/S", cells=generated, least=5, priority=6),
        Column(title="PRE", cells=_first(rows, lambda one: words.count(one.counters.preemptions)), least=5, priority=8),
        Column(title="CHAINS", cells=_texts(_chains(row.pool) for row in rows), left=True, priority=11),
        Column(title="ENGINE", cells=_first(rows, _engine), left=True, priority=12),
    ]


def _finished(columns: list[Column], keys: list[str], drawn: Drawn, old: list[bool]) -> Table:
    heading, lines = table(columns, drawn.width)
    for line, is_old in zip(lines, old, strict=True):
        if drawn.colours and (is_old or not drawn.current):
            line.stylize_before(GREY)
    return Table(heading=heading, lines=tuple(zip(keys, lines, strict=True)))


def _texts(cells: Iterable[str]) -> tuple[Text, ...]:
    return tuple(Text(words.name(cell)) for cell in cells)


def _first(rows: list[Row], tell: Callable[[Server], str]) -> tuple[Text, ...]:
    """What is said of a server once, in the row of its first pool."""
    return _texts(tell(row.server) if row.is_first else "" for row in rows)


def _standing(risk: Risk | None) -> Standing:
    return None if risk is None else risk.level


def _of_state(server: Server) -> Standing:
    return "down" if server.state == "down" else _standing(server.risk)


def _rank(sort: Sort, standing: Standing, seconds: float | None, used: float | None) -> tuple[float, ...]:
    level = -STANDINGS.index(standing)
    soon = math.inf if seconds is None else seconds
    full = -(used or 0.0)
    return {"risk": (level, soon), "left": (soon, level), "used": (full,), "name": ()}[sort]


def _of_device(device: Device) -> tuple[Standing, float | None, float | None]:
    seconds = device.forecast.exhaustion_seconds.likely if device.forecast else None
    used = _used(device)
    ratio = used / device.total_bytes if used is not None and device.total_bytes else None
    return _standing(device.risk), seconds, ratio


def _of_server(server: Server) -> tuple[Standing, float | None, float | None]:
    seconds = [left for pool in server.pools if (left := _left(pool)) is not None]
    used = [pool.used_ratio for pool in server.pools if pool.used_ratio is not None]
    return _of_state(server), min(seconds, default=None), max(used, default=None)


def _nearest(pool: Pool) -> tuple[float, float]:
    seconds = _left(pool)
    return math.inf if seconds is None else seconds, -(pool.used_ratio or 0.0)


def _left(pool: Pool) -> float | None:
    return pool.forecast.exhaustion_seconds.likely if pool.forecast else None


def _used(device: Device) -> int | None:
    if device.total_bytes is None or device.free_bytes is None:
        return None
    return device.total_bytes - device.free_bytes


def _short(device: Device) -> str:
    """What kind of GPU it is, without who made it."""
    return (device.name or words.UNKNOWN).removeprefix("NVIDIA ")


def _names(device: Device, records: tuple[Server, ...]) -> str:
    names = [one.name for one in records if device.uuid in one.devices]
    return f"{names[0]} +{len(names) - 1}" if len(names) > 1 else "".join(names) or words.UNKNOWN


def _device_risk(device: Device, drawn: Drawn) -> Text:
    if device.health is not None and device.health.lost:
        return Text("LOST", RISKY["critical"] if drawn.colours else "")
    if device.age_seconds is None:
        return Text("no reading")
    if device.age_seconds > STALE_SECONDS:
        return Text(f"{device.age_seconds:.0f} s old")
    return _risk(device.risk, drawn)


def _server_risk(row: Row, drawn: Drawn) -> Text:
    """What a server does that does not serve, before anything but a risk."""
    if not row.is_first:
        return Text()
    server, standing = row.server, _of_state(row.server)
    if standing == "down":
        return Text(words.down(server.risk, reason=drawn.is_wide), _style(standing, drawn))
    if standing in ("ok", None) and server.state != "serving":
        return Text(server.state)
    return _risk(server.risk, drawn)


def _risk(risk: Risk | None, drawn: Drawn) -> Text:
    return Text(words.risk(risk, reason=drawn.is_wide), _style(_standing(risk), drawn))


def _style(standing: Standing, drawn: Drawn) -> Style | str:
    return RISKY.get(standing, "") if drawn.colours and drawn.current else ""


def _label(row: Row) -> str:
    if row.is_first or row.pool is None:
        return row.server.name
    several = len({one.replica for one in row.server.pools}) > 1
    return f"  {row.pool.kind} {row.pool.replica}" if several else f"  {row.pool.kind}"


def _growth(row: Row, changes: Mapping[Key, float]) -> str:
    """As the agent tells it; else, marked, as it was seen here."""
    if row.pool is None:
        return words.UNKNOWN
    if row.pool.growth_tokens_per_second is not None:
        return words.growth(row.pool.growth_tokens_per_second)
    seen = changes.get(of_pool(row.server, row.pool))
    return words.UNKNOWN if seen is None else f"~{words.growth(seen)}"


def _tokens(pool: Pool | None) -> str:
    if pool is None or pool.used_tokens is None:
        return words.UNKNOWN
    return f"{words.count(pool.used_tokens)}/{words.count(pool.capacity_tokens)}"


def _chains(pool: Pool | None) -> str:
    """The mean of them, and of how few most is."""
    chains = pool.forecast.chains if pool and pool.forecast else None
    if chains is None:
        return words.UNKNOWN
    few = f", {chains.few} hold {chains.few_ratio:.0%}" if chains.few and chains.few_ratio is not None else ""
    return f"mean {words.count(chains.mean_tokens)}{few}"


def _engine(server: Server) -> str:
    return f"{server.engine or ''} {server.version or ''}".strip()
