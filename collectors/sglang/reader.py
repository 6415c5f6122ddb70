"""Reading an SGLang server: ``/metrics`` every time; version and arguments at the start and then once in ten minutes.

Never ``/health``, which generates a token, and none of the GETs that change state. ``/server_info`` goes through the
scheduler, which is why it is asked for so seldom; up to 0.5.7 it has another name.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from collectors.errors import CollectorError, Refused, Unreachable, Unreadable
from collectors.http_text import Endpoint
from collectors.readings import RankReport, ReplicaReading, ServerReading
from collectors.sglang.names import Field
from collectors.sglang.page import Page, parse_page
from collectors.sglang.pools import GIB, pools_of

INFO, OLD_INFO = "/server_info", "/get_server_info"
PATHS = frozenset({"/metrics", INFO, OLD_INFO})
FACTS_SECONDS = 600.0
RETRY_SECONDS = 60.0
FACT_DEADLINE_SECONDS = 1.0
_STILL = (
    "tokens are in use while no request runs or waits: SGLang renews its figures every 30 s then, so these may be old"
)
# Its own names, and those of the agent's arguments.
_ARGUMENTS = {
    "tp_size": "tp",
    "pp_size": "pp",
    "dp_size": "dp",
    "enable_dp_attention": "dp_attention",
    "dtype": "dtype",
    "quantization": "quantization",
    "kv_cache_dtype": "kv_cache_dtype",
    "page_size": "block_size",
    "context_length": "max_model_len",
    "mem_fraction_static": "mem_fraction_static",
    "chunked_prefill_size": "max_num_batched_tokens",
    "max_running_requests": "max_num_seqs",
    "max_total_tokens": "max_total_tokens",
    "swa_full_tokens_ratio": "swa_full_tokens_ratio",
    "mamba_full_memory_ratio": "mamba_full_memory_ratio",
    "disable_cuda_graph": "enforce_eager",
}


class _Facts(Struct, frozen=True, kw_only=True):
    """What changes only with a restart; of ``/server_info`` nothing else is kept, for it holds keys."""

    version: str | None = None
    capacity_tokens: int | None = None
    arguments: dict[str, int | float | str | bool] = {}
    notes: tuple[str, ...] = ()
    due_at: float


class SglangReader:
    """One server. A read takes at most its endpoint's deadline and, when facts are due, two seconds more."""

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

    async def read(self) -> ServerReading:
        """The server now; counters are raw, since the engine's start.

        Raises:
            Unreachable: nothing listens (SGLang opens its port only when it is ready), or no answer in time.
            Unreadable: no metrics, or not a page of SGLang.
        """
        url = f"{self._endpoint.url}/metrics"
        try:
            answer = await self._endpoint.get("/metrics", key=True)
            page = parse_page(answer.text, source=url)
        except CollectorError as exc:
            self._facts = None  # it may come back as another version
            raise _explained(exc, url) from exc
        at = self._clock()
        if self._facts is None or at >= self._facts.due_at:
            self._facts = await self._read_facts()
        if not page.replicas and self._facts.version is None:
            raise Unreadable("no_series", f"{url} has no sglang: series of a scheduler; check that the URL is SGLang's")
        return _reading(at, page, self._facts)

    async def _read_facts(self) -> _Facts:
        info = await self._info(INFO)
        if isinstance(info, CollectorError) and info.reason == "http_404":
            info = await self._info(OLD_INFO)
        if isinstance(info, CollectorError):
            wait = FACTS_SECONDS if isinstance(info, Refused) else RETRY_SECONDS
            return _Facts(notes=(str(info),), due_at=self._clock() + wait)
        return _Facts(
            version=_text(info.get("version")),
            capacity_tokens=_whole(info.get("max_total_num_tokens")),
            arguments=_arguments(info),
            due_at=self._clock() + FACTS_SECONDS,
        )

    async def _info(self, path: str) -> dict[str, Any] | CollectorError:
        """A fact that a reading can do without: what went wrong is returned, and becomes a note."""
        url = f"{self._endpoint.url}{path}"
        try:
            async with asyncio.timeout(self._fact_deadline_seconds):
                answer = await self._endpoint.get(path, key=True)
            return msgspec.json.decode(answer.text, type=dict[str, Any])
        except CollectorError as exc:
            return exc
        except TimeoutError:
            limit = f"{self._fact_deadline_seconds:g} s"
            return Unreachable("timeout", f"{url} did not answer within {limit}; it is asked again later")
        except (msgspec.DecodeError, RecursionError):
            return Unreadable("malformed", f"{url} is not the JSON that SGLang answers there")


def _explained(exc: CollectorError, url: str) -> CollectorError:
    if exc.reason == "http_404":
        return Unreadable("metrics_off", f"{url} answered 404; start SGLang with --enable-metrics")
    return exc


def _arguments(info: dict[str, Any]) -> dict[str, int | float | str | bool]:
    found = {name: info[key] for key, name in _ARGUMENTS.items() if isinstance(info.get(key), int | float | str)}
    if isinstance(info.get("disable_radix_cache"), bool):
        found["prefix_caching"] = not info["disable_radix_cache"]
    sizes = ("tp", "pp", "dp", "max_num_batched_tokens")
    return {name: value for name, value in found.items() if name not in sizes or value > 0}


def _text(value: object) -> str | None:
    return value[:64] if isinstance(value, str) and value else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 40 else None


def _reading(at: float, page: Page, facts: _Facts) -> ServerReading:
    replicas = tuple(_replica(page, replica) for replica in page.replicas)
    pools = pools_of(page, facts.capacity_tokens, alike=facts.arguments.get("pp", 1) == 1)
    idle = all(replica.running_requests == replica.waiting_requests == 0 for replica in replicas)
    still = (_STILL,) if replicas and idle and any(pool.used_tokens for pool in pools) else ()
    arguments = dict(facts.arguments)
    context = max((values.get("context", 0) for values in page.values.values()), default=0)
    if context > 0:
        arguments["max_model_len"] = round(context)
    return ServerReading(
        at=at,
        engine="sglang",
        state="serving",
        version=facts.version,
        model=page.model[:256] if page.model else None,
        pools=pools,
        replicas=replicas,
        ranks=tuple(_rank(page, replica) for replica in page.replicas),
        arguments=arguments,
        notes=(*facts.notes, *page.notes, *still),
    )


def _replica(page: Page, replica: str) -> ReplicaReading:
    """Live counts where there are any; those of ended requests only where one replica has them all."""

    def count(field: Field) -> int | None:
        value = page.values[replica].get(field)
        return None if value is None or value < 0 else round(value)

    def whole(value: float | None) -> int | None:
        return None if value is None else round(value)

    live, ended = page.live[replica], page.requests if len(page.replicas) == 1 else {}
    computed, cached = live.get("computed"), live.get("cached")
    if computed is None:
        prompt, hits = ended.get("prompt_tokens"), ended.get("cached_tokens")
        queries = prompt if hits is not None else None
    else:
        prompt, hits = computed + (cached or 0), cached
        queries = None if cached is None else computed + cached
    return ReplicaReading(
        replica=replica,
        running_requests=count("running"),
        waiting_requests=count("waiting"),
        preemptions=count("retracted"),
        prompt_tokens=whole(prompt),
        generation_tokens=whole(live.get("decoded", ended.get("generation_tokens"))),
        prefix_hit_tokens=whole(hits),
        prefix_query_tokens=whole(queries),
        first_tokens=whole(ended.get("first_tokens")),
        first_token_seconds=ended.get("first_token_seconds"),
    )


def _rank(page: Page, replica: str) -> RankReport:
    """What weights and graphs took on the ranks of a stage. The weights are the fall of the device's free memory while
    they loaded, and can come out as nothing."""
    weights, graphs = page.values[replica].get("weights_gib", 0.0), page.graphs_gib.get(replica, 0.0)
    return RankReport(
        replica=replica,
        pp_rank=page.leads[replica][0],
        weights_bytes=round(weights * GIB) if weights > 0 else None,
        cuda_graphs_bytes=round(graphs * GIB) if graphs > 0 else None,
    )
