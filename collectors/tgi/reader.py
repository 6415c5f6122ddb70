"""Reading a TGI server: ``/metrics`` every time; model and version once in ten minutes.

Never ``/health``, which may generate a token. A running request reserves room for the longest it may become; how
much of that is written is not told. Series are absent until they are first used. Source:
huggingface/text-generation-inference ``router/src/server.rs``, ``backends/v3/src``, up to 3.3.7.
"""

from collections.abc import Callable, Iterator

from msgspec import Struct
from msgspec.json import Decoder

from collectors.errors import CollectorError, Unreadable
from collectors.facts import Seldom
from collectors.http_text import Endpoint
from collectors.readings import PoolReading, ReplicaReading, ServerReading
from collectors.series import Facts, Names, Series

PATHS = frozenset({"/metrics", "/info"})
REPLICA = "0"
NAMES: Names = {
    "capacity": ("tgi_batch_max_total_tokens",),  # since 2.3.1
    "reserved": ("tgi_batch_current_max_tokens",),
    "running": ("tgi_batch_current_size",),
    "waiting": ("tgi_queue_size",),
    "prompt_tokens": ("tgi_request_input_length_sum",),
    "generation_tokens": ("tgi_request_generated_tokens_sum",),
}
SERIES = Series(NAMES, others=("tgi_request_count",))
_RESERVES = "TGI reserves the longest that requests may become; how many tokens are written it does not tell"


class _Info(Struct, frozen=True):
    """``max_batch_total_tokens``: until 2.2, the capacity."""

    model_id: str | None = None
    version: str | None = None
    max_total_tokens: int | None = None
    max_batch_total_tokens: int | None = None


class TgiReader:
    """One server. A read takes at most its endpoint's deadline and, when facts are due, a second more."""

    def __init__(self, endpoint: Endpoint, *, clock: Callable[[], float]) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._info = Seldom(endpoint, "/info", Decoder(_Info).decode)

    async def read(self) -> ServerReading:
        """The server now; counters are of ended requests since the engine's start.

        Raises:
            Unreachable: nothing listens, or no answer in time.
            Unreadable: not a page of TGI.
        """
        url = f"{self._endpoint.url}/metrics"
        try:
            facts = SERIES.read((await self._endpoint.get("/metrics", key=True)).text, source=url)
        except CollectorError:
            self._info.lost()
            raise
        at = self._clock()
        answer = await self._info.get(at)
        info = _Info() if isinstance(answer, CollectorError) else answer
        if not facts.is_told and info.model_id is None:
            raise Unreadable("no_series", f"{url} has no tgi_ series; check that the URL is that of a TGI server")
        notes = (str(answer),) if isinstance(answer, CollectorError) else ()
        return _reading(at, facts, info, (*notes, *facts.notes))


def _reading(at: float, facts: Facts, info: _Info, notes: tuple[str, ...]) -> ServerReading:
    pool = _pool(facts, info)
    context = info.max_total_tokens
    return ServerReading(
        at=at,
        engine="tgi",
        state="serving",
        version=info.version[:64] if info.version else None,
        model=info.model_id[:256] if info.model_id else None,
        pools=(pool,) if pool else (),
        replicas=(_replica(facts),),
        arguments={"max_model_len": context} if context and 0 < context < 1 << 40 else {},
        notes=(*notes, *_notes(facts, pool)) if pool else notes,
    )


def _pool(facts: Facts, info: _Info) -> PoolReading | None:
    told = info.max_batch_total_tokens or 0
    capacity = facts.count(REPLICA, "capacity") or (told if 0 < told < 1 << 40 else None)
    if not capacity:
        return None
    reserved = facts.count(REPLICA, "reserved")
    return PoolReading(
        replica=REPLICA,
        capacity_tokens=capacity,
        reserved_tokens=None if reserved is None else min(reserved, capacity),
    )


def _notes(facts: Facts, pool: PoolReading) -> Iterator[str]:
    reserved, capacity = facts.count(REPLICA, "reserved") or 0, pool.capacity_tokens or 0
    if reserved > capacity:
        yield f"it says that {reserved} tokens of {capacity} are reserved, which is shown as all of them"
    yield _RESERVES


def _replica(facts: Facts) -> ReplicaReading:
    return ReplicaReading(
        replica=REPLICA,
        running_requests=facts.count(REPLICA, "running"),
        waiting_requests=facts.count(REPLICA, "waiting"),
        prompt_tokens=facts.count(REPLICA, "prompt_tokens"),
        generation_tokens=facts.count(REPLICA, "generation_tokens"),
    )
