"""What is told of a running server at one moment, by itself, by its log and by the agent; and whether these agree."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from msgspec import Struct
from msgspec.structs import asdict

from tests.program import Program

LOOK_SECONDS = 120.0
_APART_SECONDS = 0.2  # two readings are a second apart; one and the same is shown with rounded times


class Figures(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of one pool, its requests, and counters since the server's start; None where it is not told."""

    capacity_tokens: int | None = None
    used_tokens: int | None = None
    cached_tokens: int | None = None
    free_tokens: int | None = None
    running: int | None = None
    waiting: int | None = None
    preemptions: int | None = None
    refusals: int | None = None
    prompt_tokens: int | None = None
    generation_tokens: int | None = None
    first_tokens: int | None = None

    def told(self) -> dict[str, int]:
        return {name: value for name, value in asdict(self).items() if value is not None}


class Told(Struct, frozen=True, kw_only=True):
    """What a server tells at one moment: its answers by path, and its log up to here."""

    pages: dict[str, str]
    log: str


class Moment(Struct, frozen=True, kw_only=True):
    """A reading of the agent, and what the server told before and after it: the same, where it stood still."""

    point: str
    before: Told
    agent: Figures
    after: Told


class Watched(Protocol):
    """A real server, which can be brought to the points of its story, in their order.

    It stands still at all points but those that are ``moving``. ``of_pages`` and ``of_log`` understand what the engine
    tells without a word of the product; ``excerpt`` leaves the lines of a part of a log that ``of_log`` needs.
    """

    engine: ClassVar[str]
    points: ClassVar[tuple[str, ...]]
    moving: ClassVar[tuple[str, ...]]
    bytes_per_token: ClassVar[int]
    pool_bytes: ClassVar[int]
    url: str
    model: Path
    log: Path

    def __enter__(self) -> Self: ...

    def __exit__(self, *raised: Any) -> None: ...

    def at(self, point: str) -> AbstractContextManager[None]:
        """The server at a point of its story, where it stays while inside."""

    def tell(self) -> Told:
        """What it answers on the paths that the agent asks for each second, and its log, which is not behind."""

    @staticmethod
    def of_pages(pages: Mapping[str, str]) -> Figures: ...

    @staticmethod
    def of_log(log: str) -> Figures: ...

    @staticmethod
    def excerpt(log: str) -> str: ...


def play(program: Program, servers: Sequence[Watched]) -> Iterator[tuple[Watched, Moment]]:
    """What is told of each server at each point, all of them brought to theirs together; of the last one first."""
    for number in range(len(servers[0].points)):
        with ExitStack() as held:
            for server in servers:
                held.enter_context(server.at(server.points[number]))
            for server in reversed(servers):
                yield server, _observe(program, server, server.points[number])


def shown(program: Program, url: str) -> dict[str, Any] | None:
    """What the agent says of the server that answers there, once it reads it; and when it read it, as ``read_at``."""
    snapshot = program.snapshot()
    server = next((one for one in snapshot["servers"] if one["url"] == url and one["pools"]), None)
    if server is None or server["age_seconds"] is None:
        return None
    return {**server, "read_at": snapshot["time"] - server["age_seconds"]}


def _observe(program: Program, server: Watched, point: str) -> Moment:
    """A reading that the agent began after one look at the server and ended before the next."""
    before, now = server.tell(), time.time()
    ended = _read_after(program, server, now)["read_at"]
    said = _read_after(program, server, ended + _APART_SECONDS)  # begun when the one before had ended
    return Moment(point=point, before=before, agent=of_agent(said), after=server.tell())


def _read_after(program: Program, server: Watched, moment: float) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        said = shown(program, server.url)
        return said if said and said["read_at"] > moment else None

    found = program.until(look, seconds=LOOK_SECONDS)
    assert found is not None
    return found


def log_of(path: Path) -> str:
    """The log up to its last whole line."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return text[: text.rfind("\n") + 1]


def of_agent(server: dict[str, Any]) -> Figures:
    """The figures that a snapshot has of a server with one pool."""
    (pool,) = server["pools"]
    counters = ("preemptions", "refusals", "prompt_tokens", "generation_tokens", "first_tokens")
    return Figures(
        **{name: pool[name] for name in ("capacity_tokens", "used_tokens", "cached_tokens", "free_tokens")},
        **server["requests"],
        **{name: server["counters"][name] for name in counters},
    )


def disagreements(agent: Figures, before: Figures, after: Figures) -> list[str]:
    """Each figure of the agent that is not between what was told before and after it."""
    known, later = agent.told(), after.told()
    return [
        f"{name}: agent {known.get(name)}, told {value} before and {later.get(name)} after"
        for name, value in before.told().items()
        if name in later and not _between(known.get(name), value, later[name])
    ]


def all_disagreements(server: Watched, moment: Moment) -> list[str]:
    """Of the agent with the server's answers and with its log."""
    answers = [server.of_pages(one.pages) for one in (moment.before, moment.after)]
    log = [server.of_log(one.log) for one in (moment.before, moment.after)]
    return [
        f"{server.engine} {moment.point}, {source}: {one}"
        for source, figures in (("answers", answers), ("log", log))
        for one in disagreements(moment.agent, *figures)
    ]


def _between(value: int | None, one: int, other: int) -> bool:
    return value is not None and min(one, other) <= value <= max(one, other)
