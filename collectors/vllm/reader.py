"""Reading a vLLM server: ``/metrics`` every time; version and model length at the start and then once a minute."""

import asyncio
import re
from collections.abc import Callable
from typing import TypeVar

import msgspec
from msgspec import Struct

from collectors.errors import CollectorError, Refused, Unreachable, Unreadable
from collectors.http_text import Endpoint
from collectors.readings import ReplicaReading, ServerReading
from collectors.vllm.doubts import Doubts
from collectors.vllm.names import PREFIX_TOKENS_SINCE, Field
from collectors.vllm.page import Page, Sleep, parse_page
from collectors.vllm.pools import Arguments, arguments_of, notes_of, pools_of

PATHS = frozenset({"/metrics", "/version", "/v1/models"})
FACTS_SECONDS = 60.0
RETRY_SECONDS = 10.0
FACT_DEADLINE_SECONDS = 1.0

_ASLEEP: dict[Sleep, str] = {
    "weights_offloaded": "asleep at level 1: the weights are in host memory, the KV pool is given up",
    "discard_all": "asleep at level 2: weights and KV pool are given up",
}

T = TypeVar("T")


class _Version(Struct, frozen=True):
    version: str


class _Model(Struct, frozen=True):
    id: str
    parent: str | None = None
    owned_by: str | None = None
    max_model_len: int | None = None


class _Models(Struct, frozen=True):
    data: tuple[_Model, ...] = ()


class _Facts(Struct, frozen=True, kw_only=True):
    """What changes only with a restart. ``due_at``: when to ask again; ``started_at``: of the run they belong to."""

    version: str | None
    models: tuple[_Model, ...]
    notes: tuple[str, ...]
    started_at: float | None
    due_at: float


class VllmReader:
    """One server. A read takes at most its endpoint's deadline and, when the slow facts are due, a second more."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        clock: Callable[[], float],
        fact_deadline_seconds: float = FACT_DEADLINE_SECONDS,
    ) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._fact_deadline_seconds = fact_deadline_seconds
        self._facts: _Facts | None = None
        self._doubts = Doubts()

    async def read(self) -> ServerReading:
        """The server now; counters are raw, since the engine's start.

        Raises:
            Unreachable: nothing listens (vLLM opens its port only when it is ready), or no answer in time.
            Refused: the metrics are behind a key.
            Unreadable: not a page of vLLM.
        """
        url = f"{self._endpoint.url}/metrics"
        try:
            answer = await self._endpoint.get("/metrics", key=True)
            page = parse_page(answer.text, source=url)
        except CollectorError as exc:
            self._facts = None  # it may come back as another version
            self._doubts.lost(exc)
            raise
        at = self._clock()
        facts = await self._current_facts(page)
        if not page.replicas and not any(model.owned_by == "vllm" for model in facts.models):
            advice = "start vLLM without --disable-log-stats, or check that the URL is that of a vLLM server"
            raise Unreadable("no_series", f"{url} has no vllm: series; {advice}")
        return _reading(at, page, facts, self._doubts.about(page, at))

    async def _current_facts(self, page: Page) -> _Facts:
        facts = self._facts
        if facts is None or self._clock() >= facts.due_at or facts.started_at != page.started_at:
            facts = self._facts = await self._read_facts(page.started_at)
        return facts

    async def _read_facts(self, started_at: float | None) -> _Facts:
        version, models = await asyncio.gather(self._fact("/version", _Version), self._fact("/v1/models", _Models))
        failed = [fact for fact in (version, models) if isinstance(fact, CollectorError)]
        settled = all(isinstance(fact, Refused) for fact in failed)
        return _Facts(
            version=version.version[:64] if isinstance(version, _Version) else None,
            models=models.data if isinstance(models, _Models) else (),
            notes=tuple(str(fact) for fact in failed),
            started_at=started_at,
            due_at=self._clock() + (FACTS_SECONDS if settled else RETRY_SECONDS),
        )

    async def _fact(self, path: str, kind: type[T]) -> T | CollectorError:
        """A fact that a reading can do without: what went wrong is returned, and becomes a note."""
        url = f"{self._endpoint.url}{path}"
        try:
            async with asyncio.timeout(self._fact_deadline_seconds):
                answer = await self._endpoint.get(path, key=True)
            return msgspec.json.decode(answer.text, type=kind)
        except CollectorError as exc:
            return exc
        except TimeoutError:
            limit = f"{self._fact_deadline_seconds:g} s"
            return Unreachable("timeout", f"{url} did not answer within {limit}; it is asked again later")
        except (msgspec.DecodeError, RecursionError):
            return Unreadable("malformed", f"{url} is not the JSON that vLLM answers there")


def _reading(at: float, page: Page, facts: _Facts, doubts: tuple[str, ...]) -> ServerReading:
    base = next((model for model in facts.models if model.parent is None), None)
    arguments: Arguments = arguments_of(page)
    if base is not None and base.max_model_len is not None and base.max_model_len > 0:
        arguments["max_model_len"] = base.max_model_len
    model = next(iter(page.models), base.id if base is not None else None)
    return ServerReading(
        at=at,
        engine="vllm",
        state="sleeping" if page.sleep else "serving",
        version=facts.version,
        model=model[:256] if model is not None else None,
        started_at=page.started_at,
        pools=() if page.sleep else pools_of(page),
        replicas=tuple(_replica(page, replica, facts.version) for replica in page.replicas),
        arguments=arguments,
        notes=(*facts.notes, *_notes(page), *doubts),
    )


def _notes(page: Page) -> tuple[str, ...]:
    if not page.replicas:
        return ("no vllm: series, so pools and requests are not known; start vLLM without --disable-log-stats",)
    if page.sleep:
        return (_ASLEEP[page.sleep],)
    return notes_of(page)


def _replica(page: Page, replica: str, version: str | None) -> ReplicaReading:
    def count(field: Field) -> int | None:
        value = page.values[field].get(replica)
        return None if value is None else round(value)

    hits, queries = count("prefix_hits"), count("prefix_queries")
    if _counts_tokens(version):
        hits = count("prefix_hits_old") if hits is None else hits
        queries = count("prefix_queries_old") if queries is None else queries
    return ReplicaReading(
        replica=replica,
        running_requests=count("running"),
        waiting_requests=count("waiting"),
        preemptions=count("preemptions"),
        prompt_tokens=count("prompt_tokens"),
        generation_tokens=count("generation_tokens"),
        prefix_hit_tokens=hits,
        prefix_query_tokens=queries,
        first_tokens=count("first_tokens"),
        first_token_seconds=page.values["first_token_seconds"].get(replica),
    )


def _counts_tokens(version: str | None) -> bool:
    """Whether the old prefix counters are in tokens; not so in 0.8, and not known without a version."""
    found = re.match(r"v?(\d{1,6})\.(\d{1,6})", version or "")
    return found is not None and (int(found[1]), int(found[2])) >= PREFIX_TOKENS_SINCE
