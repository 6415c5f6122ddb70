"""What a recording is said to show: as text (golden), as JSON, as HTML."""

import os
import re
import resource
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from agent.cli import run
from agent.errors import RunError
from agent.postmortem.command import write_out
from agent.postmortem.html import as_html
from agent.postmortem.report import Postmortem
from agent.postmortem.text import as_text
from tests.agent.postmortem.story import WALL, Story, report_of
from tests.agent.recorder.flight import Flight
from tests.agent.test_board import BLOCKS, GIB, facts, gpu, serving
from tests.browser import chromium
from tests.real import require

GOLDEN = Path(__file__).parents[2] / "golden" / "postmortem.txt"
RECORDED = Path(__file__).parents[2] / "fixtures" / "recorded-format-1.vramscope"


SHOWN = "[...document.querySelectorAll('td, th, span, b, dd, p')].filter((one) => one.getClientRects().length)"
SMALLEST = f"Math.min(...{SHOWN}.map((one) => parseFloat(getComputedStyle(one).fontSize)))"
CUT = (
    f"{SHOWN}.filter((one) => getComputedStyle(one).display !== 'inline')"
    ".filter((one) => one.getBoundingClientRect().right > innerWidth - 16 || one.scrollWidth > one.clientWidth + 1)"
    ".map((one) => one.textContent)"
)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return Story(tmp_path_factory.mktemp("story"))


@pytest.fixture(scope="module")
def bundle(story: Story) -> Path:
    *_, path = story.bundles  # another was kept before, when its risk turned critical
    return path


@pytest.fixture(scope="module")
def report(bundle: Path) -> Postmortem:
    return report_of(bundle)


def test_the_recording_was_kept_for_the_first_of_it(report: Postmortem) -> None:
    """Memory ran out, then the server died: the first names it."""
    assert report.kept_for == "oom chat"
    assert report.incident is not None
    assert (report.incident.kind, report.incident.subject) == ("oom", "chat")
    assert report.incident.at == WALL + 555
    assert (report.start, report.before, report.after) == (WALL + 254, WALL + 554, report.until)


def test_which_component_moved(report: Postmortem) -> None:
    """By hand: in 300 s the neighbour took 19 GiB, the pool 4,200 of 8,192 blocks; then the server's memory is gone."""
    moved = {(one.server, one.component): one for one in report.devices[0].components}

    other = moved["", "other_processes"]
    assert (other.start_bytes, other.before_bytes, other.after_bytes) == (0, 19 * GIB, 20 * GIB)
    used = moved["chat", "kv_used"]
    assert used.rise_bytes == (min(8191, 1000 + 14 * 554) - 1000 - 14 * 254) * 16 * 131072
    assert used.after_bytes is None
    assert report.devices[0].components[0].component in ("free", "other_processes")
    assert "other_processes on gpu 0 rose most, by 19.00 GiB" in report.summary
    assert {one.rise_bytes for one in report.devices[1].components} == {0}


def test_which_alarm_was_on_before(report: Postmortem) -> None:
    """The agent's own levels, and the alert that follows them; a storm is told only by what is the incident itself."""
    leads = {one.rule: one.lead_seconds for one in report.alarms}
    risen = next(one for one in report.events if one.kind == "risk")

    assert leads["risk critical: pool_exhaustion"] == WALL + 555 - risen.at
    assert leads["VramscopeKvPoolExhausting"] == leads["risk at_risk: pool_exhaustion"]
    assert (leads["VramscopeKvPoolExhausting"] or 0) > (leads["risk critical: pool_exhaustion"] or 0) > 120
    assert leads["risk critical: preemption_storm"] is None
    assert "Earliest alarm: VramscopeKvPoolExhausting (chat)" in report.summary


def test_an_alarm_of_the_whole_recording_is_no_warning(tmp_path: Path) -> None:
    """It may have been on for days."""
    flight = Flight(tmp_path)
    used = int(0.96 * 16 * (BLOCKS - 1))
    pools = (replace(serving(0).pools[0], used_tokens=used, used_ratio=0.96),)
    flight.lives(40, pools=pools)
    flight.lives(2, pools=pools, started_at=6e8)
    report = report_of(flight.file)

    assert [(one.rule, one.from_start, one.lead_seconds) for one in report.alarms] == [
        ("VramscopeKvPoolExhausting", True, 40.0),
        ("risk at_risk: pool_exhaustion", True, 40.0),
    ]
    assert report.summary.endswith("No alarm came before it.")
    assert "already when the recording begins, 40 s before" in as_text(report)


def test_events_are_in_order_and_showers_are_one(report: Postmortem) -> None:
    """Nineteen preemptions of a minute are one event with their number; the agent's own judgement is one too."""
    risk, *rest = report.events

    assert (risk.kind, risk.text) == ("risk", "its risk turned critical: pool exhaustion")
    assert [(one.kind, one.count) for one in rest] == [("preempted", 19), ("oom", 1), ("died", 1)]
    assert [one.at - WALL for one in rest] == [541, 555, 560]


def test_text_is_as_it_was(report: Postmortem, request: pytest.FixtureRequest) -> None:
    """What people read changes only with a reason."""
    text = as_text(report)
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(text)

    assert text == GOLDEN.read_text()


def test_a_recording_of_an_earlier_agent_is_read(report: Postmortem) -> None:
    """The end of the same story, recorded when the format was made; what came to readings since is absent in it."""
    earlier = report_of(RECORDED)

    assert earlier.incident == report.incident
    happened, then = ([one for one in of.events if one.kind != "risk"] for of in (report, earlier))
    assert happened == then
    assert {part.component for part in earlier.devices[0].components} >= {"weights", "kv_used", "other_processes"}


def test_json_is_one_document_with_its_schema(report: Postmortem) -> None:
    """It can be read back, and the charts are in it."""
    document = msgspec.json.encode(report)

    assert msgspec.json.decode(document, type=Postmortem) == report
    assert msgspec.json.decode(document)["schema"] == "vramscope.postmortem/1"
    assert len(report.charts.memory["0"].times) <= 250
    assert max(value or 0 for value in report.charts.pools["chat"].values["0 full"]) > 0.99


class Outside(HTMLParser):
    """Everything of a page that could ask for something or run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        names = {name for name, _ in attributes}
        if tag in ("script", "link", "img", "iframe", "object", "base", "form", "a", "style") and tag != "style":
            self.found.append(tag)
        self.found += [name for name in names if name.startswith("on") or name in ("src", "href", "style")]


def outside(page: str) -> Iterator[str]:
    parser = Outside()
    parser.feed(page)
    yield from parser.found
    yield from re.findall(r"url\(|@import|https?://", page)


def test_html_needs_nothing_else(report: Postmortem) -> None:
    """No script, no request, no handler; a chart of each device, and of the server's pool and load."""
    page = as_html(report)

    assert list(outside(page)) == []
    assert page.count("<svg") == 4
    assert "default-src 'none'" in page


def test_names_of_a_hostile_server_stay_text(tmp_path: Path) -> None:
    """In HTML, and on a terminal."""
    name = "<script>alert(1)</script>\"'\x1b[2J\n"
    flight = Flight(tmp_path, facts(name))
    flight.lives(30)
    flight.server(version="<img src=x onerror=alert(1)>", model="</style><b>")
    flight.ticks()
    flight.writer.flush()
    report = report_of(flight.file)

    assert list(outside(as_html(report))) == []
    assert "\x1b" not in as_text(report)


def test_html_as_a_person_sees_it(report: Postmortem, tmp_path: Path) -> None:
    """It fits a desktop and a phone: nothing is cut, nothing too small to read, the browser has no complaints."""
    path = tmp_path / "report.html"
    path.write_text(as_html(report))
    with chromium(require("chromium"), tmp_path) as browser:
        for width in (1280, 390):
            page = browser.open(path.as_uri(), width=width)
            page.wait_until("document.querySelectorAll('svg').length === 4", seconds=30)
            page.screenshot(tmp_path / f"{width}.png")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate("document.querySelector('polygon').getBoundingClientRect().width") > 200
            assert page.evaluate(SMALLEST) >= 11
            assert page.evaluate(CUT) == []
            assert page.problems() == []


def test_nothing_happened(tmp_path: Path) -> None:
    """It says so; all is compared with the end."""
    flight = Flight(tmp_path)
    flight.lives(30)
    report = report_of(flight.file)

    assert report.incident is None
    assert report.summary.startswith("No incident: no server died")
    assert (report.before, report.after) == (report.until, report.until)
    assert "none was on at any time" in as_text(report)


def test_a_server_that_was_not_there_at_first(tmp_path: Path) -> None:
    """What it holds is not said to have grown."""
    flight = Flight(tmp_path)
    for _ in range(5):
        flight.node(gpu(flight.clock, used={}, free=79 * GIB))
        flight.ticks()
    flight.lives(20)

    summary = report_of(flight.file).summary
    assert "before, runtime of chat on gpu 0, not known at first, came to 40.00 GiB." in summary


def test_what_rose_stands_before_what_only_came(tmp_path: Path) -> None:
    """A guest that grows, and a server that is there only later and holds more."""
    flight = Flight(tmp_path)
    for second in range(20):
        held: dict[int, int | None] = {9: (second + 1) * GIB, **({7: 40 * GIB} if second >= 5 else {})}
        flight.node(gpu(flight.clock, used=held, free=(38 if second >= 5 else 78) * GIB - second * GIB))
        if second >= 5:
            flight.tree(7)
            flight.server()
        flight.ticks()
    flight.writer.flush()

    assert (
        "In the 19 s before, other_processes on gpu 0 rose most, by 19.00 GiB; "
        "runtime of chat on gpu 0, not known at first, came to 40.00 GiB." in report_of(flight.file).summary
    )


def test_a_time_without_readings(tmp_path: Path) -> None:
    """The agent, or the host, stood still: a gap, and no component grows within it."""
    flight = Flight(tmp_path)
    flight.lives(10)
    flight.clock.now += 600
    flight.lives(10)
    report = report_of(flight.file)

    (gap,) = report.gaps
    assert gap.until - gap.since == 601
    assert "no readings:" in as_text(report)


def test_a_clock_that_was_set_back(tmp_path: Path) -> None:
    """Times never go back; nothing breaks."""
    flight = Flight(tmp_path)
    flight.lives(10)
    flight.wall_offset -= 5000
    flight.lives(10)
    report = report_of(flight.file)

    assert report.ticks == 20
    assert report.since <= report.start <= report.before <= report.until


def test_a_damaged_end_is_said(bundle: Path, tmp_path: Path) -> None:
    """What is before it is shown all the same."""
    content = bytearray(bundle.read_bytes())
    content[len(content) * 3 // 4] ^= 1
    path = tmp_path / "damaged.vramscope"
    path.write_bytes(content)
    report = report_of(path)

    assert report.problem is not None
    assert "damaged at byte" in report.problem
    assert report.ticks > 300


def test_many_events_are_bounded(report: Postmortem) -> None:
    """The text shows the last ones and how many more there are."""
    assert report.incident is not None
    event = replace(report.incident, kind="state", text="sleeping, now serving")
    many = replace(report, events=(event,) * 200, events_left_out=7)

    assert "and 147 more; --json has them" in as_text(many)


def test_a_recording_is_not_written_over(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the page about it, under whatever name."""
    before = bundle.read_bytes()
    other = bundle.with_name("other.html")
    other.symlink_to(bundle)

    assert run(["postmortem", str(bundle), "--html", str(other)]) == 2
    assert "that is the recording itself" in capsys.readouterr().err
    assert bundle.read_bytes() == before


def test_a_page_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    """On a full disk the page of before stays, with nothing beside it; its mode is kept, a link leads on."""
    page, link = tmp_path / "page.html", tmp_path / "link.html"
    page.write_text("before")
    page.chmod(0o600)
    link.symlink_to(page)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(RunError, match=r"^[^\n]*page\.html: can't write it: File too large$"):
            write_out(page, "x" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (page.read_text(), sorted(tmp_path.iterdir())) == ("before", [link, page])

    write_out(link, "after")

    assert (page.read_text(), page.stat().st_mode & 0o777, link.is_symlink()) == ("after", 0o600, True)
    assert sorted(tmp_path.iterdir()) == [link, page]


def test_a_name_that_is_no_utf_8_is_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In JSON, which has no other text."""
    file = tmp_path / os.fsdecode(b"\xff.vramscope")
    file.write_bytes(RECORDED.read_bytes())

    assert run(["postmortem", str(file), "--json"]) == 0
    assert msgspec.json.decode(capsys.readouterr().out)["file"] == "\\udcff.vramscope"
