"""Many nodes of eight GPUs and eight servers each, scraped for a quarter of an hour, in a real Prometheus.

Three kinds of node are played through the agent and its own renderer; all others are these, with another name, another
number in each GPU's UUID and each server's name, and so many scrapes earlier or later in their story.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from collectors.nvml.faults import UNKNOWN
from collectors.simulated.scenario import load_scenario
from collectors.simulated.state import NodeState
from collectors.simulated.story import Arrival, Crash, Length, Process, Scenario, Server, ShortRequests, Workload
from tests.dashboards.backfill import backfilled, scraped
from tests.dashboards.day import OOM
from tests.dashboards.model import RULES
from tests.dashboards.node import Node
from tests.prometheus import Prometheus

SCRAPE_SECONDS = 15
SHOWN_SECONDS = 900
SCRAPES = SHOWN_SECONDS // SCRAPE_SECONDS + 1
BEFORE_SECONDS = 300  # that a node has been up when the first scrape of it is kept
SHIFTS = 10  # so many scrapes at most is a node's story behind that of the first of its kind
GPUS = SERVERS = 8
HOUR = 3600
NODES_OF_A_PIECE = 25  # 170 MB of OpenMetrics
NUMBER, MOMENT = "NODE", "MOMENT"  # what stands for a node's number and a sample's time
KINDS = ("calm", "at_risk", "blind")
RISKY, BLIND = (3, 11, 19), (7, 16)  # of 25 nodes
PORTS = {f"chat-{index}-{NUMBER}": 8000 + index for index in range(SERVERS)}
BEGAN = 1_800_000_000.0


class Story(Node):
    """A node of one of the kinds; a server of the blind one stops to answer, and a GPU of it lists no processes."""

    def __init__(self, folder: Path, kind: str) -> None:
        folder.mkdir()
        super().__init__(folder, scenario(kind), ports=PORTS, began=BEGAN)
        self._kind = kind

    def state(self) -> NodeState:
        """As simulated, or with a list that fails."""
        failing = (("processes", 0, UNKNOWN),) if self._kind == "blind" else ()
        return replace(super().state(), faults=failing)

    def happen(self) -> None:
        """Once a server's log tells of memory that ran out."""
        if self._kind == "at_risk" and self.now == BEFORE_SECONDS + HOUR // 6:
            with self.log(next(iter(PORTS))).open("a", encoding="utf-8") as log:
                log.write(OOM)

    def page(self, name: str) -> str | None:
        """As simulated, or none."""
        silent = self._kind == "blind" and PORTS[name] == max(PORTS.values()) and self.now > BEFORE_SECONDS
        return None if silent else super().page(name)

    def scrapes(self) -> list[str]:
        """The agent's pages, a scrape apart, from the moment at which its first scrape is kept."""
        with asyncio.Runner() as runner:
            for _ in range(BEFORE_SECONDS // SCRAPE_SECONDS):
                runner.run(self.after(SCRAPE_SECONDS))
            return [runner.run(self.after(SCRAPE_SECONDS)) for _ in range(SCRAPES + SHIFTS)]


def scenario(kind: str) -> Scenario:
    """Eight GPUs with a server each. At risk: two pools fill, one process creeps, one takes room, one server dies."""
    eight, reasoning = load_scenario("eight"), load_scenario("reasoning")
    (server,) = reasoning.servers
    risky = kind == "at_risk"
    return Scenario(
        driver=reasoning.driver,
        devices=tuple(replace(device, uuid=f"{device.uuid[:-4]}{NUMBER}") for device in eight.devices),
        servers=tuple(_server(server, index, name, risky=risky) for index, name in enumerate(PORTS)),
        processes=(
            Process(device=3, start_seconds=60, end_seconds=2 * HOUR, ramp_seconds=2 * HOUR - 60, mib=60000),
            Process(device=4, start_seconds=60, end_seconds=2 * HOUR, mib=44000),
        )
        if risky
        else (),
    )


def _server(server: Server, index: int, name: str, *, risky: bool) -> Server:
    short = ShortRequests(
        requests_per_second=0.5 + index / 8,
        prompt_tokens=Length(median=400, sigma=0.5, maximum=3000),
        output_tokens=Length(median=300, sigma=0.4, maximum=1200),
    )
    chains = (Arrival(start_seconds=700, count=2, prompt_tokens=6000, output_tokens=100000),)
    return replace(
        server,
        name=name,
        devices=(index,),
        model=replace(server.model, name=f"chat-{NUMBER}"),
        workload=Workload(short_requests=short, reasoning_chains=chains if risky and index < 2 else ()),
        crashes=(Crash(at_seconds=800),) if risky and index == 2 else (),
    )


@contextmanager
def a_fleet(folder: Path, pages: Mapping[str, Sequence[str]], *, nodes: int, end: int) -> Iterator[Prometheus]:
    """Prometheus that has scraped so many nodes, and one more that is down, in the quarter of an hour until ``end``.

    Each was scraped once an hour before ``end`` too. ``pages`` are those of a ``Story`` by kind.
    """
    begun = end - SHOWN_SECONDS
    blanks = {kind: [_blank(page) for page in texts] for kind, texts in pages.items()}
    pieces = _pieces(folder, blanks, nodes=nodes, end=end)
    with backfilled(folder, pieces, RULES, start=begun, end=end, step=SCRAPE_SECONDS) as server:
        yield server


def _blank(page: str | None) -> bytes:
    """A scrape of a node without its number and time."""
    labels = {"job": "vramscope", "instance": f"node-{NUMBER}:10175"}
    return "".join(scraped(page, labels, at=MOMENT)).encode()


def _pieces(folder: Path, blanks: Mapping[str, Sequence[bytes]], *, nodes: int, end: int) -> Iterator[Path]:
    """Files of the samples of some nodes each; the node after the last is down, and was there an hour ago."""
    for first in range(0, nodes, NODES_OF_A_PIECE):
        those = range(first, min(first + NODES_OF_A_PIECE, nodes))
        piece = folder / f"nodes-{first}.txt"
        with piece.open("wb") as file:
            file.writelines(_filled(blanks[kind_of(node)][0], node, end - HOUR) for node in those)
            if first == 0:
                file.write(_filled(blanks["calm"][0], nodes, end - HOUR))
            for scrape in range(SCRAPES):
                at = end - SHOWN_SECONDS + scrape * SCRAPE_SECONDS
                for node in those:
                    file.write(_filled(blanks[kind_of(node)][scrape + node % SHIFTS], node, at))
                if first == 0:
                    file.write(_filled(_blank(None), nodes, at))
            file.write(b"# EOF\n")
        yield piece


def kind_of(node: int) -> str:
    """Of 25 nodes two are blind and three at risk."""
    place = node % 25
    return "blind" if place in BLIND else "at_risk" if place in RISKY else "calm"


def _filled(blank: bytes, node: int, at: int) -> bytes:
    return blank.replace(NUMBER.encode(), b"%04d" % node).replace(MOMENT.encode(), b"%d" % at)
