"""Reading TensorRT-LLM in a worker of Dynamo: the page of its system port, which passes the engine's series on.

A worker around vLLM or SGLang is read as that engine. Older workers have a few series of their own for the pool. That
page is under the very path that takes records away where a trtllm-serve answers: after one such answer it is not asked
again.
"""

from collections.abc import Callable

from collectors.errors import CollectorError, Unreadable
from collectors.http_text import Endpoint
from collectors.readings import ServerReading
from collectors.renewal import Renewal, is_fresh
from collectors.series import Series
from collectors.tensorrt_llm.names import ENDED
from collectors.tensorrt_llm.names import NAMES as ENGINE_NAMES
from collectors.tensorrt_llm.page import NO_POOL, OLD, figures_of, model_of, offload_of, pool_of, replica_of

METRICS = "/metrics"
PATHS = frozenset({METRICS})
OWN_NAMES = {
    "used_ratio": ("dynamo_component_gpu_cache_usage_percent", "dynamo_component_kvstats_gpu_cache_usage_percent"),
    "blocks": ("dynamo_component_total_blocks", "dynamo_component_kvstats_total_blocks"),
    "used_blocks": ("dynamo_component_kvstats_active_blocks",),
}
SERIES = Series({fact: (*names, *OWN_NAMES.get(fact, ())) for fact, names in ENGINE_NAMES.items()}, others=ENDED)


class DynamoTrtLlmReader:
    """One worker, by the URL of its system port."""

    def __init__(self, endpoint: Endpoint, *, clock: Callable[[], float]) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._renewal = Renewal()
        self._drains = False

    async def read(self) -> ServerReading:
        """The worker now; what its figures are too old for is left out.

        Raises:
            Unreachable: nothing listens, or no answer in time.
            Unreadable: not a page of such a worker.
        """
        url = f"{self._endpoint.url}{METRICS}"
        try:
            text = "[" if self._drains else (await self._endpoint.get(METRICS)).text
            self._drains = text.startswith("[")
            if self._drains:
                advice = "set engine: tensorrt_llm for it"
                raise Unreadable("drains", f"{url} answers the JSON of a trtllm-serve and is not asked again; {advice}")
            facts = SERIES.read(text, source=url)
        except CollectorError:
            self._renewal.lost()
            raise
        if not facts.is_told:
            advice = "set engine: vllm or sglang for a worker around one of these"
            raise Unreadable("no_series", f"{url} has no trtllm_ series; {advice}")
        at = self._clock()
        renewed_at = self._renewal.seen(figures_of(facts), at)
        fresh = is_fresh(renewed_at, at)
        pool = pool_of(facts, fresh=fresh)
        return ServerReading(
            at=at,
            figures_at=renewed_at,
            engine="dynamo_trtllm",
            state="serving",
            model=model_of(facts) or facts.label("model"),
            pools=(pool,) if pool else (),
            replicas=(replica_of(facts, fresh=fresh),),
            offload=offload_of(facts, fresh=fresh),
            notes=(*facts.notes, *((() if fresh else (OLD,)) if pool else (NO_POOL,))),
        )
