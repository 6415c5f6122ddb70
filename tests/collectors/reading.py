"""Reading a server that answers from fixtures, by the entry of its engine."""

import asyncio
from collections.abc import Mapping, Sequence

from collectors.discovery.command import Value
from collectors.http_text import Endpoint
from collectors.readings import ServerReading
from collectors.registry import ENGINES
from tests.collectors.replay import FIXTURES, Script, replaying, reply

Answers = Mapping[str, bytes | Script]


def page(engine: str, name: str) -> bytes:
    """A fixture as an answer; ``.json`` as JSON."""
    kind = "application/json" if name.endswith(".json") else "text/plain; version=0.0.4"
    return reply((FIXTURES / engine / name).read_bytes(), content_type=kind)


def read_in_turn(
    engine: str,
    steps: Sequence[tuple[float, Answers]],
    *,
    api_key: str | None = None,
    flags: Mapping[str, Value] | None = None,
) -> tuple[list[ServerReading], list[str]]:
    """A reading for each step, a time and what the server answers then, and all paths that were asked for."""

    async def run() -> tuple[list[ServerReading], list[str]]:
        now = 0.0
        async with replaying({}) as server:
            endpoint = Endpoint(server.url, paths=ENGINES[engine].paths, deadline_seconds=5.0, api_key=api_key)
            reader = ENGINES[engine].open(endpoint, clock=lambda: now, flags=flags)
            readings = []
            try:
                for at, answers in steps:
                    now = at
                    server.answers = dict(answers)
                    readings.append(await reader.read())
            finally:
                await endpoint.aclose()
            return readings, server.paths

    return asyncio.run(run())


def read_once(engine: str, answers: Answers) -> ServerReading:
    readings, _ = read_in_turn(engine, [(1000.0, answers)])
    return readings[0]
