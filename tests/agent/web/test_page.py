"""The page as drawn by a real Chromium, of a made-up node whose pool grows."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.snapshot import Device
from tests.agent.web import sample
from tests.agent.web.person import open_all, sticking_out, unreadable
from tests.agent.web.site import Site
from tests.browser import Browser, Page

PIXEL = 0.5  # layout rounds to a fraction of a pixel

PARTS = """(selector) => [...document.querySelectorAll(selector)].map((part) => {
  const box = part.getBoundingClientRect();
  return {...part.dataset, left: box.left, width: box.width};
})"""


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    site = Site()
    page = browser.open(site.url)
    page.wait_until("document.querySelectorAll('[data-gpu]').length === 2")
    yield page
    page.close()
    site.stop()


def parts(page: Page, selector: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = page.evaluate(f"({PARTS})({selector!r})")
    return found


def device(index: int) -> Device:
    return sample.node(0).devices[index]


@pytest.mark.parametrize("gpu", [0, 1])
def test_live_parts_are_as_wide_as_their_bytes(page: Page, gpu: int) -> None:
    """Every component is drawn, in proportion, and together they fill the bar exactly."""
    total = device(gpu).total_bytes
    assert total is not None

    drawn = parts(page, f"[data-gpu='{gpu}'] [data-row=live] .part")
    bar = parts(page, f"[data-gpu='{gpu}'] [data-row=live]")[0]

    assert len(drawn) == len(device(gpu).components)
    assert sum(int(part["bytes"]) for part in drawn) == total
    for part in drawn:
        assert part["width"] == pytest.approx(bar["width"] * int(part["bytes"]) / total, abs=PIXEL), part
    assert sum(part["width"] for part in drawn) == pytest.approx(bar["width"], abs=PIXEL)


@pytest.mark.parametrize("gpu", [0, 1])
def test_the_budget_lies_under_the_live_bar_at_the_same_scale(page: Page, gpu: int) -> None:
    """It starts where the server's live parts start, right below, and its range ends at the high bound."""
    total = device(gpu).total_bytes
    assert total is not None
    lines = {(line.component, line.bound): line.bytes for line in device(gpu).budget}

    budget = parts(page, f"[data-gpu='{gpu}'] [data-row=budget] .part")
    live = parts(page, f"[data-gpu='{gpu}'] [data-row=live] .part")
    bar = parts(page, f"[data-gpu='{gpu}'] [data-row=live]")[0]
    below = page.evaluate(
        f"document.querySelector(\"[data-gpu='{gpu}'] [data-row=budget]\").getBoundingClientRect().top"
        f" - document.querySelector(\"[data-gpu='{gpu}'] [data-row=live]\").getBoundingClientRect().bottom"
    )

    scale = bar["width"] / total
    first = next(part for part in live if part["component"] == "weights")
    assert [(part["component"], part["bound"]) for part in budget] == [
        ("weights", "likely"),
        ("kv_pool", "likely"),
        ("runtime", "low"),
        ("runtime", "likely"),
        ("runtime", "high"),
    ]
    assert budget[0]["left"] == pytest.approx(first["left"], abs=PIXEL)
    assert budget[0]["width"] == pytest.approx(scale * lines["weights", "likely"], abs=PIXEL)
    assert budget[1]["width"] == pytest.approx(scale * lines["kv_pool", "likely"], abs=PIXEL)
    assert sum(part["width"] for part in budget[2:]) == pytest.approx(scale * lines["runtime", "high"], abs=PIXEL)
    assert 0 <= below < 10


def test_the_table_gives_bytes_share_budget_and_signed_deviation(page: Page) -> None:
    """The row of the weights: 70,903 MiB of 143,771 MiB, 491 MiB more than the budget."""
    row = "[data-gpu='0'] [data-figure=weights]"

    cells = page.evaluate(f'[...document.querySelector("{row}").children].map((cell) => cell.innerText)')
    evidence = page.evaluate(f'document.querySelector("{row} .evidence").dataset.evidence')

    assert [cell.split() for cell in cells] == [["Weights"], ["69.24", "49.3", "%"], ["68.76"], ["+0.48"]]
    assert evidence == "computed"


def test_the_pool_is_compared_as_a_whole(page: Page) -> None:
    """Used and available are two parts of one budgeted pool: 40,960 MiB live against 41,300 MiB."""
    deviation = page.evaluate("document.querySelector(\"[data-gpu='0'] [data-figure=kv_pool]\").dataset.deviation")

    assert int(deviation) == (40_960 - 41_300) * sample.MIB


def test_headroom_below_the_rule_is_said_in_words(page: Page) -> None:
    """Colour alone would not do."""
    texts = page.evaluate("[...document.querySelectorAll('.headroom > p')].map((line) => line.innerText)")

    assert texts == ["17.8\u202f% headroom", "6.0\u202f% headroom, below the 10\u202f% rule"]


def test_what_does_not_add_up_is_called_out(page: Page) -> None:
    """Unexplained and over-attributed bytes stand on the card of their GPU, and only there."""
    found = page.evaluate(
        "[...document.querySelectorAll('[data-unexplained], [data-overattributed]')]"
        ".map((call) => [call.closest('[data-gpu]').dataset.gpu, call.firstChild.innerText])"
    )

    assert found == [["1", "1.37 GiB unexplained"], ["1", "0.29 GiB over-attributed"]]


def test_what_is_wrong_with_a_gpu_stands_on_its_card(page: Page) -> None:
    """Errors and notes as sentences, on the card of that GPU only; what is well, or not known, is not mentioned."""
    found = page.evaluate(
        "[...document.querySelectorAll('[data-hardware], [data-gpu] .notes li')]"
        ".map((line) => [line.closest('[data-gpu]').dataset.gpu, line.innerText])"
    )

    assert found == [
        ["1", "A row of its memory could not be remapped: have the GPU replaced."],
        ["1", "2 uncorrectable memory errors since its driver was loaded."],
        ["1", "Xid 48, double-bit ECC error: 2 since the agent's start."],
        ["1", "Errors since the agent's start, an application's as a rule: Xid 31 (4)."],
        ["1", "The operating system uses this <b>memory</b> too."],
    ]


def test_what_comes_stands_beside_its_pool_and_its_gpu(page: Page) -> None:
    """The time left and what grows; beside the others, of which nothing is foreseen, nothing."""
    pools = page.evaluate(
        "[...document.querySelectorAll('.kv .left')]"
        ".map((left) => [left.closest('[data-server-card]').dataset.serverCard, left.innerText])"
    )
    devices = page.evaluate(
        "[...document.querySelectorAll('#devices [data-left], #devices [data-steps]')]"
        ".map((left) => [left.closest('[data-gpu]').dataset.gpu, left.innerText])"
    )

    assert pools == [["chat", "full in 7\u202fmin"]]
    assert devices == [
        [
            "1",
            f"Full in 5\u202fh, 4\u202fh at the soonest {sample.HOSTILE} outside its KV pool: 200.00 MiB more an hour. "
            "Room left: 0.98 GiB beside 0.50 GiB for temporaries.",
        ],
        ["1", f"Last step outside the KV pools: \u22120.29 GiB, {sample.HOSTILE}, 15\u202fmin ago."],
    ]


def test_a_risk_is_named_with_its_reason(page: Page) -> None:
    """In words, on the card of its server or GPU; what is ok, or has no level, has no tag."""
    found = page.evaluate(
        "[...document.querySelectorAll('.card[data-key] [data-risk]')]"
        ".map((tag) => [tag.closest('[data-key]').dataset.key, tag.dataset.reason, tag.innerText])"
    )

    assert found == [
        ["GPU-bbbb", "hardware", "critical: hardware"],
        ["chat", "pool_exhaustion", "at risk: a KV pool runs full"],
    ]


def test_a_pool_grows_while_one_looks(page: Page) -> None:
    """Ratio, bar and chart all move; the chart also shows the minutes before the page was opened."""
    look = """(() => {
      const pool = document.querySelector("[data-server-card=chat] [data-pool]");
      const line = pool.querySelector(".line");
      return {
        ratio: Number(pool.dataset.ratio), points: Number(pool.querySelector(".chart").dataset.points),
        bar: pool.querySelector("[data-component=kv_used]").getBoundingClientRect().width,
        height: line.getBBox().height, end: line.getPointAtLength(line.getTotalLength()).y,
      };
    })()"""

    before = page.evaluate(look)
    page.wait_until(f"({look}).points >= {before['points'] + 3}")
    after = page.evaluate(look)

    assert before["points"] > sample.HISTORY_SECONDS - 25
    assert after["ratio"] > before["ratio"]
    assert after["bar"] > before["bar"]
    assert after["end"] < before["end"]


def test_a_silent_minute_is_a_gap_in_the_chart(page: Page) -> None:
    """The line is broken where the use was not known, not drawn through it."""
    runs = page.evaluate("document.querySelector('[data-server-card=chat] .line').getAttribute('d').match(/M/g).length")

    assert runs == 2


def test_requests_and_preemptions_are_shown_and_unknown_is_a_dash(page: Page) -> None:
    """An engine that does not count preemptions has none shown, not zero."""
    loads = page.evaluate("[...document.querySelectorAll('[data-load]')].map((figure) => figure.innerText)")

    assert loads == ["37", "4", "12", "3", "0", "–"]


def test_a_hostile_name_is_text(page: Page) -> None:
    """Names, notes, paths and arguments are shown letter by letter; no element came of it and no script ran."""
    open_all(page)
    shown = page.evaluate(
        "[...document.querySelectorAll('[data-origin=\"model path\"], [data-argument], .notes li')]"
        ".map((one) => one.textContent)"
    )
    model = page.evaluate("[...document.querySelectorAll('[data-fact=model]')].map((fact) => fact.textContent)")

    assert sample.HOSTILE in model
    assert shown.count(sample.HOSTILE) == 3
    assert page.evaluate("document.scripts.length") == 1
    assert page.evaluate("document.images.length") == 0
    assert "owned" not in page.evaluate("document.title")


def test_a_failed_collector_says_why(page: Page) -> None:
    """Its sentence stands among the collectors and on the card of the server it is about."""
    sentence = "refused the connection; start the server or correct its url."

    assert sentence in page.evaluate("document.querySelector('[data-failing]').innerText")
    assert sentence in page.evaluate("document.querySelector('[data-server-card=batch]').innerText")
    assert "1 of 5 collectors failing" in page.evaluate("document.getElementById('status').innerText")


def test_an_update_keeps_the_elements(page: Page) -> None:
    """A selected sentence stays selected while the figures change."""
    page.evaluate("getSelection().selectAllChildren(document.querySelector('.call'))")
    before = page.evaluate("[getSelection().toString(), document.querySelector('.chart').dataset.points]")

    page.wait_until(f"document.querySelector('.chart').dataset.points !== '{before[1]}'")

    assert before[0] == page.evaluate("getSelection().toString()") != ""


def test_a_phone_needs_no_sideways_scroll(page: Page) -> None:
    """At 375 pixels nothing is wider than the window, and nothing leaves its card."""
    page.resize(375, 812)
    width = page.evaluate("document.documentElement.scrollWidth")
    wide = sticking_out(page)
    page.resize(1280, 900)

    assert width == 375
    assert wide == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_is_readable(page: Page, scheme: str) -> None:
    """Every text stands out from its ground, in both colour schemes."""
    page.prefer(scheme)
    try:
        assert unreadable(page) == []
    finally:
        page.prefer("light")


def test_dark_is_dark(page: Page, tmp_path: Path) -> None:
    """The page follows the system's wish; both looks are kept as pictures."""
    grounds = {}
    for scheme in ("light", "dark"):
        page.prefer(scheme)
        grounds[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.screenshot(tmp_path / f"{scheme}.png")
    page.prefer("light")

    assert grounds == {"light": "rgb(245, 246, 248)", "dark": "rgb(15, 19, 23)"}
    assert (tmp_path / "light.png").read_bytes() != (tmp_path / "dark.png").read_bytes()


def test_the_console_stays_empty(page: Page) -> None:
    """No exception, no error, nothing blocked by the content security policy."""
    assert page.problems() == []
