"""Which engine serves at a URL, where nobody says: by the names on its page of metrics, else by its own API.

The pages are asked one after another until one is known, only ones that engines' readers ask too. TensorRT-LLM's own is
asked before ``/metrics``: of that, each look takes records away from others there. Who owns the models of
``/v1/models`` comes last, as a front end may answer for an engine. Source of the owners: vLLM and SGLang
``entrypoints/openai/protocol.py``, TensorRT-LLM ``serve/openai_protocol.py``, llama.cpp ``tools/server``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from collectors.errors import CollectorError, Refused, Unreachable, Unreadable
from collectors.http_text import Endpoint
from collectors.readings import ServerReading

MODELS, METRICS, UNDRAINED = "/v1/models", "/metrics", "/prometheus/metrics"
ENGINE_UNKNOWN = "engine_unknown"
SEARCH_SECONDS = 5.0
_DRAINED = "tensorrt_llm"


class Sign(Struct, frozen=True):
    """What an engine is known by: ``shows`` says of what is served at ``path`` whether it is the engine's."""

    path: str
    shows: Callable[[str], bool]


class Signs(Struct, frozen=True, kw_only=True):
    """Those of one engine; ``owner``: who owns its models as it says itself, empty where that tells nothing."""

    pages: tuple[Sign, ...]
    owner: str = ""

    @property
    def paths(self) -> frozenset[str]:
        return frozenset(sign.path for sign in self.pages)


class _Model(Struct):
    owned_by: str = ""


class _Models(Struct):
    data: list[_Model] = []


def lines_of(*prefixes: str) -> Callable[[str], bool]:
    """Any line begins like this."""

    def shows(text: str) -> bool:
        lines = f"\n{text}"
        return any(f"\n{prefix}" in lines for prefix in prefixes)

    return shows


def any_series(text: str) -> bool:
    """Of a path that no other engine has: no page for people."""
    return not text.lstrip().startswith("<")


def object_with(*keys: str) -> Callable[[str], bool]:
    """A JSON object with any of these keys."""

    def shows(text: str) -> bool:
        try:
            found = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        except (msgspec.DecodeError, RecursionError):
            return False
        return any(key in found for key in keys)

    return shows


class EngineSearch:
    """One server; a reading only says its engine. While that is not known, it is looked for every five seconds."""

    def __init__(self, endpoint: Endpoint, *, clock: Callable[[], float], signs: Mapping[str, Signs]) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._signs = signs
        self._refusal: Refused | None = None
        self._message = ""
        self._due_at = float("-inf")

    async def read(self) -> ServerReading:
        """Which engine it is.

        Raises:
            Unreachable: nothing listens, or no answer in time.
            Unreadable: it answers, but nothing tells the engine.
        """
        if self._clock() >= self._due_at:
            self._refusal = None
            engine = await self._engine()
            if engine is not None:
                return ServerReading(at=self._clock(), engine=engine, state="loading")
            why = self._refusal or "it serves nothing that an engine is known by"
            self._message = f"{self._endpoint.url}: its engine is not known yet: {why}; set it"
            self._due_at = self._clock() + SEARCH_SECONDS
        raise Unreadable(ENGINE_UNKNOWN, self._message)

    async def _engine(self) -> str | None:
        owner = await self._owner()
        if owner == _DRAINED:
            return owner
        for path in _in_order(self._signs.values(), skips=(UNDRAINED,) if owner else ()):
            text = await self._text(path)
            for engine, signs in self._signs.items() if text is not None else ():
                if any(sign.path == path and sign.shows(text or "") for sign in signs.pages):
                    return engine
        return owner

    async def _owner(self) -> str | None:
        """The engine that owns the models, as far as it says so."""
        try:
            models = msgspec.json.decode(await self._text(MODELS) or "{}", type=_Models).data
        except (msgspec.DecodeError, RecursionError):
            return None
        owners = {model.owned_by for model in models}
        return next((engine for engine, signs in self._signs.items() if signs.owner and signs.owner in owners), None)

    async def _text(self, path: str) -> str | None:
        try:
            return (await self._endpoint.get(path, key=True)).text
        except Unreachable:
            raise
        except CollectorError as error:
            self._refusal = error if isinstance(error, Refused) else self._refusal
            return None


def _in_order(signs: Iterable[Signs], *, skips: Sequence[str]) -> list[str]:
    paths = dict.fromkeys(sign.path for one in signs for sign in one.pages if sign.path not in skips)
    return sorted(paths, key=lambda path: (path != UNDRAINED, path != METRICS))
