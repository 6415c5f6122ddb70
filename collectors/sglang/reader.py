"""Reading an SGLang server: ``/metrics`` every time; version and arguments at the start and then once in ten minutes.

Without ``--enable-metrics`` ``/v1/loads`` stands in for them (since 0.5.8), which says less. Never ``/health``, which
generates a token, and none of the GETs that change state. ``/server_info`` goes through the scheduler, which is why it
is asked for so seldom; up to 0.5.7 it has another name.
"""

from collections.abc import Callable, Iterator

from collectors.bounds import whole
from collectors.errors import CollectorError, Unreadable
from collectors.facts import DEADLINE_SECONDS, FACTS_SECONDS, Seldom
from collectors.http_text import Endpoint
from collectors.readings import RankReport, ReplicaReading, ServerReading
from collectors.sglang.beside import adapters_of, offload_of
from collectors.sglang.info import Info, parse_info
from collectors.sglang.loads import parse_loads
from collectors.sglang.names import Field
from collectors.sglang.page import Page, parse_page, rounded
from collectors.sglang.pools import GIB, pools_of

METRICS, LOADS = "/metrics", "/v1/loads"
INFO, OLD_INFO = "/server_info", "/get_server_info"
PATHS = frozenset({METRICS, LOADS, INFO, OLD_INFO})
_STILL = (
    "tokens are in use while no request runs or waits: SGLang renews its figures every 30 s then, so these may be old"
)
_TOLD: dict[Field, str] = {"context": "max_model_len", "page_size": "block_size"}  # by its page, where it does


class SglangReader:
    """One server. A read takes at most its endpoint's deadline twice and, when facts are due, two seconds more."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        clock: Callable[[], float],
        fact_deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._infos = [
            Seldom(endpoint, path, parse_info, deadline_seconds=fact_deadline_seconds) for path in (INFO, OLD_INFO)
        ]
        self._metrics_due_at = float("-inf")

    async def read(self) -> ServerReading:
        """The server now; counters are raw, since the engine's start.

        Raises:
            Unreachable: nothing listens (SGLang opens its port only when it is ready), or no answer in time.
            Unreadable: neither metrics nor loads, or not a page of SGLang.
        """
        try:
            page = await self._page()
        except CollectorError:
            self._metrics_due_at = float("-inf")
            for one in self._infos:
                one.lost()  # it may come back as another version
            raise
        at = self._clock()
        info = await self._infos[0].get(at)
        if isinstance(info, CollectorError) and info.reason == "http_404":
            info = await self._infos[1].get(at)
        notes = (str(info),) if isinstance(info, CollectorError) else info.notes
        known = Info() if isinstance(info, CollectorError) else info
        if not page.replicas and known.version is None:
            url = f"{self._endpoint.url}{METRICS}"
            raise Unreadable("no_series", f"{url} has no sglang: series of a scheduler; check that the URL is SGLang's")
        return reading_of(page, at, info=known, notes=notes)

    async def _page(self) -> Page:
        """Its metrics, or where they are off the loads of its schedulers; metrics are then asked for seldom."""
        url = f"{self._endpoint.url}{METRICS}"
        if self._clock() >= self._metrics_due_at:
            try:
                return parse_page((await self._endpoint.get(METRICS, key=True)).text, source=url)
            except CollectorError as exc:
                if exc.reason != "http_404":
                    raise
            self._metrics_due_at = self._clock() + FACTS_SECONDS
        try:
            answer = await self._endpoint.get(LOADS, key=True)
        except CollectorError as exc:
            if exc.reason == "http_404":
                raise Unreadable("metrics_off", f"{url} answered 404; start SGLang with --enable-metrics") from exc
            raise
        return parse_loads(answer.text, source=f"{self._endpoint.url}{LOADS}")


def reading_of(page: Page, at: float, *, info: Info = Info(), notes: tuple[str, ...] = ()) -> ServerReading:  # noqa: B008 a frozen value
    """What a page says of a server; ``notes`` say what is not known of it."""
    replicas = tuple(_replica(page, replica) for replica in page.replicas)
    page_size = whole(info.arguments.get("block_size"))
    pools = pools_of(page, info.capacity_tokens, page_size=page_size, alike=info.arguments.get("pp", 1) == 1)
    idle = all(replica.running_requests == replica.waiting_requests == 0 for replica in replicas)
    still = (_STILL,) if replicas and idle and any(pool.used_tokens for pool in pools) else ()
    arguments = dict(info.arguments)
    for field, name in _TOLD.items():
        told = max((values.get(field, 0) for values in page.values.values()), default=0)
        if told > 0:
            arguments[name] = round(told)
    return ServerReading(
        at=at,
        engine="sglang",
        state="serving",
        version=info.version,
        model=page.model[:256] if page.model else None,
        pools=pools,
        replicas=replicas,
        ranks=tuple(_rank(page, replica) for replica in page.replicas),
        offload=offload_of(page),
        adapters=adapters_of(page),
        loaded_beside=tuple(_beside(page, info)),
        may_be_released=info.may_release and idle,
        arguments=arguments,
        notes=(*notes, *page.notes, *still),
    )


def _beside(page: Page, info: Info) -> Iterator[str]:
    """Its figures of weights and pool are those of the model that it serves."""
    if str(info.arguments.get("speculative")).startswith(("mtp", "draft")):
        yield "a model that speculates, and its KV"
    if adapters_of(page):
        yield "slots of LoRA adapters"


def _replica(page: Page, replica: str) -> ReplicaReading:
    """Live counts where there are any; those of ended requests only where one replica has them all."""
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
        running_requests=page.count(replica, "running"),
        waiting_requests=page.count(replica, "waiting"),
        preemptions=page.count(replica, "retracted"),
        prompt_tokens=rounded(prompt),
        generation_tokens=rounded(live.get("decoded", ended.get("generation_tokens"))),
        finished=rounded(ended.get("finished")),
        finished_prompt_tokens=rounded(ended.get("prompt_tokens")) if computed is not None else None,
        finished_generation_tokens=rounded(ended.get("generation_tokens")) if "decoded" in live else None,
        prefix_hit_tokens=rounded(hits),
        prefix_query_tokens=rounded(queries),
        first_tokens=rounded(ended.get("first_tokens")),
        first_token_seconds=ended.get("first_token_seconds"),
    )


def _rank(page: Page, replica: str) -> RankReport:
    """What weights and graphs took on the ranks of a stage. The weights are the fall of the device's free memory while
    they loaded, and can come out as nothing."""
    weights, graphs = page.values[replica].get("weights_gib", 0.0), page.graphs_gib.get(replica, 0.0)
    return RankReport(
        replica=replica,
        pp_rank=page.leads[replica][0],
        weights_bytes=round(weights * GIB) if weights else None,
        cuda_graphs_bytes=round(graphs * GIB) if graphs else None,
    )
