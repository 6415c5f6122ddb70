"""Reading a NIM: its metrics, under ``/v1/metrics``, and nothing else.

Up to 1.x they have no prefix, whichever engine is inside; with the names of vLLM where that shows its own. How large
the KV pool is they do not say. Source: NVIDIA's NIM for LLMs documentation, "Observability", 1.14.
"""

from collections.abc import Callable, Mapping

from collectors.discovery.command import ReadCommand
from collectors.errors import Unreadable
from collectors.http_text import Endpoint
from collectors.readings import PoolReading, ReplicaReading, ServerReading
from collectors.series import Facts, Names, Series

METRICS = "/v1/metrics"
PATHS = frozenset({METRICS})
NAMES: Names = {
    "used_ratio": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "gpu_cache_usage_perc"),
    "running": ("vllm:num_requests_running", "num_requests_running"),
    "waiting": ("vllm:num_requests_waiting", "num_requests_waiting"),
    "preemptions": ("vllm:num_preemptions_total",),
    "prompt_tokens": ("vllm:prompt_tokens_total", "prompt_tokens_total"),
    "generation_tokens": ("vllm:generation_tokens_total", "generation_tokens_total"),
    "first_tokens": ("vllm:time_to_first_token_seconds_count", "time_to_first_token_seconds_count"),
    "first_token_seconds": ("vllm:time_to_first_token_seconds_sum", "time_to_first_token_seconds_sum"),
}
SERIES = Series(NAMES)
_UNSIZED = "NIM does not tell how large its KV pool is"
COMMAND = ReadCommand(marks=(), read=lambda argv, read: None, package="")  # it runs in a container of its own


class NimReader:
    """One server."""

    def __init__(self, endpoint: Endpoint, *, clock: Callable[[], float]) -> None:
        self._endpoint = endpoint
        self._clock = clock

    async def read(self) -> ServerReading:
        """The server now; counters are raw, since the engine's start.

        Raises:
            Unreachable: nothing listens, or no answer in time.
            Unreadable: not a page of a NIM.
        """
        url = f"{self._endpoint.url}{METRICS}"
        answer = await self._endpoint.get(METRICS, key=True)
        facts = SERIES.read(answer.text, source=url, replica=_engine)
        if not facts.samples:
            raise Unreadable(
                "no_series", f"{url} has no series of requests; check that the URL is that of a NIM for LLMs"
            )
        ratios = {replica: facts.ratio(replica, "used_ratio") for replica in facts.replicas}
        return ServerReading(
            at=self._clock(),
            engine="nim",
            state="serving",
            model=facts.label("model_name"),
            pools=tuple(PoolReading(replica=name, used_ratio=one) for name, one in ratios.items() if one is not None),
            replicas=tuple(_replica(facts, replica) for replica in facts.replicas),
            notes=(*facts.notes, _UNSIZED),
        )


def _engine(labels: Mapping[str, str]) -> str:
    return labels.get("engine") or "0"


def _replica(facts: Facts, replica: str) -> ReplicaReading:
    return ReplicaReading(
        replica=replica,
        running_requests=facts.count(replica, "running"),
        waiting_requests=facts.count(replica, "waiting"),
        preemptions=facts.count(replica, "preemptions"),
        prompt_tokens=facts.count(replica, "prompt_tokens"),
        generation_tokens=facts.count(replica, "generation_tokens"),
        first_tokens=facts.count(replica, "first_tokens"),
        first_token_seconds=facts.values[replica].get("first_token_seconds"),
    )
