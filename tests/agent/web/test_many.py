"""Many GPUs and servers: an overview first, whose rows open to the cards, by pointer and by key."""

from itertools import pairwise

import pytest
from msgspec.structs import replace

from agent.snapshot import Snapshot
from tests.agent.web import sample, states
from tests.agent.web.person import click, open_all, press, sticking_out, unreadable
from tests.agent.web.site import Open, Site
from tests.browser import Page

BARS = """[...document.querySelectorAll("[data-row=overview]")].map((bar) => ({
  gpu: bar.closest("[data-gpu]").dataset.gpu, left: bar.getBoundingClientRect().left,
  width: bar.getBoundingClientRect().width,
  parts: [...bar.children].map((part) => [Number(part.dataset.bytes), part.getBoundingClientRect().width]),
}))"""
OPENED = "[...document.querySelectorAll('details[open]')].map((one) => one.dataset.key)"
TICK = "document.querySelector('[data-server-card=server-0] .fullest').innerText"


def test_all_gpus_stand_on_one_scale(show: Open) -> None:
    """Sixteen thin bars begin at the same place, as long as the GPU's memory, each part as long as its bytes."""
    page = show(Site(states.many))
    devices = {device.gpu: device for device in states.many(0).devices}

    bars = page.evaluate(BARS)

    assert [bar["gpu"] for bar in bars] == [gpu for gpu, device in devices.items() if device.components]
    assert len({bar["left"] for bar in bars}) == 1
    scale = bars[0]["width"] / devices["0"].total_bytes
    for bar in bars:
        assert bar["width"] == pytest.approx(scale * devices[bar["gpu"]].total_bytes, abs=0.5)
        for size, width in bar["parts"]:
            assert width == pytest.approx(scale * size, abs=0.5)
        assert sum(size for size, _ in bar["parts"]) == devices[bar["gpu"]].total_bytes


def test_a_row_says_headroom_and_the_gravest_state(show: Open) -> None:
    """Nothing has to be opened to see trouble: low headroom, a server that loads, a GPU that is lost and why."""
    page = show(Site(states.many))

    rows = page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('[data-gpu]')]"
        ".map((row) => [row.dataset.gpu, row.innerText.split(/\\s+/).join(' ')]))"
    )

    assert rows["0"].endswith("18.3 % serving server-0")
    assert rows["8"].endswith("– loading server-4")
    assert "The GPU has fallen off the bus" in rows["5"]
    assert page.evaluate("document.querySelector(\"[data-gpu='13'] .headroom\").className") == "headroom bad"
    assert "no server" in rows["15"]


def test_the_gravest_of_several_servers_is_named(show: Open) -> None:
    """Eight servers share each GPU."""
    page = show(Site(states.crowded))

    assert page.evaluate("document.querySelector(\"[data-gpu='0'] .on\").innerText") == "serving 1 of 8"


def test_a_card_opens_by_key_and_stays_open_while_figures_change(show: Open) -> None:
    """Enter opens and Space closes the row that has the focus; the focus is seen, and an update keeps both."""
    page = show(Site(states.many))
    for _ in range(6):  # past the way to the servers, the button that pauses and the server that is down
        press(page, "Tab")
    focused = "document.activeElement.closest('[data-gpu]')?.dataset.gpu"
    assert page.evaluate(focused) == "1"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")

    press(page, "Enter")
    before = page.evaluate(TICK)
    page.wait_until(f"{TICK} !== {before!r}")

    assert outline == "solid"
    assert page.evaluate(OPENED) == ["gpu GPU-1"]
    assert page.evaluate(focused) == "1"
    assert page.evaluate("document.querySelectorAll('[data-gpu=\"1\"] [data-row=live] .part').length") == 6

    press(page, " ")

    assert page.evaluate(OPENED) == []
    assert page.evaluate("document.querySelectorAll('[data-row=live]').length") == 0


def test_a_card_opens_by_pointer(show: Open) -> None:
    """A click on the bar opens its card."""
    page = show(Site(states.many))

    click(page, "[data-gpu='12'] [data-row=overview]")

    assert page.evaluate(OPENED) == ["gpu GPU-12"]
    assert "GiB used of 79.65" in page.evaluate("document.querySelector(\"[data-gpu='12']\").innerText")


def test_what_is_open_belongs_to_its_gpu(show: Open) -> None:
    """When GPUs before it go and others take their places, the same GPU is open and keeps its elements and focus."""
    gone = False

    def node(tick: int) -> Snapshot:
        whole = states.many(tick)
        return replace(whole, devices=whole.devices[6:][::-1]) if gone else whole

    page = show(Site(node))
    page.evaluate("document.querySelector(\"[data-gpu='7'] > summary\").focus()")
    press(page, "Enter")
    page.evaluate("window.kept = document.querySelector(\"[data-gpu='7'] .big\")")

    gone = True
    page.wait_until("document.querySelectorAll('[data-gpu]').length === 10")

    assert page.evaluate(OPENED) == ["gpu GPU-7"]
    assert page.evaluate("document.querySelector(\"[data-gpu='7'] .big\") === window.kept")
    assert page.evaluate("document.activeElement.closest('[data-gpu]')?.dataset.gpu") == "7"


def test_eight_replicas_show_the_fullest_pool_first(show: Open) -> None:
    """As thin lines in the row, as charts in the view that it leads to; the map there keeps the engine's order."""
    page = show(Site(states.many))
    replicas = "[...document.querySelectorAll('[data-server-card=server-1] {}')].map((one) => one.dataset.replica)"

    thin = page.evaluate(replicas.format("[data-row=thin]"))
    fullest = page.evaluate("document.querySelector('[data-server-card=server-1] .fullest').innerText")
    click(page, "a[data-server-card=server-1]")
    page.wait_until("document.querySelector('[data-server-view=server-1]')")
    charts = page.evaluate("[...document.querySelectorAll('[data-pool-chart]')].map((one) => one.dataset.poolChart)")
    mapped = page.evaluate("[...document.querySelectorAll('.poolmap li')].map((one) => one.dataset.replica).join('')")

    assert thin == charts == ["5", "1", "3", "6", "0", "4", "7", "2"]
    assert fullest.startswith("91.0\u202f% KV, fullest of 8")
    assert mapped == "01234567"


def test_pools_of_about_the_same_use_keep_their_places(show: Open) -> None:
    """A list that is sorted anew every second can't be read: only more than 5 % apart change places."""

    def node(tick: int) -> Snapshot:
        pools = tuple(
            sample.pool(100_100 + 37 * ((tick * (number + 3)) % 5), 200_000, replica=str(number), growth=None)
            for number in range(4)
        )
        one = sample.server("even", "m", pools, running=1, waiting=0, preemptions=0)
        return states.node(tick, devices=(), servers=(one,))

    page = show(Site(node))
    order = "[...document.querySelectorAll('.pool')].map((one) => one.dataset.replica).join('')"
    ratios = "[...document.querySelectorAll('.pool')].map((one) => one.dataset.ratio).join(' ')"

    seen = set()
    for _ in range(3):
        before = page.evaluate(ratios)
        page.wait_until(f"{ratios} !== {before!r}")
        seen.add(page.evaluate(order))

    assert seen == {"0123"}


def test_what_is_missing_stands_under_the_list_once(show: Open) -> None:
    """The privilege that would add something is in sight although all cards are closed."""
    page = show(Site(states.many))

    assert page.evaluate("[...document.querySelectorAll('[data-notes] li')].map((one) => one.innerText)") == [
        f"server-4, server-7: {states.NO_PRIVILEGE}"
    ]


def test_instances_of_a_gpu_stand_together(show: Open) -> None:
    """MIG instances have their own rows and names; what is wrong with their GPU is said once."""
    page = show(Site(states.mig))

    names = page.evaluate("[...document.querySelectorAll('.gpu .name')].map((one) => one.innerText)")
    groups = page.evaluate("[...document.querySelectorAll('.gpu.first')].map((one) => one.dataset.gpu)")
    wrong = page.evaluate("[...document.querySelectorAll('.wrong')].map((one) => one.innerText)")

    assert names == [*(f"GPU {gpu}:{instance}" for gpu in range(2) for instance in range(1, 8)), "GPU 2"]
    assert groups == ["0:1", "1:1", "2"]
    assert wrong == ["A row of its memory waits to be remapped: drain the GPU and reset it."]


def test_an_update_changes_texts_and_lengths_only(show: Open) -> None:
    """With the charts of eight pools and sixteen GPUs, all of them open, a second adds and removes no element."""
    page = show(Site(states.crowded))
    page.evaluate("location.hash = '#server/server-3'")
    page.wait_until("document.querySelector('#view .gpu')")
    open_all(page)
    page.evaluate(
        "window.changes = []; new MutationObserver((seen) => window.changes.push(...seen)).observe("
        "document.getElementById('node'), {childList: true, subtree: true, attributes: true, characterData: true})"
    )

    page.wait_until(
        "new Set(window.changes.filter((one) => one.target.classList?.contains('line'))).size > 2", seconds=40
    )

    assert page.evaluate("window.changes.filter((one) => one.type === 'childList').length") == 0
    assert page.problems() == []


@pytest.mark.parametrize("node", [states.many, states.mig], ids=["many", "mig"])
def test_a_phone_shows_all_of_it(show: Open, node: states.State) -> None:
    """At 375 pixels, closed and with everything open, nothing is wider than the window or leaves its card."""
    page = show(Site(node))
    page.resize(375, 812)

    closed = sticking_out(page)
    open_all(page)

    assert closed == sticking_out(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") == 375


def test_on_a_phone_every_gpu_keeps_its_name(show: Open) -> None:
    """However long the names of servers are: those are cut instead."""

    def node(tick: int) -> Snapshot:
        whole = states.many(tick)
        return replace(
            whole, servers=tuple(replace(one, name=one.name + "-of-a-long-name" * 3) for one in whole.servers)
        )

    page = show(Site(node))
    page.resize(400, 812)

    cut = page.evaluate(
        "[...document.querySelectorAll('.gpu .name')].filter((one) => one.scrollWidth > one.clientWidth).length"
    )

    assert cut == 0


def test_on_a_phone_the_bars_of_a_card_stand_under_each_other(show: Open) -> None:
    """Live above budget, each over the whole width; the thin bar of the row stays in the row."""
    page = show(Site(states.many))
    page.resize(375, 812)
    page.evaluate("document.querySelector(\"[data-gpu='2'] > summary\").click()")

    boxes = page.evaluate(
        "[...document.querySelectorAll(\"[data-gpu='2'] .bar\")].map((bar) => bar.getBoundingClientRect())"
        ".map((box) => [box.top, box.bottom, box.width])"
    )

    assert len(boxes) == 3
    assert all(above[1] <= below[0] for above, below in pairwise(boxes))
    assert len({width for _, _, width in boxes}) == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_of_it_is_readable(show: Open, scheme: str) -> None:
    """Open and closed rows have contrast in both schemes."""
    page = show(Site(states.many))
    page.prefer(scheme)

    closed = unreadable(page)
    open_all(page)

    assert closed == unreadable(page) == []


def test_everything_is_reached_by_key(show: Open) -> None:
    """Tab goes through rows, figures and the chart of an open card in the order of the page, and no further trap."""
    page = show(Site(states.many))
    for _ in range(5):  # past the way to the servers, the button that pauses and the server that is down
        press(page, "Tab")
    press(page, "Enter")

    reached = _walk(page)

    rows = page.evaluate("document.querySelectorAll('summary, a.server').length")
    figures = page.evaluate("document.querySelectorAll('.why').length")
    assert figures > 8
    assert len(reached) == rows + figures + 1 + 2  # one chart, two links in the footer
    assert reached == sorted(reached)


def _walk(page: Page) -> list[int]:
    """Places in the document of what Tab reaches, from the first row to the last link."""
    place = "[...document.querySelectorAll('*')].indexOf(document.activeElement)"
    last = page.evaluate("[...document.querySelectorAll('*')].indexOf(document.querySelector('footer a:last-of-type'))")
    places: list[int] = [page.evaluate(place)]
    while places[-1] != last and len(places) < 200:
        press(page, "Tab")
        places.append(page.evaluate(place))
    return places
