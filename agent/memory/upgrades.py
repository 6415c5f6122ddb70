"""A server's memory before and after a restart: when it lies still, what it is compared with, what moved and why.

The settled breakdown of a run is what its components were the last time they had lain still for a while. Compared are
components that are known in both runs. What is told apart in one of them only lies in `runtime` of the other, so there
it is counted to `runtime` too: a difference is never made of what merely got a name.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from agent.memory.planners.registry import CHANGES
from agent.memory.units import MIB, shown, size_text
from collectors.readings import Evidence

SMALL_BYTES = 64 * MIB
"""A component that moves by no more lies still: allocators take and give segments of 2 and 20 MiB."""
REST = "runtime"
MAX_TEXT = 4096
_NAMES = {"kv_pool": "KV pool", "cuda_graphs": "CUDA graphs"}

Count = Annotated[int, Meta(ge=0, le=1 << 62)]
Number = Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)]
Text = Annotated[str, Meta(max_length=MAX_TEXT)]
Value = Number | float | Text | bool | tuple[Number, ...]


class Share(Struct, frozen=True, kw_only=True):
    """Bytes by component that a server holds on one device, and how each is known; `kv_pool` is the whole pool."""

    uuid: Text
    components: dict[str, Count]
    evidence: dict[str, Evidence] = {}


class Run(Struct, frozen=True, kw_only=True):
    """One run of a server, from its start to its end, as it lay still at ``settled_at``. Times are wall clock.

    ``devices`` are in the order of ranks, ``arguments`` those that decide about memory.
    """

    engine: Text
    version: Text | None = None
    model: Text | None = None
    model_path: Text | None = None
    started_at: float | None = None
    settled_at: float
    capacity_tokens: Count | None = None
    arguments: dict[str, Value] = {}
    devices: tuple[Share, ...] = ()


class Record(Struct, frozen=True, kw_only=True):
    """What is remembered of a server: its present or last run, the one to compare it with, and since when."""

    current: Run
    before: Run | None = None
    since: float | None = None


class Moved(Struct, frozen=True, kw_only=True):
    """A component in both runs; ``uuid`` is the device of the later one."""

    uuid: str
    component: str
    before_bytes: int
    after_bytes: int

    @property
    def delta_bytes(self) -> int:
        return self.after_bytes - self.before_bytes


class Comparison(Struct, frozen=True, kw_only=True):
    """Two runs side by side; ``causes`` are what is known to differ between them, one phrase each."""

    components: tuple[Moved, ...]
    causes: tuple[str, ...]


class Settling:
    """Decides when a server's memory lies still: it has been serving for a while and nothing has moved since."""

    def __init__(self) -> None:
        self._first: Run | None = None
        self._since = 0.0

    def take(self, run: Run | None, at: float, *, seconds: float) -> bool:
        """Take what the server holds at a moment (monotonic), None while it does not serve; True once it lay still
        for so many seconds."""
        if run is None or self._first is None or not _alike(self._first, run):
            self._first, self._since = run, at
            return False
        return at - self._since >= seconds


def is_same_run(one: Run, other: Run, *, slack_seconds: float) -> bool:
    """Whether both are of one run, by engine, version and start; what is not known speaks for it."""
    if one.engine != other.engine or _differ(one.version, other.version):
        return False
    if one.started_at is None or other.started_at is None:
        return True
    return abs(one.started_at - other.started_at) <= slack_seconds


def advanced(known: Record | None, run: Run, *, slack_seconds: float) -> Record:
    """What is remembered once a run has settled; ``known`` itself where there is nothing new.

    A run that settles again after it moved replaces what it was, unless less is known now. A restart in which nothing
    changed is beside nothing of its own, and leaves the comparison with another version in place, so that a crash
    neither looks like an upgrade nor hides one.
    """
    if known is None:
        return Record(current=run)
    current, before = known.current, known.before
    if is_same_run(current, run, slack_seconds=slack_seconds):
        return known if _alike(current, run) or _knows_less(run, current) else replace(known, current=run)
    if (before is None or before.version != run.version) and _alike(current, run):
        return replace(known, current=run)
    return Record(before=current, current=run, since=run.settled_at if run.started_at is None else run.started_at)


def compare(before: Run, after: Run) -> Comparison:
    """The later run beside the earlier, component by component, and what is known to differ."""
    pairs = list(_pairs(before, after))
    return Comparison(
        components=tuple(moved for old, new in pairs for moved in _moved(old, new)),
        causes=(*_changes(before, after), *_differences(before, after), *_untold(pairs)),
    )


def summary(before: Run, after: Run, found: Comparison) -> str:
    """One line for a person: the versions, what changed, and what moved by more than little, over all devices."""
    total: dict[str, int] = {}
    for moved in found.components:
        total[moved.component] = total.get(moved.component, 0) + moved.delta_bytes
    large = sorted((one for one in total.items() if abs(one[1]) > SMALL_BYTES), key=lambda one: -abs(one[1]))
    moves = ", ".join(f"{name_of(component)} {delta_text(delta)}" for component, delta in large)
    devices = len({moved.uuid for moved in found.components})
    if not found.components:
        moves = "nothing to compare"
    elif not moves:
        moves = f"no component moved by more than {size_text(SMALL_BYTES)}"
    over = f" over {devices} devices" if devices > 1 else ""
    return f"since {_change(before, after)}: {'; '.join((*found.causes, moves))}{over}"


def name_of(component: str) -> str:
    """A component as people call it."""
    return _NAMES.get(component, component.replace("_", " "))


def delta_text(delta: int) -> str:
    """A difference in bytes with its sign."""
    return f"{'-' if delta < 0 else '+'}{size_text(abs(delta))}"


def _change(before: Run, after: Run) -> str:
    if before.version == after.version:
        return f"the restart of {after.version}" if after.version else "the restart"
    return f"{before.version or 'an unknown version'} -> {after.version or 'an unknown version'}"


def _pairs(before: Run, after: Run) -> Iterator[tuple[Share, Share]]:
    """A device and itself; where the server is on other devices than before, rank by rank if there are as many."""
    old = {share.uuid: share for share in before.devices}
    if any(share.uuid in old for share in after.devices):
        return ((old[share.uuid], share) for share in after.devices if share.uuid in old)
    return zip(before.devices, after.devices, strict=True) if len(old) == len(after.devices) else iter(())


def _moved(old: Share, new: Share) -> Iterator[Moved]:
    before, after = _on_one_footing(old.components, new.components), _on_one_footing(new.components, old.components)
    for component, count in after.items():
        yield Moved(uuid=new.uuid, component=component, before_bytes=before[component], after_bytes=count)


def _on_one_footing(components: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """The components that the other run knows too; what it can't tell apart is in its rest."""
    shared = {name: count for name, count in components.items() if name in other}
    if REST in shared:
        shared[REST] += sum(count for name, count in components.items() if name not in other)
    return shared


def _changes(before: Run, after: Run) -> Iterator[str]:
    known = CHANGES.get(after.engine)
    if known is None or before.engine != after.engine or before.version is None or after.version is None:
        return
    for change in known(before.version, after.version):
        name = change.ruled_out_by
        values = (before.arguments.get(name), after.arguments.get(name)) if name else (None, None)
        if values[0] is None or values[0] != values[1]:
            yield change.text


def _differences(before: Run, after: Run) -> Iterator[str]:
    """What else is another: engine, model, arguments that both runs tell, tokens, devices."""
    if before.engine != after.engine:
        yield f"engine {before.engine} -> {after.engine}"
    for field in ("model", "model_path"):
        old, new = getattr(before, field), getattr(after, field)
        if _differ(old, new):
            yield f"{field.replace('_', ' ')} {shown(old)} -> {shown(new)}"
            break
    names = before.arguments.keys() | after.arguments.keys() if before.arguments and after.arguments else set()
    for name in sorted(names):
        old, new = before.arguments.get(name), after.arguments.get(name)
        if old != new:
            yield f"{name} {_value(old)} -> {_value(new)}"
    if _differ(before.capacity_tokens, after.capacity_tokens):
        yield f"capacity {before.capacity_tokens:,} -> {after.capacity_tokens:,} tokens"
    old_devices, new_devices = ({share.uuid for share in run.devices} for run in (before, after))
    if old_devices != new_devices:
        yield f"on {len(new_devices)} device(s), {len(new_devices - old_devices)} of them other than before"


def _untold(pairs: Iterable[tuple[Share, Share]]) -> Iterator[str]:
    """Which components are told apart in one run only, or known in another way."""
    names = {name for old, new in pairs for name in old.components.keys() ^ new.components.keys() if name != REST}
    if names:
        yield f"{', '.join(name_of(name) for name in sorted(names))} told apart in one of the two runs only"
    known = {
        (name, old.evidence[name], new.evidence[name])
        for old, new in pairs
        for name in old.evidence.keys() & new.evidence.keys()
    }
    for name, before, after in sorted(known):
        if before != after:
            yield f"{name_of(name)} {before} before, {after} now"


def _alike(one: Run, other: Run) -> bool:
    """Whether nothing but a start divides them: facts are equal and no component moved by more than little."""
    facts = ("engine", "version", "model", "model_path", "arguments")
    if any(getattr(one, fact) != getattr(other, fact) for fact in facts):
        return False
    return [share.uuid for share in one.devices] == [share.uuid for share in other.devices] and all(
        old.components.keys() == new.components.keys()
        and old.evidence == new.evidence
        and all(abs(new.components[name] - count) <= SMALL_BYTES for name, count in old.components.items())
        for old, new in zip(one.devices, other.devices, strict=True)
    )


def _knows_less(one: Run, other: Run) -> bool:
    """Whether a source is missing that was there: a device, or a component of one."""
    here, there = ({(s.uuid, name) for s in run.devices for name in s.components} for run in (one, other))
    return here < there


def _differ(old: object, new: object) -> bool:
    return old is not None and new is not None and old != new


def _value(value: Value | None) -> str:
    return "not given" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
