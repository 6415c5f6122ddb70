"""A snapshot as text, where servers say their texts as they like."""

import re
from io import StringIO
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

import agent
from agent.memory.levels import Level
from agent.memory.risk import OK, Reason, Risk
from agent.memory.risk import REASONS as KNOWN
from agent.printable import all_printable
from agent.risk_words import DOWN_PAGE, PAGES, REASONS, what_to_do
from agent.snapshot import ExhaustionSeconds, Server, Snapshot, Thresholds, Upgrade
from agent.terminal import print_snapshot
from collectors.readings import ServerState
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
    assert "risk: at risk pool fills (used 50.0%)\n  what to do: docs/runbooks/kv-pool-exhausting.md\n" in text
    assert (
        "risk: critical hardware (row remap failure 1)\n  what to do: docs/runbooks/device-memory-errors.md\n" in text
    )
    assert "full in 5 h; " in text
    assert "step 15 min ago: " in text
    assert text.count("risk: ") == 2


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

    assert "risk: held: watch headroom, 2 min ago; watch fragments; held: watch was not read, 30 s ago\n" in text


@pytest.mark.parametrize(("age", "behind"), [(110.0, "with"), (5.0, "5 s ago"), (0.0, "now")])
def test_what_is_held_is_told_in_the_past(age: float, behind: str) -> None:
    """Figures say whether they are of then or of now, and no chance stands beside it."""
    numbers = {"used_ratio": 0.31, "probability_2min": 0.0}
    risk = Risk(
        level="critical", reason="pool_exhaustion", numbers=numbers, held_seconds=110.0, numbers_age_seconds=age
    )
    snapshot = node(0)

    text = text_of(replace(snapshot, servers=(replace(snapshot.servers[0], risk=risk),)))

    assert f"risk: held: critical pool filled, 110 s ago ({behind} used 31.0%)\n" in text
    assert "within 2 min" not in text


def test_restarts_stand_beside_the_other_counts() -> None:
    """A server that restarts again and again says so without a look at its metrics."""
    snapshot = node(0)

    text = text_of(replace(snapshot, servers=(replace(snapshot.servers[0], restarts=3),)))

    assert "running 37, waiting 4, preemptions 12, restarts 3\n" in text


@pytest.mark.parametrize(
    ("state", "age", "said"),
    [
        ("loading", None, "loading, no figures yet, restarts 1"),
        ("down", None, "down, restarts 1"),
        ("down", 12.0, "down, last answer 12 s ago, restarts 1"),
    ],
)
def test_a_server_without_figures_says_what_it_does(state: ServerState, age: float | None, said: str) -> None:
    """No heading of a table that is empty, no row of question marks."""
    snapshot = node(0)
    batch = next(one for one in snapshot.servers if one.name == "batch")

    text = text_of(replace(snapshot, devices=(), servers=(replace(batch, state=state, age_seconds=age),)))

    assert f"\n{said}\n" in text
    assert "of tokens" not in text
    assert "?" not in text


def test_one_that_is_down_says_what_to_do() -> None:
    """With the page of what else is wrong with it, where that is known."""
    loop = Risk(level="critical", reason="restart_loop")

    assert what_to_do(None) is None
    assert what_to_do(OK) is None
    assert what_to_do(Risk(level="watch", reason="blind"), is_down=True) == "what to do: docs/runbooks/server-down.md"
    assert what_to_do(loop, is_down=True) == (
        "what to do: docs/runbooks/server-down.md, docs/runbooks/restarted-after-memory-signs.md"
    )


def test_each_reason_has_words_and_the_page_of_the_browser() -> None:
    """The page links to the same runbooks, and they are there."""
    root = Path(agent.__file__).parent
    script = (root / "web" / "coming.js").read_text(encoding="utf-8")
    (block,) = re.findall(r"^const PAGES = \{(.*?)^\};", script, re.MULTILINE | re.DOTALL)
    pages = dict(re.findall(r'(\w+): "([\w-]+)"', block))

    assert {reason: pages.get(reason) for reason in PAGES} == PAGES
    assert set(PAGES) == set(REASONS) == set(KNOWN)
    for page in (*PAGES.values(), DOWN_PAGE):
        assert (root.parent / "docs" / "runbooks" / f"{page}.md").exists(), page


def test_what_can_be_printed_is_as_it_was() -> None:
    """Any snapshot without such characters is the same."""
    assert all_printable(node(3)) == node(3)
