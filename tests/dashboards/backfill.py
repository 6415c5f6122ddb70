"""A real Prometheus that has scraped a node for a day: its blocks are made by promtool from what the day's pages say.

What Prometheus adds to a scrape is added here; its rules are evaluated by itself, over the day, and written as it would
have: a recording rule's samples, and of an alert the time in which it fired.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.dashboards.day import DAY_SECONDS, SCRAPE_SECONDS, Day, Scrape
from tests.dashboards.model import RULES
from tests.prometheus import Prometheus, prometheus
from tests.promtool import promtool

AGENT = {"job": "vramscope", "instance": "node-1:10175"}
GONE = {"job": "vramscope", "instance": "node-2:10175"}  # has the same story until its host is switched off
THERE = (DAY_SECONDS - 25200, DAY_SECONDS - 6000)  # when it is there
ENGINE = {"job": "vllm"}
FIRST_TOKEN = "vllm:time_to_first_token_seconds"  # all that the dashboards ask an engine for
SCRAPE_TOOK_SECONDS = 0.012
SECONDS = {"s": 1, "m": 60, "h": 3600}
Labels = Mapping[str, str]


@contextmanager
def a_day(folder: Path, *, end: int, port: int | None = None) -> Iterator[Prometheus]:
    """Prometheus, holding the day that ended at ``end`` (seconds since the epoch)."""
    began = end - DAY_SECONDS
    pages = folder / "pages.txt"
    (folder / "node").mkdir()
    with pages.open("w", encoding="utf-8") as file:
        for scrape in Day(folder / "node", began=began).scrapes():
            file.writelines(samples(scrape, began=began))
        file.write("# EOF\n")
    with backfilled(
        folder, [pages], RULES, start=began + SCRAPE_SECONDS, end=end, step=SCRAPE_SECONDS, port=port
    ) as one:
        yield one


@contextmanager
def backfilled(
    folder: Path,
    pieces: Iterable[Path],
    rules: Sequence[Mapping[str, Any]],
    *,
    start: int,
    end: int,
    step: int,
    port: int | None = None,
) -> Iterator[Prometheus]:
    """Prometheus over these samples and what the rules make of them, evaluated every ``step`` seconds.

    Args:
        pieces: files of OpenMetrics, each read and removed before the next is asked for.
    """
    data = folder / "data"
    for piece in pieces:
        _blocks(piece, data)
    for stage, those in enumerate(stages(rules)):
        written = folder / f"rules-{stage}.txt"
        with _over(folder, step=step) as server, written.open("w", encoding="utf-8") as file:
            for rule in those:
                file.writelines(evaluated(server, rule, start=start, end=end, step=step))
            file.write("# EOF\n")
        _blocks(written, data)
    with _over(folder, step=step, port=port) as server:
        yield server


def stages(rules: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """The rules in an order in which each comes after those whose series it asks for."""
    waiting = list(rules)
    while waiting:
        missing = [rule["record"] for rule in waiting if "record" in rule]
        ready = [rule for rule in waiting if not any(name in rule["expr"] for name in missing)]
        assert ready, missing
        yield ready
        waiting = [rule for rule in waiting if rule not in ready]


def samples(scrape: Scrape, *, began: int) -> Iterator[str]:
    """The lines of one scrape of the agent and of each engine, with their time, and those that Prometheus adds."""
    at = began + int(scrape.at)
    yield from scraped(scrape.agent, AGENT, at=at)
    yield from scraped(scrape.agent if THERE[0] <= scrape.at < THERE[1] else None, GONE, at=at)
    for name, page in scrape.engines.items():
        labels = {**ENGINE, "instance": f"{name}:8000"}
        yield f"up{_text(labels)} {int(page is not None)} {at}\n"
        if page is not None:
            yield from labelled(page, labels, at=at, start=FIRST_TOKEN)


def scraped(page: str | None, labels: Labels, *, at: int | str) -> Iterator[str]:
    """The lines of one scrape of an agent, with their time, and those that Prometheus adds; None: it fails."""
    yield f"up{_text(labels)} {int(page is not None)} {at}\n"
    if page is not None:
        lines = list(labelled(page, labels, at=at))
        yield from lines
        yield f"scrape_duration_seconds{_text(labels)} {SCRAPE_TOOK_SECONDS} {at}\n"
        yield f"scrape_samples_scraped{_text(labels)} {len(lines)} {at}\n"


def labelled(page: str, labels: Labels, *, at: int | str, start: str = "") -> Iterator[str]:
    """The samples of a page with more labels and a time; only those whose name begins like this."""
    added = _text(labels)[:-1]
    for line in page.splitlines():
        if line.startswith("#") or not line.startswith(start):
            continue
        series, _, value = line.rpartition(" ")
        name, brace, rest = series.partition("{")
        yield f"{name}{added}{',' + rest if brace else '}'} {value} {at}\n"


def evaluated(server: Prometheus, rule: Mapping[str, Any], *, start: int, end: int, step: int) -> Iterator[str]:
    """The samples that a rule leaves, evaluated every ``step`` seconds."""
    found = server.range(rule["expr"], start=start, end=end, step=step)
    for series in found:
        labels = {name: value for name, value in series["metric"].items() if name != "__name__"}
        labels |= rule.get("labels", {})
        if "record" in rule:
            for at, value in series["values"]:
                yield f"{rule['record']}{_text(labels)} {value} {at}\n"
            continue
        labels |= {"alertname": rule["alert"], "alertstate": "firing"}
        for at in fired([at for at, _ in series["values"]], rule, step=step):
            yield f"ALERTS{_text(labels)} 1 {at}\n"


def fired(held: Sequence[float], rule: Mapping[str, Any], *, step: int) -> Iterator[float]:
    """Times at which an alert fires whose expression holds at these: after ``for``, and on for ``keep_firing_for``."""
    wait, keep = (_seconds(rule.get(key, "0s")) for key in ("for", "keep_firing_for"))
    since = until = None
    for at, following in zip(held, [*held[1:], None], strict=True):
        since = at if since is None or (until is not None and at > until) else since
        until = at + step + (keep if at - since >= wait else 0)
        if at - since < wait:
            continue
        yield at
        if following is None or following > at + step:
            last = at + keep if following is None else min(at + keep, following - step)
            yield from (at + more for more in range(step, int(last - at) + 1, step))


def _seconds(duration: str) -> int:
    return sum(int(number) * SECONDS[unit] for number, unit in re.findall(r"(\d+)([smh])", duration))


def _text(labels: Labels) -> str:
    quoted = ((name, value.replace("\\", r"\\").replace('"', r"\"")) for name, value in labels.items())
    return "{" + ",".join(f'{name}="{value}"' for name, value in quoted) + "}"


def _blocks(samples: Path, data: Path) -> None:
    promtool("tsdb", "create-blocks-from", "openmetrics", samples, data)
    samples.unlink()


@contextmanager
def _over(folder: Path, *, step: int, port: int | None = None) -> Iterator[Prometheus]:
    """Prometheus over the blocks so far. No marks in them say where a series ends, so a sample lasts for a scrape."""
    with prometheus(folder, {}, flags=[f"--query.lookback-delta={1000 * step - 1}ms"], port=port) as server:
        yield server
