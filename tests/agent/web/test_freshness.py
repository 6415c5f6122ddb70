"""What the page says when figures are old or missing: it never passes an old value for a fresh one."""

from collections.abc import Callable

import msgspec

from agent.snapshot import Device, Snapshot
from tests.agent.web import sample
from tests.agent.web.site import Open, Site
from tests.browser import Browser

BANNER = "document.getElementById('banner').innerText"


def test_a_stopped_agent_is_said_and_its_figures_are_greyed_until_it_is_back(show: Open) -> None:
    """The banner counts the seconds since the last update; after a restart it is gone by itself."""
    site = Site()
    page = show(site)
    assert page.evaluate("document.getElementById('banner').hidden")

    site.stop()
    page.wait_until(f"/^Agent not reachable, last update [1-9]\\d*\\s+s ago/.test({BANNER})")
    greyed = page.evaluate("Number(getComputedStyle(document.getElementById('node')).opacity)")
    back = Site(port=site.port)
    page.wait_until("document.getElementById('banner').hidden")
    back.stop()

    assert greyed < 1


def test_an_agent_that_repeats_itself_is_not_believed(show: Open) -> None:
    """Answers that bring the same snapshot again and again are called out as standing still."""
    site = Site()
    page = show(site)

    site.frozen = True
    text = page.wait_until(f"{BANNER}.includes('stand still') && {BANNER}")

    assert "last update" in text
    assert page.evaluate("document.getElementById('node').hasAttribute('data-stale')")


def test_an_agent_that_stopped_collecting_is_quoted(show: Open) -> None:
    """Its own sentence stands in the banner, with the age of the figures."""
    site = Site()
    page = show(site)

    site.refusal = "no tick for 12 s"
    text = page.wait_until(f"{BANNER}.includes('no tick') && {BANNER}")

    assert text.startswith("The agent has no current figures: no tick for 12 s, last update ")


def test_a_server_that_goes_away_leaves_a_gap(show: Open) -> None:
    """While its pool is not known nothing is drawn; when it is back the line goes on after the gap."""

    def node(tick: int) -> Snapshot:
        snapshot = sample.node(tick)
        return msgspec.structs.replace(snapshot, servers=()) if 2 <= tick <= 3 else snapshot

    page = show(Site(node))

    page.wait_until("document.querySelector('[data-missing]')")
    runs = page.wait_until(
        "document.querySelector('[data-server-card=chat] .line')?.getAttribute('d').match(/M/g).length"
    )

    assert runs == 3  # the sample's history has a gap of its own


def _with_device(change: Callable[[Device], Device]) -> Callable[[int], Snapshot]:
    def node(tick: int) -> Snapshot:
        snapshot = sample.node(tick)
        first, *others = snapshot.devices
        return msgspec.structs.replace(snapshot, devices=(change(first), *others))

    return node


def test_an_old_reading_of_one_gpu_shows_its_age(show: Open) -> None:
    """Only the card of that GPU is greyed."""
    page = show(Site(_with_device(lambda device: msgspec.structs.replace(device, age_seconds=42.0))))

    assert page.evaluate("[...document.querySelectorAll('[data-stale]')].map((card) => card.dataset.gpu)") == ["0"]
    assert "This reading is 42\u202fs old." in page.evaluate("document.querySelector(\"[data-gpu='0']\").innerText")


def test_a_gpu_without_a_reading_has_no_bar(show: Open) -> None:
    """What is not known is said, not drawn as zero."""

    def lost(device: Device) -> Device:
        unknown = {"total_bytes": None, "free_bytes": None, "age_seconds": None, "headroom_ratio": None}
        return msgspec.structs.replace(device, components=(), **unknown)

    page = show(Site(_with_device(lost)))

    assert page.evaluate("document.querySelectorAll(\"[data-gpu='0'] .bar\").length") == 0
    assert "No memory reading" in page.evaluate("document.querySelector(\"[data-gpu='0']\").innerText")
    assert page.problems() == []


def test_without_gpu_and_server_the_page_says_what_is_missing_and_what_to_do(show: Open) -> None:
    """The collector's own sentence first, then what a person can do."""
    page = show(Site(lambda tick: msgspec.structs.replace(sample.without_gpu(), time=sample.START + tick)))

    cards = page.evaluate("[...document.querySelectorAll('[data-missing]')].map((card) => card.innerText)")

    assert "libnvidia-ml.so.1 was not found" in cards[0]
    assert "nvidia-smi" in cards[0]
    assert "servers:" in cards[1]
    assert page.problems() == []


def test_the_policy_blocks_what_the_page_does_not_bring(show: Open) -> None:
    """A script written into the page does not run: the policy is in force where the other tests look."""
    page = show(Site())

    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = true'}))"
    )

    assert page.evaluate("window.ran") is None
    assert any("Content Security Policy" in problem for problem in page.problems())


def test_without_javascript_the_page_points_to_the_figures_as_text(browser: Browser) -> None:
    """A browser with scripts off shows a sentence with two links."""
    site = Site()
    page = browser.open("about:blank")
    page.without_scripts()
    page.call("Page.navigate", url=site.url)

    text = page.wait_until("document.querySelector('noscript')?.innerText")
    page.close()
    site.stop()

    assert "/metrics" in text
    assert "/api/v1/snapshot" in text
