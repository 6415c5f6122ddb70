"""A time read off the charts, and figures that stand still while they are read."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec
import pytest
from msgspec.structs import replace

from agent.snapshot import Snapshot
from tests.agent.web import sample, states
from tests.agent.web.person import press, sticking_out, unreadable
from tests.agent.web.sample import CAPACITY, MIB, used_at
from tests.agent.web.site import Open, Site
from tests.browser import Browser, Page

POOL = "[data-server-card=chat] .chart"
STACK = "[data-stack='0']"
SLIDER = f"{POOL} .scrub"
PAUSED = "document.getElementById('paused')"


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    site = Site()
    page = browser.open(site.url)
    page.call("Emulation.setTimezoneOverride", timezoneId="UTC")
    page.wait_until(f'document.querySelector("{STACK}") && document.querySelector("{POOL}")')
    press(page, "p")
    yield page
    page.close()
    site.stop()


def readout(page: Page, chart: str) -> tuple[float, str]:
    """The time that is read, and the text."""
    line = f'document.querySelector("{chart} .readout")'
    page.wait_until(f"{line}.dataset.time")
    time, text = page.evaluate(f"[{line}.dataset.time, {line}.innerText]")
    return float(time), re.sub(r"\s+", " ", text)


def place(page: Page, seconds: float) -> tuple[float, float]:
    """Where a time so long before the pool's newest is on the screen."""
    x, y = page.evaluate(
        f"""(() => {{
          const slider = document.querySelector("{SLIDER}");
          slider.scrollIntoView({{block: "center"}});
          const box = slider.getBoundingClientRect();
          const past = document.querySelector("{POOL} .past").getBoundingClientRect().width;
          return [box.left + past * (1 - {seconds} / document.querySelector("{POOL}").dataset.span), box.top + 20];
        }})()"""
    )
    return x, y


def at(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%H:%M:%S")


def test_a_pointer_reads_a_time_off_every_chart(page: Page) -> None:
    """Tokens by state with their growth, and in the chart of the GPU bytes by component; when it leaves, nothing."""
    x, y = place(page, 60)
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    time, text = readout(page, POOL)
    tick = round(time - sample.START)
    looked, stack = readout(page, STACK)
    lines = page.evaluate("document.querySelectorAll('.cursor line').length")
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
    page.wait_until("!document.querySelector('.cursor line')")

    used = used_at(tick)
    growth = (used - used_at(tick - 60)) / 60
    assert text.startswith(at(time))
    assert f"used {used:,} ({100 * used / CAPACITY:.1f} %) available {CAPACITY - used:,}" in text
    assert f"+{growth:.0f} tokens/s over the minute before" in text
    assert 0 <= time - looked <= 6
    assert (
        f"Weights {70_903 / 1024:.2f} KV used {used_at(round(looked - sample.START)) * sample.TOKEN_BYTES / 2**30:.2f}"
        in stack
    )
    assert lines == page.evaluate("document.querySelectorAll('.plot').length") >= 2


def test_a_chart_that_does_not_cover_a_time_has_no_cursor_there(show: Open) -> None:
    """The device has been known for longer than the pool: nothing is clamped to the edge."""

    def node(tick: int) -> Snapshot:
        whole = sample.node(tick)
        return replace(whole, devices=tuple(replace(one, uuid=f"new-{one.uuid}") for one in whole.devices))

    page = show(Site(node))
    page.wait_until(f'document.querySelector("{STACK} .scrub") && document.querySelector("{SLIDER}")')
    page.evaluate(f'document.querySelector("{SLIDER}").focus()')
    press(page, "Home")
    page.wait_until(f'document.querySelector("{POOL} .cursor line")')

    assert not page.evaluate(f'document.querySelector("{STACK} .cursor line")')
    assert page.evaluate(f'document.querySelector("{STACK} .readout").innerText').startswith("not known of ")


def test_the_pools_range_is_said_of_the_time_that_is_known(show: Open) -> None:
    """After a restart the chart is longer than what is known."""

    class Restarted(Site):
        def history_json(self) -> bytes:
            past = sample.history(self.tick)
            for pool in past["pools"]:
                pool["points"] = [[at, used if at > sample.START - 45 else None] for at, used in pool["points"]]
            return msgspec.json.encode(past)

    text = show(Restarted()).wait_until(f'document.querySelector("{POOL} .readout")?.innerText')

    assert re.search(r" tokens in the (4\d|5\d).s that are known$", text)


def test_arrow_keys_walk_and_a_screen_reader_hears_the_values(page: Page) -> None:
    """A sixtieth of the range each; from one end to the other; Escape leaves."""
    page.evaluate(f'document.querySelector("{SLIDER}").focus()')
    for _ in range(3):
        press(page, "ArrowLeft")
    page.wait_until(f"document.querySelector(\"{SLIDER}\").ariaValueNow === '-15'")
    said = page.evaluate(f'document.querySelector("{SLIDER}").ariaValueText')
    role = page.evaluate(f'document.querySelector("{SLIDER}").role')
    _, text = readout(page, POOL)
    press(page, "Home")
    page.wait_until(f"document.querySelector(\"{SLIDER}\").ariaValueNow === '-300'")
    press(page, "Escape")
    page.wait_until("!document.querySelector('.cursor line')")
    page.evaluate("document.activeElement.blur()")

    assert role == "slider"
    assert "15\u202fs before now: used " in said
    assert said.split(": used ")[1].split(" ")[0] in text


def test_a_finger_reads_a_time(page: Page) -> None:
    """Where it touches; what it says stays until another place is touched."""
    x, y = place(page, 90)
    page.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
    page.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    time, _ = readout(page, POOL)
    page.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": 5, "y": 5}])
    page.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    page.evaluate("document.activeElement.blur()")
    page.wait_until("!document.querySelector('.cursor line')")

    end = float(page.evaluate(f'document.querySelector("{POOL}").dataset.end'))
    assert end - time == pytest.approx(90, abs=2)


def test_a_time_that_nobody_read_is_not_known(page: Page) -> None:
    """In the gap of the line, not the value before it."""
    newest = float(page.evaluate(f'document.querySelector("{POOL}").dataset.end'))
    x, y = place(page, newest - (sample.START - 140))
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    _, text = readout(page, POOL)
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)

    assert text.endswith("its use is not known")


def test_components_lie_on_each_other_in_proportion(page: Page) -> None:
    """The layer of each reaches as high as it and all below it."""
    total = 143_771
    heights = page.evaluate(
        f"""Object.fromEntries([...document.querySelectorAll("{STACK} path[data-component]")].map(
          (path) => [path.dataset.component, path.getBBox().height]))"""
    )

    assert heights["reserved"] == pytest.approx(100 * 617 / total, abs=0.1)
    assert heights["weights"] == pytest.approx(100 * (617 + 70_903) / total, abs=0.1)
    whole = 617 + 70_903 + CAPACITY * sample.TOKEN_BYTES // MIB
    assert heights["kv_available"] == pytest.approx(100 * whole / total, abs=0.1)
    assert "free" not in heights


def test_all_devices_are_seen_side_by_side(show: Open) -> None:
    """Behind a fold under the list; each chart says which component moved most."""
    page = show(Site(states.many))
    page.evaluate("document.querySelector('[data-key=stacks] > summary').click()")
    charts = "document.querySelectorAll('.stacks [data-stack]')"

    assert page.wait_until(f"{charts}.length") == 15  # one of sixteen is lost
    page.wait_until(f"{charts}[0].dataset.points > 1")
    text = page.evaluate(f"{charts}[0].querySelector('.readout').innerText")
    assert re.match(r"now [\d.]+ GiB used, [\d.]+ free", text)
    assert page.problems() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_paused_and_read_it_is_readable_on_the_smallest_screen(page: Page, scheme: str) -> None:
    """At 320 pixels, where a page of a desktop at 400 % is, nothing sticks out, and all text has contrast."""
    page.prefer(scheme)
    page.resize(320, 700)
    page.evaluate(f'document.querySelector("{SLIDER}").focus()')
    press(page, "ArrowLeft")
    readout(page, POOL)
    found = unreadable(page), sticking_out(page), page.evaluate("document.documentElement.scrollWidth")
    page.evaluate("document.activeElement.blur()")
    page.resize(1280, 900)
    page.prefer("light")

    assert found == ([], [], 320)


def test_what_a_figure_is_of_is_in_its_name(page: Page) -> None:
    """A screen reader that walks from button to button hears no bare numbers."""
    names = page.evaluate(
        "[...document.querySelectorAll('.why')].map((one) => one.ariaLabel ?? one.innerText)"
        ".filter((name) => !/[a-z]{2}/i.test(name.replace('GiB', '')))"
    )

    assert names == []


def test_keys_can_be_switched_off(show: Open) -> None:
    """For those whose speech or hand presses them unmeant; the button still pauses."""
    page = show(Site())
    page.evaluate("document.getElementById('keys').click()")

    press(page, "p")
    by_key = page.evaluate(f"{PAUSED}.hidden")
    page.evaluate("document.querySelector('#pause button').click()")

    assert by_key
    assert not page.evaluate(f"{PAUSED}.hidden")


def test_a_page_that_is_paused_stands_still_and_says_so(show: Open) -> None:
    """By key: the time that is shown stands over the figures, is said aloud and in the title; then it goes on."""
    page = show(Site())
    newest = "document.querySelector('[data-server-card=chat] .chart').dataset.end"
    page.wait_until(newest)

    press(page, "p")
    shown = float(page.evaluate(newest))
    said = page.evaluate("document.getElementById('said').textContent")
    page.wait_until(f"/ [3-9].s before the newest/.test({PAUSED}.innerText)")
    still = float(page.evaluate(newest))
    title = page.evaluate("document.title")
    text = page.evaluate(f"{PAUSED}.innerText")
    banner = page.evaluate("document.getElementById('banner').hidden")
    page.evaluate(f"{PAUSED}.querySelector('button').focus()")
    press(page, "Enter")
    page.wait_until(f"Number({newest}) > {shown} + 2")

    assert shown == still
    assert re.match(r"Paused at \d\d:\d\d:\d\d$", said)
    assert text.startswith(said)
    assert title.startswith("paused")
    assert banner
    assert page.evaluate(f"{PAUSED}.hidden")
    assert page.evaluate("document.getElementById('said').textContent") == "Live again"
    assert page.evaluate("document.activeElement.innerText") == "pause"
    assert page.problems() == []
