"""Reading a LightLLM server: ``/metrics`` and ``/token_load`` every time. Its series are absent until first used.

The load is the share of tokens in use, read from memory that the scheduler shares; what is kept for its prefix is not
in it. How many tokens there are only the flag ``--max_total_token_num`` says. Never ``/health``, which generates a
token. Source: ModelTC/LightLLM ``lightllm/server/{api_http,metrics/metrics,router/manager}.py``, 1.0 to 1.1.
"""

from collections.abc import Callable, Iterator, Mapping

from msgspec import DecodeError, Struct, json

from collectors.discovery.command import Value
from collectors.errors import CollectorError, Unreadable
from collectors.http_text import Endpoint
from collectors.readings import PoolReading, ReplicaReading, ServerReading
from collectors.series import MAX_REPLICAS, Facts, Names, Series

METRICS, LOAD = "/metrics", "/token_load"
PATHS = frozenset({METRICS, LOAD})
REPLICA = "0"
NAMES: Names = {  # up to 1.0 without a label, and without counters of tokens
    "running": ("lightllm_batch_current_size",),
    "waiting": ("lightllm_queue_size",),
    "prompt_tokens": ("lightllm_prompt_tokens_total", "lightllm_request_input_length_sum"),
    "generation_tokens": ("lightllm_generation_tokens_total", "lightllm_request_generated_tokens_sum"),
    "cached_tokens": ("lightllm_cache_length_sum",),
    "first_tokens": ("lightllm_request_first_token_duration_count",),
    "first_token_seconds": ("lightllm_request_first_token_duration_sum",),
}
SERIES = Series(NAMES)
_UNSIZED = "how large its KV pool is LightLLM tells only where it is started with --max_total_token_num"
_UNNAMED = "default_model_name"
_SEVERAL = "requests and tokens are of all its replicas together, so they are left out"


class _Load(Struct, frozen=True):
    """A number, or one for each data-parallel replica."""

    current_load: float | tuple[float, ...]


class LightLlmReader:
    """One server; ``flags``: those it was started with, as far as known."""

    def __init__(
        self, endpoint: Endpoint, *, clock: Callable[[], float], flags: Mapping[str, Value] | None = None
    ) -> None:
        self._endpoint = endpoint
        self._clock = clock
        capacity = (flags or {}).get("max-total-token-num")
        self._capacity = capacity if isinstance(capacity, int) and 0 < capacity < 1 << 40 else None

    async def read(self) -> ServerReading:
        """The server now; counters are raw, since the engine's start.

        Raises:
            Unreachable: nothing listens, or no answer in time.
            Unreadable: not a page of LightLLM.
        """
        url = f"{self._endpoint.url}{METRICS}"
        facts = SERIES.read((await self._endpoint.get(METRICS, key=True)).text, source=url)
        loads = await self._loads()
        if not facts.is_told and isinstance(loads, CollectorError):
            raise Unreadable("no_series", f"{url} has no lightllm_ series; check that the URL is that of a LightLLM")
        notes = (*facts.notes, *((str(loads),) if isinstance(loads, CollectorError) else ()))
        shares = () if isinstance(loads, CollectorError) else loads
        return ServerReading(
            at=self._clock(),
            engine="lightllm",
            state="serving",
            model=None if (model := facts.label("model_name")) == _UNNAMED else model,
            pools=tuple(self._pools(shares)),
            replicas=(_replica(facts),) if len(shares) < 2 else (),
            notes=(*notes, *(() if self._capacity else (_UNSIZED,)), *((_SEVERAL,) if len(shares) > 1 else ())),
        )

    async def _loads(self) -> tuple[float, ...] | CollectorError:
        """By replica; a reading can do without, so what went wrong becomes a note."""
        url = f"{self._endpoint.url}{LOAD}"
        try:
            load = json.decode((await self._endpoint.get(LOAD, key=True)).text, type=_Load).current_load
        except CollectorError as exc:
            return exc
        except (DecodeError, RecursionError):
            return Unreadable("malformed", f"{url} is not the JSON that LightLLM answers there")
        loads = load if isinstance(load, tuple) else (load,)
        if len(loads) > MAX_REPLICAS:
            return Unreadable("too_large", f"{url} names {len(loads)} replicas; expected at most {MAX_REPLICAS}")
        return loads

    def _pools(self, shares: tuple[float, ...]) -> Iterator[PoolReading]:
        for number, share in enumerate(shares):
            if not 0 <= share <= 1:
                continue
            used = round(share * self._capacity) if self._capacity else None
            yield PoolReading(
                replica=str(number),
                used_ratio=share,
                capacity_tokens=self._capacity,
                used_tokens=used,
                available_tokens=self._capacity - used if self._capacity and used is not None else None,
            )


def _replica(facts: Facts) -> ReplicaReading:
    prompt, cached = facts.count(REPLICA, "prompt_tokens"), facts.count(REPLICA, "cached_tokens")
    return ReplicaReading(
        replica=REPLICA,
        running_requests=facts.count(REPLICA, "running"),
        waiting_requests=facts.count(REPLICA, "waiting"),
        prompt_tokens=prompt,
        generation_tokens=facts.count(REPLICA, "generation_tokens"),
        prefix_hit_tokens=cached,
        prefix_query_tokens=prompt if cached is not None else None,
        first_tokens=facts.count(REPLICA, "first_tokens"),
        first_token_seconds=facts.values.get(REPLICA, {}).get("first_token_seconds"),
    )
