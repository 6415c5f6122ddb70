"""Reading a trtllm-serve: ``/prometheus/metrics`` every time; version once in ten minutes.

Never ``/metrics``, ``/perf_metrics`` or ``/kv_cache_events``: each GET of them takes records away from others who
read them. Source: NVIDIA/TensorRT-LLM ``tensorrt_llm/serve/openai_server.py``.
"""

from collections.abc import Callable

from msgspec import Struct
from msgspec.json import Decoder

from collectors.errors import CollectorError, Unreadable
from collectors.facts import Seldom
from collectors.http_text import Endpoint
from collectors.readings import ServerReading
from collectors.renewal import Renewal, is_fresh
from collectors.series import Facts
from collectors.tensorrt_llm.page import NO_POOL, OLD, SERIES, figures_of, model_of, offload_of, pool_of, replica_of

METRICS, VERSION = "/prometheus/metrics", "/version"
PATHS = frozenset({METRICS, VERSION})
_OFF = (
    "start trtllm-serve with return_perf_metrics: true and enable_iter_perf_stats: true in its options file "
    "(its /metrics is not read: each look at it takes records away from others)"
)


class _Version(Struct, frozen=True):
    version: str


class TensorRtLlmReader:
    """One server. A read takes at most its endpoint's deadline and, when the version is due, a second more."""

    def __init__(self, endpoint: Endpoint, *, clock: Callable[[], float]) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._version = Seldom(endpoint, VERSION, Decoder(_Version).decode)
        self._renewal = Renewal()

    async def read(self) -> ServerReading:
        """The server now; what its figures are too old for is left out.

        Raises:
            Unreachable: nothing listens, or no answer in time.
            Unreadable: its Prometheus metrics are off, or not a page of it.
        """
        url = f"{self._endpoint.url}{METRICS}"
        try:
            answer = await self._endpoint.get(METRICS, key=True)
            facts = SERIES.read(answer.text, source=url)
        except CollectorError as exc:
            self._version.lost()
            self._renewal.lost()
            if exc.reason == "http_404":
                raise Unreadable("metrics_off", f"{url} answered 404; {_OFF}") from exc
            raise
        at = self._clock()
        version = await self._version.get(at)
        if isinstance(version, CollectorError):
            return reading_of(facts, at, self._renewal, notes=(str(version),))
        return reading_of(facts, at, self._renewal, version=version.version[:64] or None)


def reading_of(
    facts: Facts, at: float, renewal: Renewal, *, version: str | None = None, notes: tuple[str, ...] = ()
) -> ServerReading:
    """What a page says of a server; ``notes`` say what is not known of it."""
    renewed_at = renewal.seen(figures_of(facts), at)
    fresh = is_fresh(renewed_at, at)
    pool = pool_of(facts, fresh=fresh)
    return ServerReading(
        at=at,
        figures_at=renewed_at,
        engine="tensorrt_llm",
        state="serving",
        version=version,
        model=model_of(facts),
        pools=(pool,) if pool else (),
        replicas=(replica_of(facts, fresh=fresh),),
        offload=offload_of(facts, fresh=fresh),
        notes=(*notes, *facts.notes, *(() if pool else (NO_POOL,)), *(() if fresh or not pool else (OLD,))),
    )
