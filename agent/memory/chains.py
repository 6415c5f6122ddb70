"""How long the running sequences of a pool are, and how much of it the longest hold."""

from collections.abc import Sequence

from msgspec import Struct

MOST_LONGEST = 3


class Chains(Struct, frozen=True, kw_only=True):
    """Tokens of the running sequences. ``growth``: mean tokens per second that each gains.

    ``longest`` and what follows are known where the engine tells lengths: ``few`` sequences together hold ``few_ratio``
    of what all hold.
    """

    mean_tokens: float
    growth_tokens_per_second: float
    longest_tokens: int | None = None
    few: int | None = None
    few_ratio: float | None = None


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
