"""A seeded load on a pool: short requests, then what fills it (long chains or a burst), then short requests again.

Sizes are shares of the pool, so that one story does for pools of any size.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Protocol

import httpx
from msgspec import Struct

LOOK_SECONDS = 0.5
REQUEST_SECONDS = 900.0


class Asked(Protocol):
    """A server, by requests of so many tokens; ``shortages`` is its own count of those it preempted or refused."""

    url: str

    @property
    def tokens(self) -> int: ...

    def question(self, prompt: str, answer_tokens: int) -> tuple[str, dict[str, object]]: ...

    def shortages(self) -> int: ...


class Pressure(Struct, frozen=True, kw_only=True):
    """What fills a pool: requests begun ``gap_seconds`` apart, with prompt and answer as shares of the pool."""

    requests: int
    gap_seconds: float
    prompt: float
    answer: float


class Story(Struct, frozen=True, kw_only=True):
    """``before`` seconds of short requests, pressure beside more of them, and ``calm`` seconds of short requests.

    The pressure ends when all of it is answered, or ``aftermath`` seconds after the first shortage, when its clients
    give up. Short requests come from ``clients`` that think for ``pause`` seconds on average after each answer, so that
    a slower server is asked less; the median of their answers is ``answer``, lognormal.
    """

    name: str
    seed: int
    pressure: Pressure
    before: float = 120.0
    aftermath: float = 20.0
    calm: float = 45.0
    clients: int = 6
    pause: float = 4.0
    prompt: tuple[float, float] = (0.01, 0.06)
    answer: float = 0.03
    spread: float = 0.5


STORIES = (
    Story(name="chains", seed=1, pressure=Pressure(requests=3, gap_seconds=10.0, prompt=0.02, answer=0.4)),
    Story(name="burst", seed=2, pressure=Pressure(requests=20, gap_seconds=0.2, prompt=0.02, answer=0.05)),
    Story(name="in-time", seed=3, pressure=Pressure(requests=3, gap_seconds=10.0, prompt=0.02, answer=0.19)),
)


async def play(server: Asked, story: Story, say: Callable[[str], None]) -> None:
    """Play the whole story; what becomes of each request is counted and said."""
    async with httpx.AsyncClient(base_url=server.url, timeout=REQUEST_SECONDS, trust_env=False) as client:
        load = _Load(server, story, client)
        company = [asyncio.create_task(load.company()) for _ in range(story.clients)]
        try:
            await asyncio.sleep(story.before)
            say(f"{story.name}: pressure")
            await load.press()
            say(f"{story.name}: calm, {server.shortages()} shortages")
            await asyncio.sleep(story.calm)
        finally:
            await load.end(company)
            await load.give_up()
        say(f"{story.name}: {dict(load.ended)}")


class _Load:
    def __init__(self, server: Asked, story: Story, client: httpx.AsyncClient) -> None:
        self.ended: Counter[str] = Counter()
        self._server = server
        self._story = story
        self._client = client
        self._random = random.Random(story.seed)
        self._begun: set[asyncio.Task[None]] = set()

    async def company(self) -> None:
        """Short requests, one behind another, until it is cancelled."""
        story = self._story
        while True:
            await asyncio.sleep(self._random.expovariate(1 / story.pause))
            prompt = self._random.uniform(*story.prompt)
            await self._begin("short", prompt, self._random.lognormvariate(0.0, story.spread) * story.answer)

    async def press(self) -> None:
        """The pressure, to its end."""
        wanted, before = self._story.pressure, await asyncio.to_thread(self._server.shortages)
        begin, tasks, short_at = time.monotonic(), list[asyncio.Task[None]](), float("inf")
        while time.monotonic() < short_at + self._story.aftermath:
            due = 1 + int((time.monotonic() - begin) / wanted.gap_seconds)
            while len(tasks) < min(due, wanted.requests):
                tasks.append(self._begin("long", wanted.prompt, wanted.answer))
            if len(tasks) == wanted.requests and all(task.done() for task in tasks):
                return
            await asyncio.sleep(min(LOOK_SECONDS, wanted.gap_seconds))
            if short_at == float("inf") and await asyncio.to_thread(self._server.shortages) > before:
                short_at = time.monotonic()
        await self.end(tasks)

    async def give_up(self) -> None:
        """Let nobody wait for an answer any more."""
        await self.end(list(self._begun))

    async def end(self, tasks: list[asyncio.Task[None]]) -> None:
        """Clients that give up."""
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, kind: str, prompt: float, answer: float) -> asyncio.Task[None]:
        """One request; letters of its prompt are random, so that no prefix is shared."""
        words = "".join(self._random.choices("abcdefghijklmnopqrstuvwxyz", k=max(1, int(prompt * self._server.tokens))))
        task = asyncio.create_task(self._ask(kind, words, max(1, int(answer * self._server.tokens))))
        self._begun.add(task)
        task.add_done_callback(self._begun.discard)
        return task

    async def _ask(self, kind: str, prompt: str, tokens: int) -> None:
        path, body = self._server.question(prompt, tokens)
        try:
            answer = await self._client.post(path, json=body)
        except asyncio.CancelledError:
            self.ended[f"{kind} given up"] += 1
            raise
        except httpx.TransportError as error:
            self.ended[f"{kind} {type(error).__name__}"] += 1
            return
        self.ended[f"{kind} {answer.status_code}"] += 1
