"""Reading a vLLM server: ``/metrics`` every time; version and model length at the start and then once a minute."""

import asyncio
import re
from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.json import Decoder

from collectors.discovery.command import Value
from collectors.errors import CollectorError, Unreadable
from collectors.facts import DEADLINE_SECONDS, Seldom
from collectors.http_text import Endpoint
from collectors.readings import ReplicaReading, ServerReading
from collectors.vllm.doubts import Doubts
from collectors.vllm.names import PREFIX_TOKENS_SINCE, Field
from collectors.vllm.page import Page, Sleep, parse_page
from collectors.vllm.pools import Arguments, arguments_of, notes_of, pools_of
from collectors.vllm.replicas import Replicas

PATHS = frozenset({"/metrics", "/version", "/v1/models"})
FACTS_SECONDS = 60.0
RETRY_SECONDS = 10.0

_ASLEEP: dict[Sleep, str] = {
    "weights_offloaded": "asleep at level 1: the weights are in host memory, the KV pool is given up; vLLM does not "
    "tell what is back already while it is woken in part",
    "discard_all": "asleep at level 2: weights and KV pool are given up; vLLM does not tell what is back already while "
    "it is woken in part",
}
_PAUSED = (
    "its scheduler is paused, which by itself frees no memory: vLLM does not tell whether the KV pool was released, too"
)


class _Version(Struct, frozen=True):
    version: str


class Model(Struct, frozen=True, gc=False):
    """One that is served; an adapter has a parent."""

    id: str
    parent: str | None = None
    owned_by: str | None = None
    max_model_len: int | None = None


class _Models(Struct, frozen=True):
    data: tuple[Model, ...] = ()


class VllmReader:
    """One server. A read takes at most its endpoint's deadline and, when the slow facts are due, a second more."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        clock: Callable[[], float],
        flags: Mapping[str, Value] | None = None,
        fact_deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._may_sleep = (flags or {}).get("enable-sleep-mode") is True
        pace = {
            "every_seconds": FACTS_SECONDS,
            "retry_seconds": RETRY_SECONDS,
            "deadline_seconds": fact_deadline_seconds,
        }
        self._version = Seldom(endpoint, "/version", Decoder(_Version).decode, **pace)
        self._models = Seldom(endpoint, "/v1/models", Decoder(_Models).decode, **pace)
        self._started_at: float | None = None  # of the run that they are of
        self._doubts = Doubts()
        self._replicas = Replicas()

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
            page = self._replicas.of(parse_page(answer.text, source=url))
        except CollectorError as exc:
            self._lost()  # it may come back as another version
            self._doubts.lost(exc)
            self._replicas.lost(exc)
            raise
        at = self._clock()
        if page.started_at != self._started_at:
            self._lost()
        self._started_at = page.started_at
        if self._version.is_due(at):  # both at once; else without tasks, whose making was a tenth of a read
            await asyncio.gather(self._version.get(at), self._models.get(at))
        version, models = await self._version.get(at), await self._models.get(at)
        known = models.data if isinstance(models, _Models) else ()
        if not page.replicas and not any(model.owned_by == "vllm" for model in known):
            advice = "start vLLM without --disable-log-stats, or check that the URL is that of a vLLM server"
            raise Unreadable("no_series", f"{url} has no vllm: series; {advice}")
        return reading_of(
            page,
            at,
            version=version.version[:64] if isinstance(version, _Version) else None,
            base=next((model for model in known if model.parent is None), None),
            notes=tuple(str(fact) for fact in (version, models) if isinstance(fact, CollectorError)),
            doubts=self._doubts.about(page, at),
            may_sleep=self._may_sleep,
        )

    def _lost(self) -> None:
        self._version.lost()
        self._models.lost()


def reading_of(
    page: Page,
    at: float,
    *,
    version: str | None = None,
    base: Model | None = None,
    notes: tuple[str, ...] = (),
    doubts: tuple[str, ...] = (),
    may_sleep: bool = False,
) -> ServerReading:
    """What a page says of a server; ``base`` is the model without adapters, ``notes`` say what is not known of it.

    ``may_sleep``: it was started so that it can.
    """
    arguments: Arguments = arguments_of(page)
    if base is not None and base.max_model_len is not None and base.max_model_len > 0:
        arguments["max_model_len"] = base.max_model_len
    model = next(iter(page.models), base.id if base is not None else None)
    return ServerReading(
        at=at,
        engine="vllm",
        state="sleeping" if page.sleep else "serving",
        version=version,
        model=model[:256] if model is not None else None,
        started_at=page.started_at,
        pools=() if page.sleep else pools_of(page),
        replicas=tuple(_replica(page, replica, version) for replica in page.replicas),
        offload=page.offload,
        adapters=page.adapters,
        may_be_released=page.paused or (may_sleep and not page.sleep and not any(page.values["running"].values())),
        arguments=arguments,
        notes=(*notes, *_notes(page), *doubts),
    )


def _notes(page: Page) -> tuple[str, ...]:
    if not page.replicas:
        return ("no vllm: series, so pools and requests are not known; start vLLM without --disable-log-stats",)
    if page.sleep:
        return (_ASLEEP[page.sleep],)
    return (*notes_of(page), *((_PAUSED,) if page.paused else ()))


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
        finished=count("finished"),
        finished_prompt_tokens=count("finished_prompt_tokens"),
        finished_generation_tokens=count("finished_generation_tokens"),
        prefix_hit_tokens=hits,
        prefix_query_tokens=queries,
        first_tokens=count("first_tokens"),
        first_token_seconds=page.values["first_token_seconds"].get(replica),
        multimodal_queries=count("multimodal_queries"),
        multimodal_hits=count("multimodal_hits"),
    )


def _counts_tokens(version: str | None) -> bool:
    """Whether the old prefix counters are in tokens; not so in 0.8, and not known without a version."""
    found = re.match(r"v?(\d{1,6})\.(\d{1,6})", version or "")
    return found is not None and (int(found[1]), int(found[2])) >= PREFIX_TOKENS_SINCE
