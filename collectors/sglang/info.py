"""``/server_info`` of SGLang: version, capacity and arguments. Of all the rest nothing is kept, for it holds keys."""

from typing import Any

from msgspec import Raw, Struct, defstruct, json
from msgspec.structs import asdict

from collectors.bounds import MOST_TEXT, MOST_TOKENS, whole
from collectors.discovery.command import Value
from collectors.discovery.flags import Kind
from collectors.sglang.beside import speculative
from collectors.sglang.command import FLAGS

# Its own names, and those of the agent's arguments.
_ARGUMENTS = {
    "tp_size": "tp",
    "pp_size": "pp",
    "dp_size": "dp",
    "enable_dp_attention": "dp_attention",
    "dtype": "dtype",
    "quantization": "quantization",
    "kv_cache_dtype": "kv_cache_dtype",
    "page_size": "block_size",
    "context_length": "max_model_len",
    "mem_fraction_static": "mem_fraction_static",
    "chunked_prefill_size": "max_num_batched_tokens",
    "max_running_requests": "max_num_seqs",
    "max_total_tokens": "max_total_tokens",
    "swa_full_tokens_ratio": "swa_full_tokens_ratio",
    "mamba_full_memory_ratio": "mamba_full_memory_ratio",
    "disable_cuda_graph": "enforce_eager",
    "cpu_offload_gb": "cpu_offload_gb",
}
_SIZES = frozenset({"tp_size", "pp_size", "dp_size", "chunked_prefill_size", "cpu_offload_gb"})  # else off
_WITHOUT_PREFIXES = "disable_radix_cache"
_OTHERS = (
    "version",
    "max_total_num_tokens",
    "enable_memory_saver",
    "speculative_algorithm",
    "speculative_draft_model_path",
    "speculative_num_draft_tokens",
    "model_path",
)
_KINDS: dict[str, Kind] = {name: FLAGS.kinds[name.replace("_", "-")] for name in (*_ARGUMENTS, _WITHOUT_PREFIXES)}
_NULL = Raw(b"null")
_Told = defstruct("_Told", [(name, Raw, _NULL) for name in (*_KINDS, *_OTHERS)])  # the rest is not even decoded


class Info(Struct, frozen=True, kw_only=True):
    """What changes only with a restart; ``notes`` say what of it can't be.

    ``may_release``: it was started so that it can release memory on request.
    """

    version: str | None = None
    capacity_tokens: int | None = None
    may_release: bool = False
    arguments: dict[str, Value] = {}
    notes: tuple[str, ...] = ()


def parse_info(text: str) -> Info:
    """The facts of an answer; one of another type, or beyond what can be, is not known.

    Raises:
        msgspec.DecodeError: not JSON.
    """
    told = {name: _plain(raw) for name, raw in asdict(json.decode(text, type=_Told)).items()}
    given = {name: told[name] for name in _KINDS if told[name] is not None}
    wrong = [name for name, value in given.items() if not _can_be(value, _KINDS[name])]
    version = told["version"]
    return Info(
        version=version[:64] if isinstance(version, str) and version else None,
        capacity_tokens=whole(told["max_total_num_tokens"]),
        may_release=told["enable_memory_saver"] is True,
        arguments=_arguments({name: value for name, value in given.items() if name not in wrong}, speculative(told)),
        notes=(f"its facts have what can't be as {', '.join(wrong)}: that is not known",) if wrong else (),
    )


def _plain(raw: Raw) -> object:
    """A value that is no list or object, which are not decoded and are of no use."""
    return raw if bytes(memoryview(raw)[:1]) in (b"[", b"{") else json.decode(raw)


def _arguments(given: dict[str, Any], speculation: str | None) -> dict[str, Value]:
    found: dict[str, Value] = {
        argument: given[name]
        for name, argument in _ARGUMENTS.items()
        if name in given and (name not in _SIZES or given[name] > 0)
    }
    if _WITHOUT_PREFIXES in given:
        found["prefix_caching"] = not given[_WITHOUT_PREFIXES]
    if speculation is not None:
        found["speculative"] = speculation
    return found


def _can_be(value: object, kind: Kind) -> bool:
    """-1 is how it writes that something is off, or up to it."""
    if kind == "switch" or isinstance(value, bool):
        return kind == "switch" and isinstance(value, bool)
    if kind == "text":
        return isinstance(value, str) and len(value) <= MOST_TEXT
    return isinstance(value, int if kind == "whole" else int | float) and -1 <= value <= MOST_TOKENS
