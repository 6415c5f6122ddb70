"""What is about to go wrong, told without contradictions: what is held, what else is wrong, what a forecast is from."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from agent.memory.risk import OK, Risk
from agent.snapshot import ExhaustionSeconds, Recording, Snapshot
from tests.agent.web import sample, states
from tests.agent.web.site import Open, Site
from tests.browser import Browser, Page

CUT = """[...document.querySelectorAll('#node .tag, #node .name, #node .on, #node .on small')]
  .filter((one) => one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX === 'hidden')
  .map((one) => one.innerText)"""


def with_risk(tick: int, risk: Risk) -> Snapshot:
    """The node whose server ``chat`` has this risk, with nothing down, and GPUs without any."""
    snapshot = sample.node(tick)
    chat, *others = snapshot.servers
    devices = tuple(replace(device, risk=None) for device in snapshot.devices)
    up = [server for server in others if server.state != "down"]
    return replace(snapshot, servers=(replace(chat, risk=risk), *up), devices=devices)


def coming(page: Page) -> str:
    text: str = page.evaluate("document.querySelector('[data-coming=chat]').innerText")
    return text.replace("\n", " ").replace("\u202f", " ")


def test_a_level_that_is_held_says_since_when_and_how_old_its_numbers_are(show: Open) -> None:
    """What was so three minutes ago is not passed off as so now, and nothing beside it is foreseen."""
    held = Risk(
        level="critical",
        reason="low_headroom",
        numbers={"headroom_ratio": 0.02},
        held_seconds=170.0,
        numbers_age_seconds=170.0,
    )
    fresh = Risk(
        level="critical",
        reason="pool_exhaustion",
        numbers={"used_ratio": 0.14, "probability_2min": 0.0, "probability_5min": 0.0},
        held_seconds=40.0,
        also={"hidden_memory": "watch"},
        also_held_seconds={"hidden_memory": 110.0},
    )

    old = show(Site(lambda tick: with_risk(tick, held)))
    new = show(Site(lambda tick: with_risk(tick, fresh)))

    assert "critical, held: little headroom 3 min ago" in coming(old)
    assert "then headroom 2.0 %" in coming(old)
    assert coming(new) == (
        "chat critical, held: a KV pool was running full 40 s ago watch, held: memory that nobody was seen to hold "
        "2 min ago on GPU 0; now used 14.0 % what to do"
    )
    assert new.evaluate("document.title").startswith("critical, held: chat")


def test_all_reasons_of_a_risk_are_named(show: Open) -> None:
    """The gravest as a tag, the others as smaller ones beside it, on the card too."""
    several = Risk(
        level="critical", reason="pool_exhaustion", also={"fragmentation": "watch", "budget_mismatch": "watch"}
    )
    page = show(Site(lambda tick: with_risk(tick, several)))
    tags = "[...document.querySelectorAll('{} [data-risk]')].map((tag) => [tag.innerText, tag.offsetHeight])"

    listed = page.evaluate(tags.format("[data-coming=chat]"))
    on_card = page.evaluate(tags.format("[data-server-card=chat]"))

    assert [text for text, _ in listed] == [
        "critical: a KV pool runs full",
        "watch: fragmented",
        "watch: not as budgeted",
    ]
    assert listed[0][1] > listed[1][1]
    assert listed == on_card


def test_a_server_at_risk_is_told_with_its_gpus_and_the_replica(show: Open) -> None:
    """Of eight pools the one that runs full."""

    def node(tick: int) -> Snapshot:
        whole = states.many(tick)
        servers = list(whole.servers)
        filling = sample.node(tick).servers[0].pools[0].forecast
        assert filling is not None
        filling = replace(filling, level="critical")
        pools = tuple(replace(pool, forecast=filling if pool.replica == "5" else None) for pool in servers[1].pools)
        servers[1] = replace(servers[1], pools=pools, risk=Risk(level="critical", reason="pool_exhaustion"))
        return replace(whole, servers=tuple(servers))

    page = show(Site(node))

    assert "replica 5 on GPU 2, GPU 3" in page.evaluate("document.querySelector('[data-coming=server-1]').innerText")


def test_how_many_are_at_risk_is_said_of_what(show: Open) -> None:
    """Servers and GPUs are counted apart."""
    page = show(Site(lambda tick: with_risk(tick, Risk(level="watch", reason="fragmentation"))))

    assert page.evaluate("document.querySelector('#coming .sub').innerText") == "1 of 2 servers, 0 of 2 GPUs"


def test_where_all_is_well_the_page_says_what_is_nearest_to_trouble(show: Open) -> None:
    """On top, as trouble would be; the title of the window has the headroom."""
    page = show(Site(lambda tick: with_risk(tick, replace(OK))))

    text = page.evaluate("document.querySelector('#coming .note').innerText").replace("\u202f", " ")

    assert text == (
        "Nothing: no server and no GPU has a risk that is known; the lowest headroom is 6.0 % on GPU 1, "
        f"the fullest KV pool is at 66.7 %, of {sample.HOSTILE}, at its present course the KV pool of chat is full in "
        "7 min, with a chance of 52.0 % within 5 min."
    )
    assert page.evaluate("document.title").startswith("6.0\u202f% headroom")


def test_the_title_names_what_is_gravest(show: Open) -> None:
    """So that a tab among many tells it."""
    page = show(Site(lambda tick: with_risk(tick, Risk(level="at_risk", reason="pool_exhaustion"))))

    assert page.evaluate("document.title").startswith("at risk: chat · vramscope")


def test_a_server_that_is_down_comes_first(show: Open) -> None:
    """Before what is critical, with how long ago it answered last; in the title too."""

    def node(tick: int) -> Snapshot:
        whole = sample.node(tick)
        return replace(
            whole,
            servers=tuple(replace(one, age_seconds=12.0) if one.state == "down" else one for one in whole.servers),
        )

    page = show(Site(node))
    first = page.evaluate("document.querySelector('#coming li').innerText").replace("\u202f", " ").replace("\n", " ")

    assert first == "batch down last answer 12 s ago what to do"
    assert page.evaluate("document.title").startswith("down: batch · vramscope")


def test_a_pool_that_ran_out_and_has_room_again_is_not_called_full(show: Open) -> None:
    """Its forecast stands for two minutes; what is true now stands beside."""

    def node(tick: int) -> Snapshot:
        whole = with_risk(tick, Risk(level="critical", reason="pool_exhaustion"))
        chat, *others = whole.servers
        forecast = chat.pools[0].forecast
        assert forecast is not None
        over = replace(forecast, exhausted=True, exhaustion_seconds=ExhaustionSeconds(likely=0.0, early=0.0))
        pools = (replace(chat.pools[0], used_ratio=0.18, forecast=over),)
        return replace(whole, servers=(replace(chat, pools=pools), *others))

    page = show(Site(node))
    heading = page.evaluate("document.querySelector('[data-server-card=chat] h3').innerText").replace("\u202f", " ")

    assert "critical: a KV pool ran full" in coming(page)
    assert "ran out within the last 2 min, now 18.0 %" in coming(page)
    assert "ran out within the last 2 min, now 18.0 %" in heading


def test_of_a_simulated_node_that_lives_faster_all_times_are_by_its_own_clock(show: Open) -> None:
    """Said in the header; the past of a chart has the scale of what is to come."""
    page = show(Site(lambda tick: replace(sample.node(tick), simulated=True, pace=10.0)))
    axis = page.evaluate("document.querySelector('[data-server-card=chat] .axis').innerText").replace("\u202f", " ")
    drawn = page.evaluate("""(() => {
      const [now, cone] = ['.now', '.cone'].map((name) => document.querySelector(`.chart ${name}`).getBBox());
      return [now.x / 3000, cone.width / 420];
    })()""")

    assert "10 times as fast: growth, charts and what is to come are by its own clock" in page.evaluate(
        "document.getElementById('status').innerText"
    )
    assert axis.startswith("50 min ago")
    assert drawn[0] == pytest.approx(drawn[1], rel=0.01)


def test_a_forecast_beside_unknown_growth_says_what_it_is_from(show: Open) -> None:
    """The line of three minutes has no figure yet, or falls, when the one since the start is certain."""

    def node(tick: int) -> Snapshot:
        chat, *others = sample.node(tick).servers
        pool = replace(chat.pools[0], growth_tokens_per_second=None)
        return replace(sample.node(tick), servers=(replace(chat, pools=(pool,)), *others))

    unknown = show(Site(node))
    known = show(Site())
    heading = "document.querySelector('[data-server-card=chat] h3').innerText.replaceAll('\\u202f', ' ')"

    assert "growth not known yet" in unknown.evaluate(heading)
    assert "full in 7 min by its course so far" in unknown.evaluate(heading)
    assert "by its course" not in known.evaluate(heading)


def test_a_row_cuts_neither_tag_nor_name(show: Open) -> None:
    """In the view of a server with a long name, on a desktop and on a phone."""
    risk = Risk(level="at_risk", reason="no_transient_room", also={"foreign_process": "watch"})

    def node(tick: int) -> Snapshot:
        whole = states.many(tick)
        servers = tuple(replace(one, name=f"{one.name}-of-a-team:35433") for one in whole.servers)
        return replace(whole, servers=servers, devices=tuple(replace(one, risk=risk) for one in whole.devices))

    page = show(Site(node))
    page.evaluate("location.hash = '#server/server-1-of-a-team:35433'")
    page.wait_until("document.querySelector('#view .gpu')")

    for width in (1280, 800, 400):
        page.resize(width, 900)
        assert page.evaluate(CUT) == []


def test_times_are_iso_with_their_zone(show: Open) -> None:
    """That of a recording, in the zone of who looks."""
    of_then = Recording(file="then.vramscope", started_at=sample.START, speed=20.0)
    page = show(Site(lambda tick: replace(sample.node(0), recording=of_then)))
    page.call("Emulation.setTimezoneOverride", timezoneId="Asia/Kolkata")
    page.evaluate("location.hash = '#x'")
    text = page.wait_until(
        "document.getElementById('status').innerText.includes('+') && document.getElementById('status').innerText"
    )

    there = datetime.fromtimestamp(sample.START + 5.5 * 3600, UTC).isoformat(" ")[:19]
    assert f"recording of {there} UTC+05:30, not this host now" in text


def test_before_the_first_reading_the_page_says_what_it_waits_for(show: Open) -> None:
    """For the driver and the process table: never that there is nothing."""
    page = show(Site(lambda tick: Snapshot(time=sample.START + tick, version="0.1.0")))

    said = page.evaluate("[...document.querySelectorAll('[data-waiting]')].map((one) => one.innerText)")

    assert said == [
        "Waiting for the first reading of the GPUs by the driver.",
        "Waiting for the first reading of this host's processes.",
    ]


def test_before_the_first_snapshot_the_page_is_not_empty(browser: Browser) -> None:
    """It says whose snapshot it waits for, and then shows it."""
    site = Site()
    site.refusal = "no tick for 12 s"
    page = browser.open(site.url)

    said = page.wait_until("document.querySelector('#node [data-waiting]')?.innerText")
    site.refusal = None
    page.wait_until("document.querySelector('#node [data-gpu]') && !document.querySelector('[data-waiting]')")
    page.close()
    site.stop()

    assert said == f"Waiting for the first snapshot of the agent at {site.url.split('/')[2]}."


def test_the_header_keeps_its_height_when_a_collector_fails(show: Open) -> None:
    """Nothing below it moves, and the button that pauses stays where it was."""

    def well(tick: int) -> Snapshot:
        whole = sample.node(tick)
        return replace(whole, collectors=tuple(replace(one, error=None) for one in whole.collectors))

    heights = [show(Site(node)).evaluate("document.getElementById('top').offsetHeight") for node in (well, sample.node)]

    assert heights[0] == heights[1]
