"""Which alarms are on at a snapshot, as far as what is exported says: each rule gives the subjects it is on for. Pure.

A rule is a plain function, so what comes to be known of a snapshot (a forecast, a level of risk) is one more here.
"""

from collections.abc import Callable, Iterator

from msgspec import Struct

from agent.snapshot import Device, Server, Snapshot

POOL_RATIO = 0.90
TREND_RATIO, TREND_SECONDS, TREND_REACHES = 0.80, 300.0, 1.2
"""Level and trend together: at 0.8 of the pool and, going on like this for 5 minutes, at 1.2 of it."""
HEADROOM_RATIO = 0.10
FREE_RATIO = 0.02


class Rule(Struct, frozen=True, kw_only=True):
    """``name`` for scripts, ``says`` for people; ``on_for`` gives servers by name and devices as ``gpu N``."""

    name: str
    says: str
    on_for: Callable[[Snapshot], Iterator[str]]


def _servers(is_on: Callable[[Server], bool]) -> Callable[[Snapshot], Iterator[str]]:
    return lambda snapshot: (server.name for server in snapshot.servers if is_on(server))


def _devices(is_on: Callable[[Device], bool]) -> Callable[[Snapshot], Iterator[str]]:
    return lambda snapshot: (f"gpu {device.gpu}" for device in snapshot.devices if is_on(device))


def _pool_is_high(server: Server) -> bool:
    return any(pool.used_ratio is not None and pool.used_ratio >= POOL_RATIO for pool in server.pools)


def _pool_fills(server: Server) -> bool:
    return any(
        pool.used_ratio is not None
        and pool.used_ratio >= TREND_RATIO
        and pool.capacity_tokens
        and pool.used_ratio + TREND_SECONDS * (pool.growth_tokens_per_second or 0.0) / pool.capacity_tokens
        >= TREND_REACHES
        for pool in server.pools
    )


def _headroom_is_low(device: Device) -> bool:
    return device.headroom_ratio is not None and device.headroom_ratio < HEADROOM_RATIO


def _is_full(device: Device) -> bool:
    known = device.free_bytes is not None and device.total_bytes
    return bool(known) and (device.free_bytes or 0) < FREE_RATIO * (device.total_bytes or 0)


RULES: tuple[Rule, ...] = (
    Rule(
        name="kv_pool_fills",
        says=f"KV pool above {TREND_RATIO:.0%}, and full within {TREND_SECONDS / 60:.0f} min as it grows",
        on_for=_servers(_pool_fills),
    ),
    Rule(name="kv_pool_high", says=f"KV pool above {POOL_RATIO:.0%}", on_for=_servers(_pool_is_high)),
    Rule(name="headroom_low", says=f"headroom below {HEADROOM_RATIO:.0%}", on_for=_devices(_headroom_is_low)),
    Rule(name="device_full", says=f"less than {FREE_RATIO:.0%} of the GPU free", on_for=_devices(_is_full)),
    Rule(
        name="unexplained",
        says="runtime above the budget's high bound",
        on_for=_devices(lambda device: any(device.unexplained_bytes.values())),
    ),
)


class Spell(Struct, kw_only=True):
    """A time in which a rule was on for a subject; wall clock."""

    rule: str
    subject: str
    since: float
    until: float


class Alarms:
    """When which rule was on, over the ticks of a recording."""

    def __init__(self, rules: tuple[Rule, ...] = RULES, *, most: int = 2000) -> None:
        self.rules = rules
        self.spells: list[Spell] = []
        self._on: dict[tuple[str, str], Spell] = {}
        self._most = most

    def take(self, snapshot: Snapshot) -> None:
        """Take one tick."""
        now = {(rule.name, subject) for rule in self.rules for subject in rule.on_for(snapshot)}
        for key in [key for key in self._on if key not in now]:
            del self._on[key]
        for key in now:
            if (spell := self._on.get(key)) is not None:
                spell.until = snapshot.time
            elif len(self.spells) < self._most:
                self._on[key] = Spell(rule=key[0], subject=key[1], since=snapshot.time, until=snapshot.time)
                self.spells.append(self._on[key])
