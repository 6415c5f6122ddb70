"""What ``vramscope top`` draws, without a terminal: nothing wider than it, no figure cut, nothing old as new."""

import re
from collections.abc import Mapping

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from agent.memory.levels import Level
from agent.memory.risk import OK, REASONS, Reason, Risk
from agent.snapshot import ExhaustionSeconds, Requests, Server, Snapshot
from agent.top import words
from agent.top.parts import LOOKS, bar, ordered, pool_bar
from agent.top.rows import Drawn
from agent.top.screen import Choice, Page, screen
from agent.top.seen import Shown
from tests.agent.top.nodes import drawn, eight, text_of
from tests.agent.web import sample, states
from tests.page_colours import COLOURS

NODES = {
    "eight": eight(),
    "two": sample.node(0),
    "many": states.many(0),
    "mig": states.mig(0),
    "crowded": states.crowded(0),
    "no_gpu": sample.without_gpu(),
    "nothing": Snapshot(time=0.0, version="0"),
}
GRAVEST: dict[Reason, Level] = {
    **dict.fromkeys(REASONS, "watch"),
    "pool_exhaustion": "critical",
    "preemption_storm": "critical",
    "no_transient_room": "at_risk",
    "low_headroom": "at_risk",
    "device_creep": "critical",
    "budget_mismatch": "at_risk",
    "sleep_residue": "at_risk",
    "restart_loop": "critical",
    "host_memory": "at_risk",
    "hardware": "critical",
}
"""Of a server, and of a GPU but one that shares the memory of its host."""
HOSTILE = "x\x1b[2J\n\u202e\U0001f600e\u0301模型[/red]"


def _row(snapshot: Snapshot, name: str, *, width: int = 80, height: int = 24) -> list[str]:
    """The words of the line that begins with a name."""
    lines = (line.plain.removeprefix(">").split() for line in drawn(snapshot, width=width, height=height).lines)
    return next(words for words in lines if words[:1] == [name])


@pytest.mark.parametrize("width", [1, 39, 80, 132])
@pytest.mark.parametrize("name", NODES)
@pytest.mark.parametrize("page", ["tables", "detail", "failures", "help"])
def test_every_size_is_filled_and_never_exceeded(name: str, width: int, page: Page) -> None:
    """As many lines as the terminal has, none wider, whatever the node and the page."""
    for height in (3, 24):
        lines = drawn(NODES[name], Choice(page=page), width=width, height=height, problem=None).lines
        assert len(lines) == height
        assert max(line.cell_len for line in lines) <= width


@pytest.mark.parametrize("width", range(36, 150, 6))
def test_figures_are_whole_or_not_there(width: int) -> None:
    """Where a column does not fit it is left out, and not cut: each word of a row is one of the widest row."""
    for name in (*map(str, range(8)), *(f"chat-{number}" for number in range(8))):
        narrow, wide = (_row(eight(), name, width=size, height=40) for size in (width, 250))
        assert set(narrow) - _bars(narrow) <= set(wide), name
        assert len(narrow) > 2


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 140])
def test_columns_stay_while_figures_and_risks_change(width: int) -> None:
    """A risk of many letters takes no more than one of few; time left and counts have the room of long ones."""
    node = eight()
    levels: list[Level] = ["watch", "at_risk", "critical"]
    risks = [OK, *(Risk(level=level, reason="pool_exhaustion") for level in levels)]
    risks.append(Risk(level="critical", reason="pool_exhaustion", held_seconds=9.0))

    def headings(risk: Risk, likely: float | None, run: int) -> list[str]:
        (full,) = node.servers[0].pools
        forecast = replace(sample.filling(), exhaustion_seconds=ExhaustionSeconds(likely=likely, early=likely))
        server = replace(
            node.servers[0],
            risk=risk,
            requests=Requests(running=run, waiting=run),
            pools=(replace(full, forecast=forecast, growth_tokens_per_second=run / 3),),
        )
        device = replace(node.devices[0], risk=risk)
        lines = drawn(replace(node, devices=(device,), servers=(server,)), width=width).lines
        return [line.plain for line in lines if line.plain.split()[:1] in (["GPU"], ["SERVER"])]

    assert len(headings(OK, None, 0)) == 2
    for risk in risks:
        for likely, run in ((None, 3), (0.0, 30), (119.0, 300), (119 * 60.0, 3_000)):
            assert headings(risk, likely, run) == headings(OK, None, 0)


def test_words_of_every_risk_fit_their_column() -> None:
    """With the level that each may have: a longer one would move what stands before it."""
    assert Drawn(width=80, colours=False).of_risk == max(
        len(words.risk(Risk(level=level, reason=reason, held_seconds=held)))
        for reason, level in GRAVEST.items()
        for held in (None, 9.0)
    )


def _bars(row: list[str]) -> set[str]:
    return {word for word in row if "WWW" in word or re.fullmatch(r"[K-]{8,}", word)}


def test_a_pool_has_a_bar_where_there_is_room() -> None:
    """As long as what is in use; the name keeps what it needs, and nothing is drawn of what is not known."""
    (row,) = [line.plain for line in drawn(eight(), width=160).lines if " chat-6 " in line.plain[:12]]
    (bar_of_it,) = re.findall(r"[K-]{8,}", row)

    assert abs(bar_of_it.count("K") / len(bar_of_it) - 7 * 26_000 / 262_144) < 1 / len(bar_of_it)
    assert row.startswith("  chat-6  K")
    assert pool_bar(None, 20, colours=False).plain == " " * 20
    assert pool_bar(1.2, 4, colours=False).plain == "KKKK"


@pytest.mark.parametrize(
    ("likely", "used", "said"), [(None, 0.5, "-"), (90.0, 0.95, "90 s"), (0.0, 0.97, "full"), (0.0, 0.2, "ran out")]
)
def test_time_left_in_words(likely: float | None, used: float, said: str) -> None:
    """A pool that ran out a minute ago and has room again is not called full."""
    assert words.left(ExhaustionSeconds(likely=likely, early=likely), used) == said


def test_a_bar_has_its_parts_in_order_and_as_long_as_their_bytes() -> None:
    """The same order as on the page: driver, server by server, others, free; at a cell a GiB each length is its GiB."""
    (gpu,) = [one for one in eight().devices if one.gpu == "6"]
    cells = bar(gpu, 80, colours=False).plain

    assert [part.component for part in ordered(gpu)] == [
        "reserved",
        "weights",
        "kv_used",
        "kv_available",
        "cuda_graphs",
        "activations",
        "allocator_slack",
        "context",
        "other_processes",
        "hidden",
        "free",
    ]
    # 79.65 GiB in 80 cells, to the nearest one at each end: weights 14.96 GiB, KV used 28, available 12, hidden 1.95
    for letter, gib in (("W", 14.96), ("K", 28.0), ("-", 12.0), ("H", 1.95)):
        assert abs(cells.count(letter) - gib * 80 / 79.65) <= 1, letter
    assert len(cells) == 80


def test_colours_and_letters_tell_the_same() -> None:
    """Where there are colours each part begins with its letter, on the page's colour."""
    gpu = eight().devices[6]
    plain, coloured = bar(gpu, 60, colours=False), bar(gpu, 60, colours=True)

    assert not plain.spans
    assert coloured.cell_len == plain.cell_len == 60
    for span in coloured.spans:
        letter = coloured.plain[span.start]
        assert plain.plain[span.start : span.end] == letter * (span.end - span.start)
    assert "#0072b2" in str([span.style for span in coloured.spans])


def test_the_gravest_stand_first() -> None:
    """By risk, then by time left; each order holds for both tables."""
    first = {sort: drawn(eight(), Choice(sort=sort)).keys for sort in ("risk", "left", "used", "name")}

    assert first["risk"][:3] == ("gpu GPU-1", "gpu GPU-6", "gpu GPU-3")
    assert first["risk"][8:12] == ("server chat-1", "server chat-6", "server chat-4", "server chat-3")
    assert first["left"][8:11] == ("server chat-1", "server chat-2", "server chat-3")
    assert first["used"][0] == "gpu GPU-5"
    assert first["used"][8] == "server chat-7"
    assert first["name"] == (*(f"gpu GPU-{n}" for n in range(8)), *(f"server chat-{n}" for n in range(8)))


def test_a_server_that_is_down_stands_above_all() -> None:
    """It is graver than any risk and drawn like the gravest; a risk that is not known comes before none."""
    node = eight()
    loop = Risk(level="critical", reason="restart_loop", numbers={"restarts": 4})
    gone = replace(node.servers[5], state="down", risk=None, age_seconds=None)
    again = replace(node.servers[3], state="down", risk=loop)
    down = replace(node, servers=(*node.servers[:3], again, node.servers[4], gone, *node.servers[6:]))
    shown = drawn(down, colours=True)

    assert shown.keys[8:12] == ("server chat-3", "server chat-5", "server chat-1", "server chat-6")
    assert shown.keys[-3:] == ("server chat-7", "server chat-2", "server chat-0")
    assert shown.selected == "server chat-3"
    assert _row(down, "chat-5")[-1:] == ["down"]
    assert _row(down, "chat-3")[-2:] == ["down,", "restarts"]
    (line,) = [line for line in shown.lines if line.plain.startswith("  chat-5")]
    styles = [(line.plain[span.start : span.end].split(), str(span.style)) for span in line.spans]
    assert styles[-1] == (["down"], "bold red")


def test_the_selection_is_marked_and_in_sight() -> None:
    """Its line is among those shown however few they are; one that is gone falls back to the first."""
    for key in drawn(NODES["crowded"]).keys:
        marked = [
            line.plain for line in drawn(NODES["crowded"], Choice(selected=key), height=9).lines if ">" in line.plain
        ]
        assert len([line for line in marked if line.startswith(">")]) >= 1, key
    assert drawn(eight(), Choice(selected="server gone")).selected == "gpu GPU-1"


@pytest.mark.parametrize(
    ("height", "gpus", "servers", "left_out"),
    [
        (16, 5, 6, "3 GPUs, 2 servers more"),
        (12, 3, 4, "5 GPUs, 4 servers more: 1 watch"),
        (7, 1, 1, "7 GPUs, 7 servers more: 2 critical, 2 at risk, 2 watch"),
        (6, 2, 0, "6 GPUs, 8 servers more: 2 critical, 2 at risk, 2 watch"),
        (4, 1, 0, "7 GPUs, 8 servers more: 3 critical, 2 at risk, 2 watch"),
    ],
)
def test_tables_share_the_room_and_say_what_is_left_out(height: int, gpus: int, servers: int, left_out: str) -> None:
    """Each has its heading and its gravest rows while there is room for one row of each; no row goes without a sign."""
    lines = [line.plain for line in drawn(eight(), height=height).lines]

    assert len([line for line in lines if "/79.6" in line]) == gpus
    assert len([line for line in lines if line.strip().startswith("chat-")]) == servers
    assert len([line for line in lines if line.split()[:1] == ["SERVER"]]) == (servers > 0)
    assert lines[-2] == f"  ... {left_out}"


def test_what_is_left_out_is_counted_above_the_rows_too() -> None:
    """Whatever the order: what is grave and out of sight is named, and further pools of a server in sight."""
    last = drawn(eight(), Choice(sort="name", selected="server chat-7"), height=12, colours=True).lines[-2]
    pools = drawn(states.many(0), Choice(selected="server server-1"), height=12).lines[-2].plain

    assert last.plain == "  ... 5 GPUs, 4 servers more: 2 critical, 1 at risk, 2 watch"
    assert "red" in str([span.style for span in last.spans])
    assert re.match(r"  \.\.\. 13 GPUs, \d servers, \d pools more", pools)


def test_a_page_says_how_much_is_further_down() -> None:
    """Until its end is in sight."""
    assert re.search(r"scroll \([1-9]\d* more\)", text_of(drawn(eight(), Choice(page="help"))))
    assert "more" not in drawn(eight(), Choice(page="help", scroll=1000)).lines[-1].plain


def test_until_somebody_selects_the_gravest_is_selected() -> None:
    """A GPU before a server of the same level; what a person has chosen stays."""
    node = eight()
    worst = replace(node.servers[5], risk=Risk(level="critical", reason="pool_exhaustion", numbers={}))
    calm = tuple(replace(one, risk=OK) for one in node.devices)

    assert drawn(node).selected == "gpu GPU-1"
    assert drawn(replace(node, devices=calm, servers=(*node.servers[:1], worst))).selected == "server chat-5"
    assert drawn(node, Choice(selected="server chat-0")).selected == "server chat-0"
    assert drawn(Snapshot(time=0.0, version="0")).selected is None


def test_a_server_has_a_row_for_each_further_pool() -> None:
    """What is of the server itself is said once."""
    text = text_of(drawn(states.many(0), height=60))

    assert text.count("server-1 ") >= 1
    assert text.count("  full ") == 7


def test_what_is_not_known_is_a_dash() -> None:
    """No figure stands in for it; a server that does not serve says what it does."""
    assert _row(sample.node(0), "batch", width=90) == ["batch", "-", "-", "-", "-", "-", "-", "down"]
    assert _row(states.loading(0), "chat")[-1] == "loading"


def test_a_lost_agent_is_said_and_all_is_grey() -> None:
    """The sentence stands in the second line; no bar keeps its colours."""
    lost = drawn(eight(), colours=True, problem="NOT CURRENT, 12 s old: no agent answers")

    assert lost.lines[1].plain == "NOT CURRENT, 12 s old: no agent answers"
    assert not [span for line in lost.lines for span in line.spans if "#" in str(span.style)]
    rows = [line for line in lost.lines if "chat-" in line.plain]
    assert all(any("bright_black" in str(span.style) for span in line.spans) for line in rows)


def test_an_old_device_is_grey_and_says_how_old() -> None:
    """Beside others that are current."""
    node = eight()
    old = replace(node, devices=(replace(node.devices[0], age_seconds=42.4), *node.devices[1:]))
    lines = [line for line in drawn(old, colours=True).lines if "42 s old" in line.plain]

    assert len(lines) == 1
    assert not [span for span in lines[0].spans if "#" in str(span.style)]


def test_names_of_others_do_nothing_and_are_as_wide_as_counted() -> None:
    """Control characters, marks and emoji are shown as escapes; markup is text; wide letters count twice."""
    node = eight()
    named = replace(node, servers=(replace(node.servers[0], name=HOSTILE),))
    for page in ("tables", "detail"):
        shown = drawn(named, Choice(page=page, selected=f"server {HOSTILE}"), width=150)
        text = text_of(shown)
        assert r"x\x1b[2J\n\u202e\U0001f600e\u0301模型[/red]" in text
        assert all(char.isprintable() or char == "\n" for char in text)
        assert all(cell_len(line.plain) <= 150 for line in shown.lines)


def test_the_detail_of_the_selection_stands_below_where_there_is_room() -> None:
    """As far as it goes, and only where it says something; on a page of its own is all of it."""
    tall = text_of(drawn(eight(), Choice(selected="server chat-3"), height=40))
    short = text_of(drawn(eight(), Choice(selected="server chat-3"), height=24))

    assert "chat-3  vllm 0.11.0  serving" in tall
    assert "... enter: all of it" in text_of(drawn(eight(), height=34))
    assert "vllm 0.11.0" not in short


def test_rows_come_before_the_legend() -> None:
    """Where not all fits the letters of the bars are left to the help."""
    assert "W weights" in text_of(drawn(eight(), height=23))
    assert "W weights" not in text_of(drawn(eight(), height=22))
    assert [line for line in text_of(drawn(eight(), height=22)).splitlines() if "chat-7" in line][-1:]
    assert "W weights" in text_of(drawn(eight(), Choice(page="help"), height=60))


def test_growth_that_is_not_told_is_as_it_was_seen() -> None:
    """Marked; and nothing where nothing was seen either."""
    node = sample.node(0)
    (chat, *_) = node.servers
    unknown = replace(chat, pools=(replace(chat.pools[0], growth_tokens_per_second=None),))
    known = {("chat", chat.pools[0].replica, chat.pools[0].kind): 12.4, ("chat",): 834.6}

    def cells(server: Server, changes: Mapping[tuple[str, ...], float]) -> list[str]:
        one = Shown(source="here", snapshot=replace(node, servers=(server,)), problem=None, changes=changes)
        lines = [line.plain.split() for line in screen(one, Choice(), width=120, height=9, colours=False).lines]
        return next(words for words in lines if words[:1] == ["chat"])

    assert "~+12" in cells(unknown, known)
    assert "835" in cells(unknown, known)
    assert not [word for word in cells(chat, known) if "~" in word]
    assert not [word for word in cells(unknown, {}) if "~" in word]


def test_a_long_name_keeps_its_end() -> None:
    """Names of one kind differ there."""
    node = eight()
    named = replace(node, servers=(replace(node.servers[0], name="inference-prod-reasoner:8001"),))
    assert re.search(r" infer[\w-]*~\S*:8001 ", text_of(drawn(named, width=66)))


@pytest.mark.parametrize("width", [64, 80, 120])
def test_a_name_of_model_and_port_is_whole(width: int) -> None:
    """As servers that were found are called: other columns go before it is cut, whatever the risk."""
    node = eight()
    named = tuple(replace(one, name=f"reasoner-8b:4357{number}") for number, one in enumerate(node.servers))

    lines = [line.plain for line in drawn(replace(node, servers=named), width=width).lines]

    assert len([line for line in lines if line.startswith("  reasoner-8b:4357")]) == len(named)


def test_what_goes_on_stands_further_in() -> None:
    """Sentences of a detail that take more than a line."""
    lines = text_of(drawn(eight(), Choice(page="detail"), width=45, height=60)).splitlines()
    (first,) = [place for place, line in enumerate(lines) if line.startswith("  weights chat-1: ")]
    assert lines[first + 1].startswith("    ")
    assert lines[first + 1].split() == ["computed,", "0.6", "s", "ago;"]


def test_the_detail_says_how_each_figure_is_known() -> None:
    """The device's components with evidence, age and source; it scrolls to its end and no further."""
    top = drawn(eight(), Choice(page="detail", selected="gpu GPU-6"))
    end = drawn(eight(), Choice(page="detail", selected="gpu GPU-6", scroll=10_000))

    assert "known by" in text_of(top)
    assert "weights" in text_of(top)
    assert top.last_scroll > 0
    assert "hidden: " in text_of(end) or "free: " in text_of(end)
    assert text_of(drawn(eight(), Choice(page="detail", selected="gpu GPU-6", scroll=top.last_scroll))) == text_of(end)


def test_what_cannot_be_read_is_said() -> None:
    """The first in a line above the tables, all of them on a page of their own."""
    text = text_of(drawn(states.many(0)))
    page = text_of(drawn(states.many(0), Choice(page="failures"), height=40))

    assert "failed (f: 2 more): " in text
    assert page.count("http") >= 1
    assert "all sources are read" in text_of(drawn(eight(), Choice(page="failures")))


def test_a_recording_and_a_simulation_say_so() -> None:
    """In the first line, where nobody misses it."""
    assert "simulated node" in text_of(drawn(replace(eight(), simulated=True), height=3))


@pytest.mark.parametrize("time", [1e300, -1e300, 2.0**62, -(2.0**62)])
def test_a_time_of_no_year_is_not_known(time: float) -> None:
    """Whatever an agent says: the rest is drawn all the same."""
    assert "vramscope  -" in text_of(drawn(replace(eight(), time=time), height=3))


def test_parts_have_the_colours_of_the_page() -> None:
    """One component, one colour, wherever it is drawn; free is the ground of the page, which is light or dark."""
    assert {name: look.background for name, look in LOOKS.items() if name != "free"} == COLOURS
