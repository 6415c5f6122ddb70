"""What llama.cpp's server answers: properties, slots and counters, the few of them that are needed.

``/slots`` can hold the text of prompts: it is never decoded. Source: ggml-org/llama.cpp ``tools/server``.
"""

from typing import Literal, TypeVar

import msgspec
from msgspec import Struct

from collectors.bounds import MOST_TOKENS
from collectors.errors import Unreadable
from collectors.exposition import Wanted, possible

MAX_SLOTS = 4096
_PREFIX = "llamacpp:"

Field = Literal["prompt_tokens", "cached_tokens", "generation_tokens", "running", "waiting"]

# The averages (``prompt_tokens_seconds``, ``predicted_tokens_seconds``) begin anew with every scrape: never used.
# ``kv_cache_tokens`` (until mid 2025) counted prompts of idle slots as well.
NAMES: dict[Field, str] = {
    "prompt_tokens": "prompt_tokens_total",
    "cached_tokens": "prompt_tokens_cached_total",
    "generation_tokens": "tokens_predicted_total",
    "running": "requests_processing",
    "waiting": "requests_deferred",
}
_FIELDS = {_PREFIX + name: field for field, name in NAMES.items()}
_WANTED = Wanted(_FIELDS)

T = TypeVar("T")


class Defaults(Struct, frozen=True, kw_only=True):
    n_ctx: int | None = None


class Modalities(Struct, frozen=True, kw_only=True):
    vision: bool = False
    audio: bool = False


class Props(Struct, frozen=True, kw_only=True):
    """``role`` is ``router`` for a server that only starts others. ``modalities`` but text need a projector."""

    build_info: str | None = None
    total_slots: int | None = None
    model_path: str | None = None
    model_alias: str | None = None
    default_generation_settings: Defaults = Defaults()
    is_sleeping: bool = False
    modalities: Modalities = Modalities()
    role: str | None = None


class Slot(Struct, frozen=True, kw_only=True, gc=False):
    """One slot. ``n_prompt_tokens``: what it holds of the cache, also when it idles; absent before its first task."""

    n_ctx: int | None = None
    is_processing: bool = False
    speculative: bool = False
    id_task: int | None = None
    n_prompt_tokens: int | None = None

    @property
    def held(self) -> int | None:
        """Tokens in the cache; None where a busy slot does not tell."""
        return self.n_prompt_tokens if self.n_prompt_tokens is not None or self.is_processing else 0


def parse_props(text: str, *, source: str) -> Props:
    """Raises: Unreadable: not what llama.cpp answers there."""
    return _decoded(text, Props, source)


def parse_slots(text: str, *, source: str) -> tuple[Slot, ...]:
    """Raises: Unreadable: not what llama.cpp answers there, or more slots than there can be."""
    slots = _decoded(text, tuple[Slot, ...], source)
    sizes = (size or 0 for slot in slots for size in (slot.n_ctx, slot.n_prompt_tokens))
    if len(slots) > MAX_SLOTS or not all(0 <= size <= MOST_TOKENS for size in sizes):
        raise Unreadable("malformed", f"{source} has slots as no llama.cpp has them; check that the URL is its own")
    return slots


def parse_counters(text: str, *, source: str) -> dict[Field, int]:
    """The counters and gauges of a page, in whole numbers; six digits are all that it prints.

    Raises:
        Unreadable: cut off, or a needed line that is malformed.
    """
    samples, _ = possible(_WANTED.samples(text, source=source))
    return {_FIELDS[one.name]: round(one.value) for one in samples}


def _decoded(text: str, kind: type[T], source: str) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError) as exc:
        message = f"{source} is not the JSON that llama.cpp answers there; check that the URL is its server's"
        raise Unreadable("malformed", message) from exc
