"""What changed in vLLM's memory arithmetic between versions. Source: vLLM 0.33, 0.19.1 and 0.11.2."""

import re

from msgspec import Struct
from msgspec.structs import replace

from agent.memory.units import shown

Version = tuple[int, int, int]


class Rules(Struct, frozen=True, kw_only=True):
    """The rules from version ``since`` on."""

    since: Version
    fraction: float = 0.92
    pool_by_bytes: bool = True  # kv_cache_memory_bytes exists
    tokens_by_concurrency: bool = True  # the log's tokens are concurrency x max_model_len
    graphs_inside: bool = True  # CUDA graphs count against the fraction
    communication_outside: bool = True  # the baseline is taken after NCCL's buffers
    batches_in_flight: bool = True  # windows are held for the tokens of all batches under way (vllm#47728)
    null_block: bool = True  # one block that no request may have counts before the first start
    states_cached: bool = True  # prefix caching is on by default for models that keep states too (vllm#50991)


_OLDEST = Rules(
    since=(0, 8, 0),
    fraction=0.9,
    pool_by_bytes=False,
    tokens_by_concurrency=False,
    graphs_inside=False,
    communication_outside=False,
    batches_in_flight=False,
    null_block=False,
    states_cached=False,
)
_BY_BYTES = replace(_OLDEST, since=(0, 10, 2), pool_by_bytes=True)
_BY_CONCURRENCY = replace(_BY_BYTES, since=(0, 20, 0), fraction=0.92, tokens_by_concurrency=True)
_GRAPHS_INSIDE = replace(_BY_CONCURRENCY, since=(0, 20, 2), graphs_inside=True)
_IN_FLIGHT = replace(_GRAPHS_INSIDE, since=(0, 26, 0), batches_in_flight=True)
_STATES_CACHED = replace(_IN_FLIGHT, since=(0, 27, 0), states_cached=True)
_COMMUNICATION_OUTSIDE = replace(_STATES_CACHED, since=(0, 28, 0), communication_outside=True)
RULES = (
    _OLDEST,
    _BY_BYTES,
    _BY_CONCURRENCY,
    _GRAPHS_INSIDE,
    _IN_FLIGHT,
    _STATES_CACHED,
    _COMMUNICATION_OUTSIDE,
    Rules(since=(0, 32, 0)),
)
NEWEST_KNOWN = (0, 33)
DEFAULT_VERSION = "0.33"

_FIRST_PARTS = re.compile(r"v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?")


def rules_for(version: str) -> tuple[Rules, str | None]:
    """The rules of a version, the newest for one that is not known, and then a warning that says so."""
    number = number_of(version)
    if number is None:
        return RULES[-1], f"vLLM version {shown(version)} can't be read; the rules of {DEFAULT_VERSION} are used"
    if number[:2] > NEWEST_KNOWN:
        return RULES[-1], f"vLLM {version} is newer than the rules known here; those of {DEFAULT_VERSION} are used"
    known = [rules for rules in RULES if rules.since <= number]
    if not known:
        return RULES[0], f"vLLM {version} is older than the rules known here; those of 0.8 are used"
    return known[-1], None


def number_of(version: str) -> Version | None:
    """The three numbers a version begins with; None where it has none."""
    match = _FIRST_PARTS.match(version)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None
