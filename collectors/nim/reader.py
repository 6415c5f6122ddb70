"""Reading a NIM: its metrics, under ``/v1/metrics``, and nothing else.

Which engine is inside its names tell: they are those of vLLM, SGLang or TensorRT-LLM where it passes its engine's page
on, and up to 1.x without a prefix, whichever is inside. Source: NVIDIA's NIM for LLMs documentation, "Observability"
(1.14), "Architecture" (2.1).
"""

from collections.abc import Callable, Mapping

from msgspec import structs

from collectors.errors import CollectorError, Unreadable
from collectors.http_text import Endpoint
from collectors.readings import PoolReading, ReplicaReading, ServerReading
from collectors.renewal import Renewal
from collectors.series import Facts, Names, Series
from collectors.sglang import page as sglang_page
from collectors.sglang.reader import reading_of as read_sglang
from collectors.tensorrt_llm import page as trtllm_page
from collectors.tensorrt_llm.reader import reading_of as read_trtllm
from collectors.vllm import page as vllm_page
from collectors.vllm.reader import reading_of as read_vllm
from collectors.vllm.replicas import Replicas

METRICS = "/v1/metrics"
PATHS = frozenset({METRICS})
NAMES: Names = {
    "used_ratio": ("gpu_cache_usage_perc",),
    "running": ("num_requests_running",),
    "waiting": ("num_requests_waiting",),
    "prompt_tokens": ("prompt_tokens_total",),
    "generation_tokens": ("generation_tokens_total",),
    "first_tokens": ("time_to_first_token_seconds_count",),
    "first_token_seconds": ("time_to_first_token_seconds_sum",),
}
SERIES = Series(NAMES)
REPLICA = "0"
_UNSIZED = "NIM does not tell how large its KV pool is"


class NimReader:
    """One server."""

    def __init__(self, endpoint: Endpoint, *, clock: Callable[[], float]) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._renewal = Renewal()
        self._replicas = Replicas()
        self._inside: Mapping[str, tuple[str, Callable[[str, str], ServerReading]]] = {
            "vllm:": ("vLLM", self._vllm),
            "sglang:": ("SGLang", self._sglang),
            "trtllm_": ("TensorRT-LLM", self._trtllm),
        }

    async def read(self) -> ServerReading:
        """The server now; counters are raw, since the engine's start.

        Raises:
            Unreachable: nothing listens, or no answer in time.
            Unreadable: not a page of a NIM.
        """
        url = f"{self._endpoint.url}{METRICS}"
        try:
            text = (await self._endpoint.get(METRICS, key=True)).text
        except CollectorError as exc:
            self._renewal.lost()
            self._replicas.lost(exc)
            raise
        lines = f"\n{text}"
        engine, read = next(
            (inside for prefix, inside in self._inside.items() if f"\n{prefix}" in lines), ("", self._plain)
        )
        reading = read(text, url)
        notes = (f"the engine inside is {engine}",) if engine else ()
        return structs.replace(reading, engine="nim", notes=(*reading.notes, *notes))

    def _vllm(self, text: str, url: str) -> ServerReading:
        return read_vllm(self._replicas.of(vllm_page.parse_page(text, source=url)), self._clock())

    def _sglang(self, text: str, url: str) -> ServerReading:
        return read_sglang(sglang_page.parse_page(text, source=url), self._clock())

    def _trtllm(self, text: str, url: str) -> ServerReading:
        return read_trtllm(trtllm_page.SERIES.read(text, source=url), self._clock(), self._renewal)

    def _plain(self, text: str, url: str) -> ServerReading:
        facts = SERIES.read(text, source=url)
        if not facts.is_told:
            raise Unreadable(
                "no_series", f"{url} has no series of requests; check that the URL is that of a NIM for LLMs"
            )
        ratio = facts.ratio(REPLICA, "used_ratio")
        return ServerReading(
            at=self._clock(),
            engine="nim",
            state="serving",
            model=facts.label("model_name"),
            pools=() if ratio is None else (PoolReading(replica=REPLICA, used_ratio=ratio),),
            replicas=(_replica(facts),),
            notes=(*facts.notes, _UNSIZED),
        )


def _replica(facts: Facts) -> ReplicaReading:
    return ReplicaReading(
        replica=REPLICA,
        running_requests=facts.count(REPLICA, "running"),
        waiting_requests=facts.count(REPLICA, "waiting"),
        prompt_tokens=facts.count(REPLICA, "prompt_tokens"),
        generation_tokens=facts.count(REPLICA, "generation_tokens"),
        first_tokens=facts.count(REPLICA, "first_tokens"),
        first_token_seconds=facts.values.get(REPLICA, {}).get("first_token_seconds"),
    )
