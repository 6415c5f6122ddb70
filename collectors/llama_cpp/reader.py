"""Reading a llama.cpp server: ``/props`` every time, and while it is awake ``/slots`` and ``/metrics``.

A look at slots or metrics wakes a server that sleeps, which allocates its memory again, and keeps an idle one from
falling asleep. So a sleeping server is only asked for its properties, and one that may fall asleep
(``--sleep-idle-seconds``) is left alone, once it idles, for longer than it takes to.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from msgspec.structs import replace

from collectors.errors import CollectorError, Unreadable
from collectors.http_text import Endpoint
from collectors.llama_cpp.answers import Field, Props, Slot, parse_counters, parse_props, parse_slots
from collectors.llama_cpp.slots import Flags, is_unified, pool_of, refused, sequences
from collectors.readings import ReplicaReading, ServerReading

PATHS = frozenset({"/props", "/slots", "/metrics"})
MARGIN_SECONDS = 5.0
UNKNOWN_SLEEP_SECONDS = 600.0  # of a server that was seen asleep, and whose flags are not known
_LOADING = "http_503"
_OFF = ("http_404", "http_501")
_UNKNOWN_CAPACITY = (
    "whether its slots share one cache is not known, so neither is its capacity: give `kv_unified` among its arguments"
)
_NO_SLOTS = Unreadable(
    "slots_off", "its slots are not shown, so what its cache holds is not known: start it without --no-slots"
)


class LlamaCppReader:
    """One server. ``flags`` are those it was started with, None where nobody knows them."""

    def __init__(self, endpoint: Endpoint, *, clock: Callable[[], float], flags: Flags | None = None) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._flags = flags
        self._slots: tuple[Slot, ...] = ()
        self._refusals = 0
        self._last: ServerReading | None = None
        self._idle_until = float("-inf")
        self._was_asleep = False

    async def read(self) -> ServerReading:
        """The server now; ``at`` of an idle one that is left alone is that of the last look at its slots.

        Raises:
            Unreachable: nothing listens, or no answer in time.
            Refused: the server has a key.
            Unreadable: not a llama.cpp server.
        """
        try:
            return await self._read()
        except CollectorError as exc:
            self._slots, self._last, self._idle_until = (), None, float("-inf")
            if exc.reason == _LOADING:
                return ServerReading(at=self._clock(), engine="llama_cpp", state="loading")
            raise

    async def _read(self) -> ServerReading:
        props = await self._props()
        if props.is_sleeping:
            self._slots, self._last, self._was_asleep = (), None, True
            notes = ("asleep: it has given its memory back until the next request",)
            return self._reading(self._clock(), props, "sleeping", notes=notes)
        if props.role == "router":
            notes = ("it only starts other servers and passes requests on: each of those is shown as its own",)
            return self._reading(self._clock(), props, "serving", notes=notes)
        if self._last is not None and self._clock() < self._idle_until:
            return self._last
        self._last = await self._look(props)
        return self._last

    async def _look(self, props: Props) -> ServerReading:
        told = await self._slots_now()
        slots = told if isinstance(told, tuple) else None
        counters = await self._counters()
        at = self._clock()
        if slots is not None:
            self._refusals += refused(self._slots, slots)
            self._slots = slots
        running = sum(slot.is_processing for slot in slots) if slots is not None else None
        if counters:
            running = counters.get("running", running)
        self._let_sleep(at, idle=running == 0 and not (counters or {}).get("waiting"))
        pool = pool_of(slots, unified=is_unified(self._flags)) if slots is not None else None
        replica = _replica(counters or {}, running, self._refusals if slots is not None else None)
        replica = replace(replica, sequence_tokens=sequences(slots) if slots is not None else None)
        notes = _notes(told, counters, pool is not None and pool.blocks is None)
        reading = self._reading(at, props, "serving", notes=notes)
        return replace(
            reading,
            pools=(pool,) if pool else (),
            replicas=(replica,),
            layers_on_devices=_layers_on_devices(self._flags),
            loaded_beside=tuple(_beside(props, slots or (), self._flags or {})),
        )

    def _reading(
        self, at: float, props: Props, state: Literal["serving", "sleeping"], *, notes: tuple[str, ...] = ()
    ) -> ServerReading:
        model = props.model_alias or props.model_path
        return ServerReading(
            at=at,
            engine="llama_cpp",
            state=state,
            version=_version(props.build_info),
            model=model[:256] if model else None,
            arguments=_arguments(props, self._flags),
            notes=notes,
        )

    def _let_sleep(self, at: float, *, idle: bool) -> None:
        given = (self._flags or {}).get("sleep-idle-seconds")
        seconds = float(given) if isinstance(given, int) and given >= 0 else None
        if seconds is None and self._was_asleep:
            seconds = UNKNOWN_SLEEP_SECONDS
        self._idle_until = at + seconds + MARGIN_SECONDS if idle and seconds is not None else float("-inf")

    async def _props(self) -> Props:
        answer = await self._endpoint.get("/props", key=True)
        props = parse_props(answer.text, source=f"{self._endpoint.url}/props")
        if props.build_info is None and props.total_slots is None and props.role is None:
            message = f"{self._endpoint.url}/props names neither build nor slots; check that the URL is llama.cpp's"
            raise Unreadable("no_series", message)
        return props

    async def _slots_now(self) -> tuple[Slot, ...] | Unreadable:
        """Why not, where they are switched off, or too long: there may be the text of all prompts in them."""
        try:
            text = await self._optional("/slots")
        except Unreadable as exc:
            if exc.reason != "too_large":
                raise
            return exc
        return _NO_SLOTS if text is None else parse_slots(text, source=f"{self._endpoint.url}/slots")

    async def _counters(self) -> dict[Field, int] | None:
        text = await self._optional("/metrics")
        return None if text is None else parse_counters(text, source=f"{self._endpoint.url}/metrics")

    async def _optional(self, path: str) -> str | None:
        try:
            return (await self._endpoint.get(path, key=True)).text
        except Unreadable as exc:
            if exc.reason in _OFF:
                return None
            raise


def _layers_on_devices(flags: Flags | None) -> int | None:
    given = str((flags or {}).get("gpu-layers", ""))
    return int(given[:9]) if given.isascii() and given.isdigit() else None


def _beside(props: Props, slots: Sequence[Slot], flags: Flags) -> Iterator[str]:
    if any(slot.speculative for slot in slots):
        yield "a model that speculates"
    if props.modalities.vision or props.modalities.audio:
        yield "a projector of images or sound"
    if flags.keys() & {"lora", "lora-scaled"}:
        yield "LoRA adapters"


def _version(build: str | None) -> str | None:
    """Build and commit; a build made without its history has the number 0."""
    return build[:64] if build and not build.startswith("b0-") else None


def _arguments(props: Props, flags: Flags | None) -> dict[str, int | float | str | bool]:
    """Context of a slot, slots, and whether they share it; one without the others would say something else."""
    context, slots = props.default_generation_settings.n_ctx, props.total_slots
    unified = True if slots == 1 else is_unified(flags)
    if not context or not slots or min(context, slots) < 1 or unified is None:
        return {}
    return {"max_model_len": context, "parallel": slots, "kv_unified": unified}


def _replica(counters: dict[Field, int], running: int | None, refusals: int | None) -> ReplicaReading:
    """Tokens of answers are counted when a request ends."""
    computed, cached = counters.get("prompt_tokens"), counters.get("cached_tokens")
    return ReplicaReading(
        replica="0",
        running_requests=running,
        waiting_requests=counters.get("waiting"),
        refusals=refusals,
        prompt_tokens=None if computed is None else computed + (cached or 0),
        generation_tokens=counters.get("generation_tokens"),
        prefix_hit_tokens=cached,
        prefix_query_tokens=None if computed is None or cached is None else computed + cached,
    )


def _notes(slots: tuple[Slot, ...] | Unreadable, counters: dict[Field, int] | None, is_unsure: bool) -> tuple[str, ...]:
    notes = []
    if isinstance(slots, Unreadable):
        notes.append(str(slots))
    if counters is None:
        notes.append("it exports no metrics, so waiting requests and tokens are not known: start it with --metrics")
    if is_unsure:
        notes.append(_UNKNOWN_CAPACITY)
    return tuple(notes)
