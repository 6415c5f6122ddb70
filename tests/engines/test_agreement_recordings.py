"""What real servers told under load, recorded: the product reads it as the agent did beside them, and as was meant."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from collectors.http_text import Endpoint
from collectors.readings import ServerReading
from collectors.registry import ENGINES
from tests.engines.agreement import Figures, disagreements
from tests.engines.record_agreement import FULL, WATCHED, Recorded, Recording, folder_of, log_of, pages_of, read

URL = "http://127.0.0.1:8000"


def _figures(reading: ServerReading) -> Figures:
    (pool,), (replica,) = reading.pools, reading.replicas
    return Figures(
        capacity_tokens=pool.capacity_tokens,
        used_tokens=pool.used_tokens,
        cached_tokens=pool.cached_tokens,
        free_tokens=pool.free_tokens,
        running=replica.running_requests,
        waiting=replica.waiting_requests,
        preemptions=replica.preemptions,
        refusals=replica.refusals,
        prompt_tokens=replica.prompt_tokens,
        generation_tokens=replica.generation_tokens,
        first_tokens=replica.first_tokens,
    )


async def _read(recording: Recording, folder: Path, looks: Sequence[Recorded]) -> list[Figures]:
    """One reader, and the answers of one look after the other."""
    engine = ENGINES[recording.engine]
    answers: dict[str, str] = {}

    def answer(request: httpx.Request) -> httpx.Response:
        body = answers.get(request.url.path)
        return httpx.Response(404 if body is None else 200, stream=httpx.ByteStream((body or "").encode()))

    transport = httpx.MockTransport(answer)
    endpoint = Endpoint(URL, paths=engine.paths, deadline_seconds=5.0, transport=transport)
    reader = engine.open(endpoint, clock=lambda: 1.0, flags=recording.flags)
    found = []
    for look in looks:
        answers = pages_of(folder, look)
        found.append(_figures(await reader.read()))
    await endpoint.aclose()
    return found


@pytest.mark.parametrize("engine", WATCHED)
def test_answers_are_read_as_the_agent_read_them(engine: str) -> None:
    """All figures, at each point: the same where the server stood still, else between those of two looks."""
    folder = folder_of(engine)
    recording = read(folder)
    looks = [look for moment in recording.moments for look in (moment.before, moment.after)]

    figures = iter(asyncio.run(_read(recording, folder, looks)))

    for moment in recording.moments:
        before, after = next(figures), next(figures)
        assert disagreements(moment.agent, before, after) == []
        if moment.before == moment.after:
            assert moment.agent == before == after


@pytest.mark.parametrize("engine", WATCHED)
def test_answers_and_log_say_what_the_agent_said(engine: str) -> None:
    """By the server's own figures and lines, understood without the product."""
    folder, server = folder_of(engine), WATCHED[engine]
    for moment in read(folder).moments:
        for look in (moment.before, moment.after):
            assert server.of_pages(pages_of(folder, look)) == look.answers
            assert server.of_log(log_of(folder, look)) == look.log
        assert disagreements(moment.agent, moment.before.answers, moment.after.answers) == []
        assert disagreements(moment.agent, moment.before.log, moment.after.log) == []


@pytest.mark.parametrize("engine", WATCHED)
def test_the_story_has_all_points(engine: str) -> None:
    """Idle first; tokens in use while it grows; then what happened when the pool was full, in answers or log."""
    moments = {moment.point: moment for moment in read(folder_of(engine)).moments}

    assert tuple(moments) == WATCHED[engine].points
    assert moments["idle"].agent.used_tokens == 0
    assert moments["growing"].agent.used_tokens
    full = moments[FULL[engine]]
    assert (full.agent.preemptions or full.agent.refusals or 0) > 0
    assert full.before.log.preemptions or full.before.log.refusals
    assert all(moment.agent.capacity_tokens == full.before.log.capacity_tokens for moment in moments.values())
