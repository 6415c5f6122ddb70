"""How a figure is known is told on hover, on keyboard focus and on touch, and goes on being true while it is read."""

from collections.abc import Iterator

import pytest

from tests.agent.web import sample
from tests.agent.web.person import hover, note, press, sticking_out, tap, unreadable
from tests.agent.web.site import Open, Site
from tests.browser import Browser, Page

WEIGHTS = "[data-gpu='0'] [data-figure=weights]"


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    site = Site()
    page = browser.open(site.url)
    page.wait_until("document.querySelectorAll('[data-gpu]').length === 2")
    yield page
    page.close()
    site.stop()


def focus(page: Page, selector: str) -> str:
    """Focus the figure inside an element, as Tab would."""
    page.evaluate(f"document.querySelector({selector + ' .why'!r}).focus()")
    return note(page)


def test_the_pointer_on_a_row_gets_its_evidence(page: Page) -> None:
    """Source, age, budget with what it rests on, deviation; gone when the pointer leaves."""
    hover(page, f"{WEIGHTS} td")
    text = note(page)
    hover(page, "")

    assert text.splitlines() == [
        "Weights in chat: 69.24 GiB, 49.3\u202f%",
        "The model's parameters.",
        "Live is computed: reported counts or checkpoint bytes times the exact layout; 1\u202fs ago.",
        "Budget, likely: 68.76 GiB.",
        "Deviation, live minus budget: +0.48 GiB.",
        "The budget rests on the checkpoint in /models/llama-3.1-70b, with tp 1, dtype bfloat16, and on the defaults "
        "of vllm 0.11.0 where an argument is not known.",
    ]
    assert note(page) == ""


def test_the_pointer_may_move_into_the_note(page: Page) -> None:
    """A long text can be read and selected under the pointer."""
    hover(page, f"{WEIGHTS} td")
    hover(page, "#tip")

    assert note(page).startswith("Weights in chat")
    hover(page, "")


def test_focus_gets_the_same_and_escape_dismisses_it(page: Page) -> None:
    """A range is given with all its bounds; Escape leaves the focus where it was."""
    text = focus(page, "[data-gpu='0'] [data-figure=runtime]")
    press(page, "Escape")

    assert "Live is measured: driver or allocator statistics" in text
    assert "Budget, likely: 5.37 GiB; low 3.52, high 8.20 GiB." in text
    assert note(page) == ""
    assert page.evaluate("document.activeElement.closest('tr').dataset.figure") == "runtime"


def test_touch_gets_the_same(page: Page) -> None:
    """A finger on a part of the bar or on a row shows its note, one elsewhere hides it."""
    tap(page, "[data-gpu='0'] [data-row=live] [data-component=kv_used]")
    part = note(page)
    tap(page, "[data-gpu='0'] [data-figure=hidden], [data-gpu='0'] [data-figure=free] td")
    row = note(page)
    tap(page, "#status")

    assert part.startswith("KV used in chat: ")
    assert row.startswith("Free: ")
    assert note(page) == ""


def test_the_budget_bar_tells_its_bounds(page: Page) -> None:
    """Its parts give the range of the component that they are part of."""
    hover(page, "[data-gpu='0'] [data-row=budget] [data-bound=high]")
    text = note(page)
    hover(page, "")

    assert text.startswith("Budget of Runtime in chat\nBudget, likely: 5.37 GiB; low 3.52, high 8.20 GiB.")


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        (".big", "Both are measured: driver or allocator statistics"),
        ("[data-headroom]", "above the likely context, graphs and libraries of its budget, up to its high bound"),
        ("[data-load=waiting]", "It is reported: the engine's own metrics or log"),
        ("[data-server-card=chat] .kv", "Of the slots in use 0.0\u202f% to 0.4\u202f% hold no token"),
        (".key", "measured: driver or allocator statistics"),
    ],
)
def test_every_headline_figure_tells_how_it_is_known(page: Page, where: str, sentence: str) -> None:
    """Used, headroom, requests, pool, and the key of the marks."""
    assert sentence in focus(page, where)


def test_a_figure_that_the_engine_does_not_tell_says_so(page: Page) -> None:
    """The dash has a reason."""
    text = focus(page, "[data-server-card]:nth-child(2) [data-load=preemptions]")

    assert text.endswith("The engine does not tell.")


def test_the_note_says_what_its_figure_says_now(page: Page) -> None:
    """It changes with the figure while it is read."""
    before = focus(page, "[data-gpu='0'] [data-figure=kv_used]")
    page.wait_until(f"document.getElementById('tip').textContent !== {before!r}")

    assert note(page).startswith("KV used in chat: ")
    live = page.evaluate("document.querySelector(\"[data-gpu='0'] [data-figure=kv_used] td\").firstChild.data")
    assert f": {live} GiB" in note(page)


def test_a_hostile_note_is_text(page: Page) -> None:
    """Names and arguments enter it letter by letter."""
    text = focus(page, "[data-gpu='1'] [data-figure=weights]")

    assert text.startswith(f"Weights in {sample.HOSTILE}: ")
    assert f"with dtype {sample.HOSTILE}" in text
    assert page.evaluate("document.getElementById('tip').childElementCount") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_note_fits_a_phone_and_is_readable(page: Page, scheme: str) -> None:
    """At 375 pixels the note stays inside the window."""
    page.prefer(scheme)
    page.resize(375, 812)
    focus(page, WEIGHTS)
    page.wait_until("document.getElementById('tip').getBoundingClientRect().left >= 0")

    wide, dim = sticking_out(page), unreadable(page)
    page.resize(1280, 900)
    page.prefer("light")

    assert wide == dim == []


def test_what_a_screen_reader_hears(page: Page) -> None:
    """Each figure is a button that the note describes; the bars have a name of their own."""
    orphans = page.evaluate(
        "[...document.querySelectorAll('.why')].filter((one) => one.type !== 'button' "
        "|| document.getElementById(one.getAttribute('aria-describedby'))?.role !== 'tooltip').length"
    )
    unnamed = page.evaluate("[...document.querySelectorAll('[role=img]:not([aria-label])')].length")
    untold = page.evaluate("[...document.querySelectorAll('.why')].filter((one) => !one.closest('[data-tip]')).length")

    assert (orphans, unnamed, untold) == (0, 0, 0)


def test_nothing_is_told_by_the_pointer_alone(show: Open) -> None:
    """No title attributes: they show neither on touch nor on focus."""
    page = show(Site())

    assert page.evaluate("document.querySelectorAll('[title]').length") == 0
