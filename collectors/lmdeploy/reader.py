"""Reading an LMDeploy server: ``/metrics`` alone, with its key, which guards that too.

Never any other path: a GET of ``/terminate`` ends the server. It tells how full its cache is and not how large; its
gauges are renewed every ten seconds. Source: InternLM/lmdeploy ``lmdeploy/metrics/loggers.py``, 0.9.2 to 0.14.
"""

from collections.abc import Callable, Mapping

from collectors.errors import CollectorError, Unreadable
from collectors.http_text import Endpoint
from collectors.readings import PoolReading, ReplicaReading, ServerReading
from collectors.series import Facts, Names, Series

PATHS = frozenset({"/metrics"})
NAMES: Names = {
    "used_ratio": ("lmdeploy:gpu_cache_usage_perc",),
    "running": ("lmdeploy:num_requests_running",),
    "waiting": ("lmdeploy:num_requests_waiting",),
    "prompt_tokens": ("lmdeploy:prompt_tokens_total",),
    "generation_tokens": ("lmdeploy:generation_tokens_total",),
    "finished": ("lmdeploy:request_generation_tokens_count",),
    "finished_prompt_tokens": ("lmdeploy:request_prompt_tokens_sum",),
    "finished_generation_tokens": ("lmdeploy:request_generation_tokens_sum",),
    "cached_tokens": ("lmdeploy:cached_tokens_total",),  # since 0.14
    "first_tokens": ("lmdeploy:time_to_first_token_seconds_count",),
    "first_token_seconds": ("lmdeploy:time_to_first_token_seconds_sum",),
}
CONFIG = "lmdeploy:backend_config_info"
SERIES = Series(NAMES, others=(CONFIG,))
_ARGUMENTS = {"session_len": "max_model_len", "tp": "tp", "dp": "dp"}
_EVERY = "LMDeploy renews its gauges every 10 s, and does not tell how large its KV pool is"


class LmdeployReader:
    """One server."""

    def __init__(self, endpoint: Endpoint, *, clock: Callable[[], float]) -> None:
        self._endpoint = endpoint
        self._clock = clock

    async def read(self) -> ServerReading:
        """The server now; counters are raw, since the engine's start.

        Raises:
            Unreachable: nothing listens, or no answer in time.
            Refused: its key is needed.
            Unreadable: its metrics are off, or not a page of it.
        """
        url = f"{self._endpoint.url}/metrics"
        try:
            answer = await self._endpoint.get("/metrics", key=True)
        except CollectorError as exc:
            if exc.reason == "http_404":
                advice = "start LMDeploy without --disable-metrics, before 0.11 with --enable-metrics"
                raise Unreadable("metrics_off", f"{url} answered 404; {advice}") from exc
            raise
        facts = SERIES.read(answer.text, source=url, replica=_engine)
        if not facts.is_told:
            raise Unreadable("no_series", f"{url} has no lmdeploy: series; check that the URL is that of an LMDeploy")
        return _reading(self._clock(), facts)


def _engine(labels: Mapping[str, str]) -> str:
    return labels.get("engine") or "0"


def _reading(at: float, facts: Facts) -> ServerReading:
    ratios = {replica: facts.ratio(replica, "used_ratio") for replica in facts.replicas}
    return ServerReading(
        at=at,
        engine="lmdeploy",
        state="serving",
        model=facts.label("model_name"),
        pools=tuple(PoolReading(replica=name, used_ratio=ratio) for name, ratio in ratios.items() if ratio is not None),
        replicas=tuple(_replica(facts, replica) for replica in facts.replicas),
        # It can sleep without being started so; its page does not tell.
        may_be_released=all(facts.count(name, fact) == 0 for name in facts.replicas for fact in ("running", "waiting")),
        arguments=_arguments(facts),
        notes=(*facts.notes, _EVERY),
    )


def _replica(facts: Facts, replica: str) -> ReplicaReading:
    prompt, cached = facts.count(replica, "prompt_tokens"), facts.count(replica, "cached_tokens")
    return ReplicaReading(
        replica=replica,
        running_requests=facts.count(replica, "running"),
        waiting_requests=facts.count(replica, "waiting"),
        prompt_tokens=prompt,
        generation_tokens=facts.count(replica, "generation_tokens"),
        finished=facts.count(replica, "finished"),
        finished_prompt_tokens=facts.count(replica, "finished_prompt_tokens"),
        finished_generation_tokens=facts.count(replica, "finished_generation_tokens"),
        prefix_hit_tokens=cached,
        prefix_query_tokens=prompt if cached is not None else None,
        first_tokens=facts.count(replica, "first_tokens"),
        first_token_seconds=facts.values[replica].get("first_token_seconds"),
    )


def _arguments(facts: Facts) -> dict[str, int | float | str | bool]:
    labels = next((sample.labels for sample in facts.samples if sample.name == CONFIG), {})
    found = {name: labels.get(label, "") for label, name in _ARGUMENTS.items()}
    return {name: int(text) for name, text in found.items() if text.isascii() and text.isdigit() and 0 < len(text) < 10}
