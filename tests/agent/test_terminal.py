"""A snapshot as text, where servers say their texts as they like."""

from io import StringIO

import pytest
from msgspec.structs import replace
from rich.console import Console

from agent.memory.levels import Level
from agent.memory.risk import Reason, Risk
from agent.printable import all_printable
from agent.snapshot import ExhaustionSeconds, Server, Snapshot, Thresholds, Upgrade
from agent.terminal import print_snapshot
from tests.agent.web.sample import node

HOSTILE = "0.33.0\n\x1b[2J\x9b31m\r\u202e[/x][red]"
SHOWN = r"0.33.0\n\x1b[2J\x9b31m\r\u202e[/x][red]"


def text_of(snapshot: Snapshot) -> str:
    out = StringIO()
    print_snapshot(snapshot, explain=True, console=Console(file=out, width=400, highlight=False))
    return out.getvalue()


def hostile(server: Server) -> Server:
    """Everything of it that a server itself says."""
    return replace(
        server,
        name=f"name {HOSTILE}",
        version=HOSTILE,
        model=HOSTILE,
        model_path=f"path {HOSTILE}",
        arguments={"dtype": f"dtype {HOSTILE}"},
        pools=tuple(replace(pool, replica=f"{number} {HOSTILE}") for pool in server.pools[:1] for number in range(2)),
        notes=(f"note {HOSTILE}",),
        upgrade=Upgrade(
            from_version=HOSTILE,
            to_version=HOSTILE,
            since=None,
            from_settled_at=1.0,
            to_settled_at=2.0,
            from_capacity_tokens=None,
            to_capacity_tokens=None,
            components=(),
            causes=(),
            summary=f"since {HOSTILE} -> ",
        ),
    )


def test_nothing_that_a_server_says_acts_on_the_terminal() -> None:
    """Control characters, line breaks and changes of direction are shown as escapes, markup as it is."""
    snapshot = node(0)
    text = text_of(replace(snapshot, servers=(hostile(snapshot.servers[0]),)))

    assert all(char.isprintable() or char == "\n" for char in text)
    for word in ("name ", "path ", "dtype ", "note ", "since ", "full 0 ", "full 1 "):
        assert f"{word}{SHOWN}" in text


def test_what_comes_is_said_in_words() -> None:
    """Time left, level and reason, what grows and what came or went; nothing of what is not foreseen."""
    text = text_of(node(0))

    assert "pool full in 7 min, 4 min at the soonest, then: preempt" in text
    assert "at least 70% of what running requests have added is in ones longer than 1,024 tokens" in text
    assert "risk at_risk: pool_exhaustion (used 50.0%)" in text
    assert "risk critical: hardware (row remap failure 1)" in text
    assert "full in 5 h; " in text
    assert "step 15 min ago: " in text
    assert text.count("risk ") == 2


@pytest.mark.parametrize(
    ("used", "said"), [(0.18, "pool ran out less than 2 min ago: preempt"), (0.97, "pool full: preempt")]
)
def test_a_pool_that_has_room_again_is_not_full(used: float, said: str) -> None:
    """A shortage stands for two minutes; use falls with it, as requests lost their place."""
    snapshot = node(0)
    server = snapshot.servers[0]
    assert server.pools[0].forecast is not None
    gone = ExhaustionSeconds(likely=0.0, early=0.0)
    forecast = replace(server.pools[0].forecast, exhausted=True, exhaustion_seconds=gone)
    pool = replace(server.pools[0], used_ratio=used, forecast=forecast)

    assert said in text_of(replace(snapshot, servers=(replace(server, pools=(pool,)),)))


@pytest.mark.parametrize(
    ("rule", "said"),
    [(0.05, "headroom 8.0% of {total}\n"), (0.125, "headroom 8.0% of {total}, below the 12.5% rule\n")],
)
def test_headroom_below_the_rule_is_said(rule: float, said: str) -> None:
    """The rule is that of the agent's settings."""
    snapshot = node(0)
    device = replace(snapshot.devices[0], headroom_ratio=0.08)
    assert device.total_bytes is not None

    text = text_of(replace(snapshot, devices=(device,), thresholds=Thresholds(headroom_ratio=rule)))

    assert said.format(total=f"{device.total_bytes / 2**30:,.2f} GiB") in text


def test_what_is_held_says_so() -> None:
    """Beside the level that nothing asks for now, the main one or another."""
    snapshot = node(0)
    also: dict[Reason, Level] = {"fragmentation": "watch", "blind": "watch"}
    risk = Risk(level="watch", reason="low_headroom", held_seconds=120.0, also=also, also_held_seconds={"blind": 30.0})

    text = text_of(replace(snapshot, devices=(replace(snapshot.devices[0], risk=risk),)))

    assert "risk watch, held for 2 min: low_headroom" in text
    assert "watch: fragmentation, watch, held for 30 s: blind" in " ".join(text.split())


def test_what_can_be_printed_is_as_it_was() -> None:
    """Any snapshot without such characters is the same."""
    assert all_printable(node(3)) == node(3)
