"""How long the running sequences of a pool are, and how much of it the longest hold."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

MOST_LONGEST = 3


class Chains(Struct, frozen=True, kw_only=True):
    """Tokens of the running sequences. ``growth``: mean tokens per second that each gains.

    ``longest`` and what follows are known where the engine tells lengths: ``few`` sequences together hold ``few_ratio``
    of what all hold.

    ``long_ratio``: at least so much of what running requests have added to the pool is in ones that are longer than
    ``short_tokens``, within which nine in ten that ended had stayed. None where the engine does not tell.
    """

    mean_tokens: float
    growth_tokens_per_second: float
    longest_tokens: int | None = None
    few: int | None = None
    few_ratio: float | None = None
    short_tokens: int | None = None
    long_ratio: float | None = None


def with_long(chains: Chains, *, age: float, short: float | None) -> Chains:
    """With the share that short requests can't hold: R of them hold at most R x short of R x age generated tokens."""
    if short is None or age <= 0:
        return chains
    return replace(chains, short_tokens=round(short), long_ratio=max(0.0, 1 - short / age))


def chains_of(*, mean: float, growth: float, lengths: Sequence[int] | None) -> Chains:
    """The mean and, by lengths, the fewest of at most three that hold more than half, else what three hold."""
    if not lengths or not sum(lengths):
        return Chains(mean_tokens=mean, growth_tokens_per_second=growth)
    ordered, total = sorted(lengths, reverse=True), sum(lengths)
    held, few = 0, 0
    for length in ordered[:MOST_LONGEST]:
        held, few = held + length, few + 1
        if 2 * held > total:
            break
    return Chains(
        mean_tokens=total / len(lengths),
        growth_tokens_per_second=growth,
        longest_tokens=ordered[0],
        few=few,
        few_ratio=held / total,
    )
