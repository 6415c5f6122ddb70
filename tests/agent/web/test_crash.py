"""A server that goes down and loads anew while one looks: what the page still knows of it, and what it never says."""

import re
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from agent.memory.risk import Risk
from agent.snapshot import Requests, Server, Snapshot
from collectors.readings import ServerState
from tests.agent.web import sample
from tests.agent.web.person import press, sticking_out, unreadable
from tests.agent.web.site import Open, Site
from tests.browser import Browser, Page

VIEW = "document.querySelector('[data-server-view]')"
UNKNOWN = Requests(running=None, waiting=None)
NOBODY = "nothing listens at http://127.0.0.1:8000/metrics; the server is down or still loading"


def away(chat: Server, state: ServerState) -> Server:
    """The server as the agent knows it then: neither devices nor model nor pools."""
    return replace(
        chat, state=state, model=None, version=None, devices=(), ranks=(), pools=(), replicas=(), requests=UNKNOWN,
        age_seconds=None, fragmentation=(), risk=None,
    )  # fmt: skip


def crashing(at: int, state: ServerState = "down", *, troubled: bool = True) -> Callable[[int], Snapshot]:
    """From a second on ``chat`` does not serve, its GPU holds a guest, and nothing listens at its address."""
    guest = Risk(level="watch", reason="foreign_process", also={"low_headroom": "watch"})

    def node(tick: int) -> Snapshot:
        whole = sample.node(tick)
        chat = whole.servers[0]
        if tick < at:
            return replace(whole, servers=(replace(chat, risk=None),), collectors=whole.collectors[:3])
        first, second = whole.devices
        parts = tuple(replace(part, server="") for part in first.components if part.server != "chat")
        return replace(
            whole,
            devices=(
                replace(first, risk=guest if troubled else None, components=parts, budget=()),
                replace(second, risk=None),
            ),
            servers=(away(chat, state),),
            collectors=(*whole.collectors[:2], sample.collector("endpoint", "chat", 9.0, NOBODY, {"refused": 3})),
        )

    return node


def words(page: Page, selector: str) -> str:
    return " ".join(page.evaluate(f"document.querySelector({selector!r}).innerText").split())


@pytest.mark.parametrize(("state", "width"), [("down", 1280), ("down", 400), ("loading", 1280), ("loading", 400)])
def test_the_view_of_a_server_that_went_away_keeps_what_it_saw(show: Open, state: ServerState, width: int) -> None:
    """Its GPU with its risks, its pool's chart with a gap at the end, model and version; never that all is well."""
    page = show(Site(crashing(4, state)))
    page.resize(width, 812)
    page.evaluate("location.hash = '#server/chat'")
    page.wait_until(f"{VIEW}?.querySelector('[data-state={state}]')")
    page.wait_until("document.querySelector('.was .chart')")

    said = words(page, "#coming")
    facts = words(page, "#view .facts")
    gpus = page.evaluate("[...document.querySelectorAll('#view [data-gpu]')].map((one) => one.dataset.gpu)")
    end, line = page.evaluate(
        "[[document.querySelector('.was .chart').dataset.last], document.querySelector('.was .line').getBBox().width]"
    )

    assert "Nothing" not in said
    assert re.search(rf"chat (is )?{state},? for \d+ s\b(?! or longer)", said)
    assert "GPU 0 watch: a process of no server watch: little headroom" in said
    assert "1 of 1 GPU" in said
    assert gpus == ["0"]
    assert "meta-llama/Llama-3.1-70B-Instruct before it went down" in facts
    assert "0.11.0 before it went down" in facts
    assert end == [None]
    assert line > 400
    assert sticking_out(page) == unreadable(page) == []
    assert page.problems() == []


def test_a_page_opened_later_shows_all_gpus_and_says_why(show: Open) -> None:
    """It does not know where the server was, and how long it has been down only from then on."""
    page = show(Site(crashing(0)))
    page.evaluate("location.hash = '#server/chat'")
    page.wait_until(VIEW)

    assert re.search(r"chat down for \d+ s or longer", words(page, "#coming"))
    assert "1 of 2 GPUs" in words(page, "#coming")
    assert "On which GPUs it was is not known here" in words(page, "#view .column")
    assert page.evaluate("[...document.querySelectorAll('#view [data-gpu]')].length") == 2
    assert page.evaluate("document.querySelector('.was')") is None


def test_while_a_server_loads_the_page_says_so_and_not_that_nothing_is_wrong(show: Open) -> None:
    """Where no GPU has a risk; in its view and on top of all."""
    page = show(Site(crashing(0, "loading", troubled=False)))

    on_top = words(page, "#coming")
    page.evaluate("location.hash = '#server/chat'")
    page.wait_until(VIEW)

    for said in (on_top, words(page, "#coming")):
        assert re.search(r"chat is loading, for \d+ s or longer\. No GPU has a risk that is known; ", said)
        assert "Nothing" not in said


def test_nothing_listens_yet_is_no_fault_of_a_server_that_loads(show: Open) -> None:
    """Said in neutral words: neither in the header nor among the collectors nor on its card is it red."""
    page = show(Site(crashing(0, "loading")))
    page.evaluate("document.querySelector('#collectors summary').click()")
    row = page.wait_until("document.querySelector('[data-collector=endpoint]')?.innerText")

    assert "waiting for it to listen" in row
    assert "2 of 3 collectors work" in words(page, "#collectors")
    assert "all collectors ok" in words(page, "#status")
    assert page.evaluate("document.querySelector('[data-failing], [data-server-card] .call, #collectors .bad')") is None
    assert "Waiting for it to listen. It loads its model" in words(page, "[data-server-card=chat]")


def test_nothing_listens_at_a_server_that_is_down_is_a_fault(show: Open) -> None:
    page = show(Site(crashing(0)))

    assert "1 of 3 collectors failing" in words(page, "#status")
    assert NOBODY in words(page, "[data-failing]")


def test_after_a_restart_the_chart_keeps_what_was_before(show: Open) -> None:
    """Also where the agent, which forgets it, is asked for its history anew; in between is a gap."""

    class Restarted(Site):
        crashed = False

        def history_json(self) -> bytes:
            return b'{"pools": [], "devices": []}' if self.crashed else super().history_json()

    before, after = 3, 8

    def node(tick: int) -> Snapshot:
        return crashing(before)(tick) if tick < after else sample.node(tick)

    site = Restarted(node)
    page = show(site)
    site.crashed = True
    page.wait_until("document.querySelector('.was .chart')")
    page.wait_until("!document.querySelector('.was') && document.querySelector('[data-server-card=chat] .chart')")
    press(page, "p")
    press(page, "p")  # going on loads the history anew

    loads = "performance.getEntriesByType('resource').filter((one) => one.name.endsWith('history')).length"
    page.wait_until(f"{loads} > 1")
    end = page.evaluate("Number(document.querySelector('[data-server-card=chat] .chart').dataset.end)")
    page.wait_until(f"Number(document.querySelector('[data-server-card=chat] .chart').dataset.end) > {end} + 1")
    points, runs = page.wait_until(
        "(({dataset, innerHTML}) => dataset.last && [Number(dataset.points), innerHTML.match(/class=.line.*/)[0]"
        ".match(/M/g).length])(document.querySelector('[data-server-card=chat] .chart'))"
    )

    assert points > sample.HISTORY_SECONDS - 30
    assert runs == 3  # the sample's history has a gap of its own


def test_the_charts_words_of_now_are_those_of_the_table(show: Open) -> None:
    """Its newest look may be seconds old."""
    page = show(Site())
    both = """["[data-gpu='0'] .stack .readout", "[data-gpu='0'] [data-figure=kv_used] td"]
      .map((place) => document.querySelector(place).innerText)"""

    for _ in range(8):
        line, used = page.evaluate(both)
        assert re.search(r"^now ", line)
        assert f"KV used {used.split()[0]}" in line
        page.wait_until(
            f"!document.querySelector(\"[data-gpu='0'] [data-figure=kv_used]\").innerText.includes('{used.split()[0]}')"
        )


def test_when_the_agent_stops_title_and_header_say_that_figures_are_old(show: Open) -> None:
    """A tab among many says it too; afterwards all is as before."""
    site = Site()
    page = show(site)
    fresh = page.evaluate("document.title")

    site.stop()
    page.wait_until("document.title.startsWith('old figures · vramscope')")
    header = words(page, "#status")
    back = Site(port=site.port)
    page.wait_until(f"document.title === {fresh!r}")
    after = words(page, "#status")
    back.stop()

    assert re.search(r"figures of \d\d:\d\d:\d\d, old", header)
    assert "collectors" not in header
    assert "1 of 5 collectors failing" in after


@pytest.mark.parametrize("path", ["", "#server/chat"])
def test_the_first_tab_stop_skips_to_the_servers(browser: Browser, path: str) -> None:
    """It is seen while it has the focus; Enter leads to the first server, the address stays."""
    site = Site()
    page = browser.open(site.url + path)
    page.wait_until("document.getElementById('version')?.textContent")

    hidden = page.evaluate("document.getElementById('skip').offsetHeight")
    press(page, "Tab")
    shown = page.evaluate("document.activeElement.id && document.activeElement.offsetHeight")
    said = page.evaluate("document.activeElement.innerText")
    press(page, "Enter")
    landed, address = page.evaluate("[document.activeElement.innerText.split('\\n')[0], location.hash]")
    page.close()
    site.stop()

    assert hidden == 1 < shown
    assert said == "skip to servers"
    assert landed.startswith("chat")
    assert address == path
