"""How the page keeps itself live: by the stream, by asking where that is refused, and not at all while hidden."""

import pytest

from agent.web import events
from tests.agent.web.site import Open, Site

POINTS = "Number(document.querySelector('.chart').dataset.points)"
ASKED = "performance.getEntriesByType('resource').filter((one) => one.name.endsWith('{}')).length"
HIDE = """(hidden) => {
  Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_figures_come_by_the_stream_alone(show: Open) -> None:
    """The page asks for the history once, and for no snapshot."""
    page = show(Site())
    before = page.wait_until(POINTS)

    page.wait_until(f"{POINTS} >= {before} + 3")

    assert page.evaluate(ASKED.format("/snapshot")) == 0
    assert page.evaluate(ASKED.format("/history")) == 1


def test_where_streams_are_refused_the_page_asks(show: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many pages are open: the figures move all the same, and the stream is tried again, more and more seldom."""
    monkeypatch.setattr(events, "MAX_STREAMS", 0)
    page = show(Site())
    before = page.wait_until(POINTS)

    page.wait_until(f"{POINTS} >= {before} + 3")

    assert page.evaluate("document.getElementById('banner').hidden")
    assert page.evaluate(ASKED.format("/snapshot")) >= 3


def test_a_hidden_page_costs_nothing_and_says_so(show: Open) -> None:
    """Nobody listens any more, and the title stands for no figure; shown again, it goes on with the gap filled."""
    site = Site()
    page = show(site)
    page.wait_until(POINTS)

    page.evaluate(f"({HIDE})(true)")
    page.evaluate("new Promise((wake) => setTimeout(wake, 1500))")  # the last frame is on its way
    stands = site.tick
    page.evaluate("new Promise((wake) => setTimeout(wake, 2500))")
    hidden = page.evaluate("document.title")
    assert site.tick == stands
    page.evaluate(f"({HIDE})(false)")
    page.wait_until("!document.title.startsWith('paused')")

    assert hidden.startswith("paused")
    page.wait_until(f"{ASKED.format('/history')} === 2")
