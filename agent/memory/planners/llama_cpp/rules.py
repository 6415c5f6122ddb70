"""What changed in what llama.cpp allocates, by build: as builds 7079 to 11549 were seen to do."""

import re

from msgspec import Struct

from agent.memory.units import shown

DEFAULT_VERSION = "b11549"
NEWEST_KNOWN = 11_549

_BUILD = re.compile(r"b?(\d{4,6})\b")


class Rules(Struct, frozen=True, kw_only=True):
    """From build ``since`` on, the first one seen to do so."""

    since: int
    latent_values: bool = False  # MLA stores its latent again as V
    hybrid_cells_of_all: bool = False  # beside recurrent states, each slot's cache is as long as the context of all
    context_of_each: bool = True  # a context nobody gave is that of each slot, not of all together


RULES = (
    Rules(since=7079, latent_values=True, hybrid_cells_of_all=True, context_of_each=False),
    Rules(since=7964, hybrid_cells_of_all=True, context_of_each=False),  # 7827 still had the V
    Rules(since=8156, context_of_each=False),
    Rules(since=11_063),  # 10566 still shared the context
)


def rules_for(version: str) -> tuple[Rules, str | None]:
    """The rules of a build (``b11549``), the newest for one that is not known, and then a warning that says so."""
    build = build_of(version)
    if build is None:
        text = f"llama.cpp version {shown(version)} has no build number such as {DEFAULT_VERSION}"
        return RULES[-1], f"{text}; the rules of {DEFAULT_VERSION} are used"
    if build > NEWEST_KNOWN:
        return RULES[-1], f"llama.cpp b{build} is newer than the rules known here; those of {DEFAULT_VERSION} are used"
    known = [rules for rules in RULES if rules.since <= build]
    if not known:
        return RULES[0], f"llama.cpp b{build} is older than the rules known here; those of b{RULES[0].since} are used"
    return known[-1], None


def build_of(version: str) -> int | None:
    """The number of a build; None where there is none."""
    match = _BUILD.match(version)
    return int(match[1]) if match else None
