"""The view of one server, reached by pointer, by key and by address; and what is about to go wrong, on top of all."""

import re
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from agent.memory.risk import OK
from agent.snapshot import Snapshot
from tests.agent.web import sample, states
from tests.agent.web.person import open_all, press, sticking_out, unreadable
from tests.agent.web.site import Open, Site
from tests.browser import Browser, Page

VIEW = "document.querySelector('[data-server-view]')"
FOCUSED = "document.activeElement.textContent"


@pytest.fixture(scope="module")
def view(browser: Browser) -> Iterator[Page]:
    """That of a server whose pool runs full, at its address."""
    site = Site()
    page = browser.open(f"{site.url}#server/chat")
    page.wait_until(f"{VIEW}?.querySelector('.chart')")
    yield page
    page.close()
    site.stop()


def test_a_view_is_reached_and_left_by_key(show: Open) -> None:
    """Enter on a server's name leads to its view, whose heading has the focus; the way back ends where it began."""
    page = show(Site())
    page.evaluate("document.querySelector('[data-server-card=chat] h2 a').focus()")
    press(page, "Enter")
    page.wait_until(f"{VIEW}?.dataset.serverView === 'chat'")
    heading = page.evaluate(FOCUSED)

    page.evaluate("history.back()")
    page.wait_until(f"!{VIEW}")

    assert heading.startswith("chat")
    assert page.evaluate(FOCUSED) == "chat"
    assert page.problems() == []


def test_the_cone_goes_from_now_to_the_soonest_and_the_likely_time(view: Page) -> None:
    """At the scale of the past: seven minutes behind now the likely line meets the capacity, four the early one."""
    drawn = view.evaluate("""(() => {
      const box = (name) => document.querySelector(`#view .chart ${name}`).getBBox();
      const {early, likely} = document.querySelector("#view .cone").dataset;
      const {width} = document.querySelector("#view .past").style;
      return {early, likely, now: box(".now").x, past: parseFloat(width)};
    })()""")
    box = view.evaluate("(({x, y, width}) => [x, y, width])(document.querySelector('#view .cone').getBBox())")

    per_second = drawn["now"] / 300
    assert (drawn["early"], drawn["likely"]) == ("240", "420")
    assert drawn["past"] == pytest.approx(drawn["now"] / 6, abs=0.01)
    assert box[0] == pytest.approx(drawn["now"])
    assert box[2] == pytest.approx(420 * per_second, rel=0.01)
    assert box[1] == 6


def test_the_chart_is_told_in_words(view: Page) -> None:
    """Its name for a screen reader says what is drawn, and the line under it between what its use was."""
    said = view.evaluate("document.querySelector('#view .chart svg').getAttribute('aria-label')")
    line = view.evaluate("document.querySelector('#view .chart .readout').innerText")

    assert said.startswith("Used tokens over 5\u202fmin")
    assert said.endswith("Full in 7\u202fmin at the present course, in 4\u202fmin at the soonest.")
    assert line.startswith("between ")


def test_what_is_coming_and_the_pools_come_before_the_rest(view: Page) -> None:
    """In the order of the document, which a phone shows; on a desk what runs stands beside the pools."""
    order = view.evaluate("[...document.querySelectorAll('#view > section')].map((one) => one.ariaLabel)")
    tops = view.evaluate(
        "['KV pools', 'What runs'].map((name) => document.querySelector(`#view [aria-label=\"${name}\"]`)"
        ".getBoundingClientRect()).map((box) => [box.top, box.left])"
    )

    assert order == ["About to go wrong", "KV pools", "What runs"]
    assert tops[0][0] == tops[1][0]
    assert tops[0][1] > tops[1][1]


def test_how_long_sequences_are_stands_in_a_row(view: Page) -> None:
    """Mean, growth of one, the longest, and what a few of them hold."""
    row = view.evaluate("[...document.querySelectorAll('[data-chains] > *')].map((cell) => cell.innerText)")

    assert row == ["KV pool", "37", "3,400", "30.0", "90,000", "2 hold 61.0\u202f%"]


def test_what_is_about_to_go_wrong_stands_on_top(show: Open) -> None:
    """The gravest first, with its numbers, the time left and where to read what to do."""
    page = show(Site())

    lines = page.evaluate(
        "[...document.querySelectorAll('[data-coming]')].map((one) => one.innerText.replaceAll('\\n', ' '))"
    )
    links = page.evaluate("[...document.querySelectorAll('#coming .runbook')].map((link) => link.pathname)")

    assert re.fullmatch(r"batch down for \d+\u202fs or longer what to do", lines[0])
    assert lines[1].startswith("GPU 1 critical: hardware")
    assert "row remap failure 1" in lines[1]
    assert lines[2].startswith("chat at risk: a KV pool runs full full in 7\u202fmin on GPU 0; used 50.0\u202f%")
    assert [link.rpartition("/")[2] for link in links] == [
        "server-down.md",
        "device-memory-errors.md",
        "kv-pool-exhausting.md",
    ]
    assert page.evaluate("document.getElementById('coming').getBoundingClientRect().top < 200")


def test_only_a_change_of_risk_is_spoken(show: Open) -> None:
    """A screen reader hears that a level changed, not the figures of each second."""

    def node(tick: int) -> Snapshot:
        snapshot = sample.node(tick)
        first, *others = snapshot.servers
        return snapshot if tick >= 4 else replace(snapshot, servers=(replace(first, risk=OK), *others))

    page = show(Site(node))
    before = page.evaluate("document.getElementById('said').textContent")
    page.evaluate(
        "window.spoken = []; window.said = document.getElementById('said');"
        "new MutationObserver(() => window.spoken.push(window.said.textContent))"
        ".observe(window.said, {childList: true, characterData: true, subtree: true})"
    )

    page.wait_until("window.spoken.length")
    page.wait_until("document.querySelector('.chart').dataset.points > 270")

    assert before == ""
    assert page.evaluate("window.spoken") == ["chat: at risk"]


def test_a_hostile_name_is_text_in_its_view_too(show: Open) -> None:
    """Its address is encoded, its heading and its rows are letters; no element came of it and no script ran."""
    page = show(Site())
    page.evaluate("[...document.querySelectorAll('h2 a')].find((link) => link.textContent.includes('<')).click()")
    page.wait_until(VIEW)
    open_all(page)

    assert page.evaluate(f"{VIEW}.dataset.serverView") == sample.HOSTILE
    assert page.evaluate("document.querySelector('#view h2').firstChild.data") == sample.HOSTILE
    assert page.evaluate("document.scripts.length + document.images.length") == 1
    assert "owned" not in page.evaluate("document.title")
    assert page.problems() == []


@pytest.mark.parametrize("name", ["nobody", "%", "<script>", "constructor"])
def test_a_server_that_is_not_there_is_said_to_be_gone(show: Open, name: str) -> None:
    """Whatever the address holds; the way back is there."""
    page = show(Site())
    page.evaluate(f"location.hash = {'#server/' + name!r}")
    page.wait_until(VIEW)

    assert "No server of this name" in page.evaluate(f"{VIEW}.innerText")
    assert page.evaluate("document.querySelector('.back a').hash") == ""
    assert page.problems() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_a_view_fits_and_is_readable(show: Open, width: int, scheme: str) -> None:
    """Eight pools with their charts, at the width of a phone and of a desk, in both schemes."""
    page = show(Site(states.many))
    page.resize(width, 812)
    page.prefer(scheme)
    page.evaluate("location.hash = '#server/server-1'")
    page.wait_until(VIEW)
    open_all(page)

    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert sticking_out(page) == unreadable(page) == []
