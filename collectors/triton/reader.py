"""Reading a Triton server with TensorRT-LLM models: the page of its metrics port, which is asked without effect.

Each model is a replica of its own. Its figures are of the last iteration: while requests run and none follows, they are
left out. Nothing of Triton's own queue and cache is read: the queue counts a request for each step of an ensemble, and
the cache is one of answers.
"""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from collectors.errors import CollectorError
from collectors.http_text import Endpoint
from collectors.readings import ReplicaReading, ServerReading
from collectors.renewal import Renewal, is_fresh
from collectors.series import Facts, Series
from collectors.tensorrt_llm.page import pool_of
from collectors.triton.names import NAMES

METRICS = "/metrics"
PATHS = frozenset({METRICS})
SERIES = Series(NAMES)
_NONE = "no nv_trt_llm series, so pools and requests are not known: it has no model of the TensorRT-LLM backend yet"
_STILL = "requests run, yet its iterations do not go on: what is used and waiting now is not known"


class TritonReader:
    """One server, by the URL of its metrics port."""

    def __init__(self, endpoint: Endpoint, *, clock: Callable[[], float]) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._renewals: Mapping[str, Renewal] = {}

    async def read(self) -> ServerReading:
        """The server now.

        Raises:
            Unreachable: nothing listens, or no answer in time.
            Unreadable: not a page of metrics.
        """
        url = f"{self._endpoint.url}{METRICS}"
        try:
            facts = SERIES.read((await self._endpoint.get(METRICS)).text, source=url, replica=_model)
        except CollectorError:
            self._renewals = {}
            raise
        at = self._clock()
        models = [model for model in facts.replicas if {"blocks", "running"} & facts.values[model].keys()]
        self._renewals = {model: self._renewals.get(model, Renewal()) for model in models}
        renewed = {model: self._renewed_at(facts, model, at) for model in models}
        return _reading(at, facts, renewed)

    def _renewed_at(self, facts: Facts, model: str, at: float) -> float | None:
        """When the model's figures were renewed; now where nothing runs, so that none have to be."""
        iteration = facts.values[model].get("iteration")
        renewed_at = self._renewals[model].seen(iteration, at)
        return at if iteration is None or not facts.values[model].get("running") else renewed_at


def _model(labels: Mapping[str, str]) -> str:
    return labels.get("model") or "0"


def _reading(at: float, facts: Facts, renewed: Mapping[str, float | None]) -> ServerReading:
    only = len(renewed) == 1
    fresh = {model: is_fresh(renewed_at, at) for model, renewed_at in renewed.items()}
    pools = [pool for model in renewed if (pool := pool_of(facts, fresh=fresh[model], replica=model))]
    replicas = [_replica(facts, model, fresh=fresh[model]) for model in renewed]
    ages = [renewed_at for renewed_at in renewed.values() if renewed_at is not None]
    notes = (*facts.notes, *(() if renewed else (_NONE,)), *(() if all(fresh.values()) else (_STILL,)))
    return ServerReading(
        at=at,
        figures_at=min(ages, default=None),
        engine="triton",
        state="serving",
        model=next(iter(renewed)) if only else None,
        pools=tuple(replace(pool, replica="0") if only else pool for pool in pools),
        replicas=tuple(replace(one, replica="0") if only else one for one in replicas),
        notes=notes,
    )


def _replica(facts: Facts, model: str, *, fresh: bool) -> ReplicaReading:
    milliseconds = facts.values[model].get("first_token_milliseconds")
    return ReplicaReading(
        replica=model,
        running_requests=facts.count(model, "running") if fresh else None,
        waiting_requests=facts.count(model, "waiting") if fresh else None,
        first_tokens=facts.count(model, "first_tokens"),
        first_token_seconds=None if milliseconds is None else milliseconds / 1000,
    )
