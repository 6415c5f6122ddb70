"""Reading an Ollama server: ``/api/ps`` every time, its version at the start and then once in ten minutes.

It tells which models are loaded, with which context, and how much of each lies in video memory; nothing of requests,
nothing of what their caches hold. Both are asked without effect. Source: ollama/ollama ``docs/api.md``.
"""

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct

from collectors.bounds import note_of, whole
from collectors.discovery.command import Value
from collectors.errors import CollectorError, Unreadable
from collectors.http_text import Endpoint
from collectors.readings import PoolReading, ReplicaReading, ServerReading

PATHS = frozenset({"/api/ps", "/api/version"})
FACTS_SECONDS = 600.0
MAX_MODELS = 256


class _Loaded(Struct, frozen=True, kw_only=True, gc=False):
    """``context_length`` since 0.10; what of ``size`` is not in ``size_vram`` is on the host."""

    name: str = ""
    size: int = 0
    size_vram: int = 0
    context_length: int | None = None


class _Models(Struct, frozen=True):
    models: tuple[_Loaded, ...] | None


class _Version(Struct, frozen=True):
    version: str


class OllamaReader:
    """One server. ``flags``: what its environment sets, None where nobody knows it."""

    def __init__(
        self, endpoint: Endpoint, *, clock: Callable[[], float], flags: Mapping[str, Value] | None = None
    ) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._flags = flags
        self._version: str | None = None
        self._version_due_at = float("-inf")

    async def read(self) -> ServerReading:
        """The server now.

        Raises:
            Unreachable: nothing listens, or no answer in time.
            Unreadable: not an Ollama server.
        """
        try:
            text = (await self._endpoint.get("/api/ps")).text
        except CollectorError:
            self._version, self._version_due_at = None, float("-inf")  # it may come back as another
            raise
        at = self._clock()
        loaded = _parsed(text, f"{self._endpoint.url}/api/ps")
        if at >= self._version_due_at:
            self._version, self._version_due_at = await self._read_version(), at + FACTS_SECONDS
        return _reading(at, loaded, self._version, self._flags)

    async def _read_version(self) -> str | None:
        try:
            answer = await self._endpoint.get("/api/version")
            return msgspec.json.decode(answer.text, type=_Version).version[:64] or None
        except (CollectorError, msgspec.DecodeError, RecursionError):
            return self._version


def _parsed(text: str, source: str) -> tuple[_Loaded, ...]:
    try:
        loaded = msgspec.json.decode(text, type=_Models).models or ()
    except (msgspec.DecodeError, RecursionError) as exc:
        message = f"{source} is not the JSON that Ollama answers there; check that the URL is its server's"
        raise Unreadable("malformed", message) from exc
    if len(loaded) > MAX_MODELS or any(min(one.size, one.size_vram) < 0 for one in loaded):
        raise Unreadable("malformed", f"{source} has models as no Ollama loads them; check that the URL is its own")
    return loaded


def _reading(
    at: float, loaded: tuple[_Loaded, ...], version: str | None, flags: Mapping[str, Value] | None
) -> ServerReading:
    only = loaded[0] if len(loaded) == 1 else None
    context = whole(only.context_length) if only is not None else None
    pool = _pool(context, flags) if context is not None else None
    return ServerReading(
        at=at,
        engine="ollama",
        state="serving",
        version=version,
        model=only.name[:256] or None if only is not None else None,
        pools=(pool,) if pool is not None else (),
        replicas=(ReplicaReading(replica="0"),),
        layers_on_devices=0 if only is not None and only.size_vram < only.size else None,
        arguments={"max_model_len": context} if context is not None else {},
        notes=_notes(loaded),
    )


def _pool(context: int, flags: Mapping[str, Value] | None) -> PoolReading | None:
    """A cache of its own for each request at a time; what it holds is not told."""
    parallel = whole((flags or {}).get("num-parallel", 1))
    if flags is None or parallel is None:
        return None
    capacity = context * parallel
    return PoolReading(replica="0", capacity_tokens=capacity, blocks=capacity, block_size_tokens=1)


def _notes(loaded: tuple[_Loaded, ...]) -> tuple[str, ...]:
    if not loaded:
        return ("no model is loaded: its memory is free until the next request",)
    notes = []
    if any(one.context_length and whole(one.context_length) is None for one in loaded):
        notes.append(note_of(["context_length"]))
    if len(loaded) > 1:
        names = ", ".join(repr(model.name[:64]) for model in loaded[:4])
        notes.append(f"{len(loaded)} models are loaded ({names}): how they divide its memory is not told apart")
    outside = [model for model in loaded if model.size_vram < model.size]
    if outside:
        shares = ", ".join(f"{(1 - one.size_vram / one.size):.0%} of {one.name[:64]!r}" for one in outside[:4])
        notes.append(f"in host memory, by its own estimate: {shares}")
    return tuple(notes)
