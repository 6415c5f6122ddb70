"""How far back the charts go: minutes out of the recorder, where there is one."""

import msgspec
import pytest
from msgspec.structs import replace

from agent.snapshot import Recorder, Recording, Snapshot
from tests.agent.web import sample
from tests.agent.web.person import press
from tests.agent.web.site import Open, Site
from tests.browser import Page

CHART = "document.querySelector('[data-server-card=chat] .chart').dataset"
CHOICES = "[...document.querySelectorAll('#range button')].map((one) => [one.innerText, one.ariaPressed])"
LEFT_END = "document.querySelector('[data-server-card=chat] .axis span span').innerText"


def recorded(tick: int) -> Snapshot:
    return replace(sample.node(tick), recorder=Recorder(dropped=0, bundles=0))


async def past() -> bytes:
    """Twenty-five minutes, each five seconds."""
    times = [sample.START - 1500 + 5 * step for step in range(300)]
    points = [(time, 60_000 + 100 * step) for step, time in enumerate(times)]
    pool = {"server": "chat", "replica": "0", "kind": "full", "points": points}
    device = {"uuid": "GPU-aaaa", "used": [(time, 50 << 30) for time in times]}
    return msgspec.json.encode({"schema": "vramscope.history/1", "pools": [pool], "devices": [device]})


def chosen(page: Page, minutes: str) -> None:
    page.evaluate(f"document.querySelector('[data-range=\"{minutes}\"]').focus()")
    press(page, "Enter")


def test_minutes_before_the_page_was_opened_come_from_the_recorder(show: Open) -> None:
    """By key: the chart goes back as far as is chosen, and lives on."""
    page = show(Site(recorded, past=past))
    assert page.evaluate(CHOICES) == [["auto", "true"], ["5 min", "false"], ["15 min", "false"], ["30 min", "false"]]

    chosen(page, "30")
    page.wait_until(f"{CHART}.span === '1800'")
    points = int(page.evaluate(f"{CHART}.points"))
    page.wait_until(f"Number({CHART}.points) > {points} || Number({CHART}.last) > 120000")
    end = page.evaluate(LEFT_END)
    pressed = page.evaluate(CHOICES)[-1]
    chosen(page, "5")
    page.wait_until(f"{CHART}.span === '300'")

    assert points >= 240  # of 300, as many as there are columns
    assert end == "30\u202fmin ago"
    assert pressed == ["30 min", "true"]
    assert page.problems() == []


def test_without_a_recorder_there_is_nothing_to_choose(show: Open) -> None:
    assert show(Site()).evaluate(CHOICES) == []


def test_a_recording_that_is_replayed_has_ranges_too(show: Open) -> None:
    """Keys choose farther and nearer ones; of a device only its use is known of the time before."""
    of_then = Recording(file="then.vramscope", started_at=sample.START, speed=20.0)
    page = show(Site(lambda tick: replace(sample.node(tick), recording=of_then), past=past))

    for _ in range(5):
        press(page, "-")
    page.wait_until(f"{CHART}.span === '1800'")
    older = int(page.evaluate("document.querySelector('[data-stack=\"0\"]').dataset.older"))
    page.evaluate("document.querySelector('[data-stack=\"0\"] .scrub').focus()")
    press(page, "Home")
    for _ in range(20):
        press(page, "ArrowRight")
    read = page.wait_until("document.querySelector('[data-stack=\"0\"] .readout[data-time]')?.innerText")
    farthest = page.evaluate(CHOICES)[-1]
    press(page, "+")
    page.wait_until(f"{CHART}.span === '900'")

    assert older == pytest.approx(244, abs=4)  # of 1500 s before, those that the last 280 do not know
    assert "50.00 GiB used, not known of what; 90.40 free" in read
    assert farthest == ["30 min", "true"]
    assert "20 times as fast" in page.evaluate("document.getElementById('status').innerText")
    assert page.problems() == []


def test_what_can_not_be_read_is_said(show: Open) -> None:
    """In the agent's own words; the figures go on."""
    page = show(Site(recorded))
    page.evaluate(
        "window.said = new Set(); setInterval(() => window.said.add(document.getElementById('banner').innerText), 20)"
    )

    chosen(page, "15")

    page.wait_until("[...window.said].some((text) => text.includes('nothing is recorded here'))")
    page.wait_until("document.getElementById('banner').hidden")
