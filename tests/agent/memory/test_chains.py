"""Long sequences of a pool."""

from agent.memory.chains import Chains, chains_of


def test_the_fewest_that_hold_more_than_half_are_named() -> None:
    """6100 of 10 000 tokens are in three of ten sequences."""
    found = chains_of(mean=0.0, growth=30.0, lengths=(2500, 2000, 1600, *[557] * 7))

    assert (found.mean_tokens, found.longest_tokens, found.few) == (999.9, 2500, 3)
    assert found.few_ratio == 6100 / 9999


def test_one_that_holds_most_is_named_alone() -> None:
    found = chains_of(mean=0.0, growth=1.0, lengths=(900, 50, 50))

    assert (found.few, found.few_ratio) == (1, 0.9)


def test_of_many_alike_three_are_named() -> None:
    """Three of ten hold 30 %: no chain stands out."""
    found = chains_of(mean=0.0, growth=1.0, lengths=(10,) * 10)

    assert (found.few, found.few_ratio) == (3, 0.3)


def test_without_lengths_the_mean_is_all() -> None:
    assert chains_of(mean=5000.0, growth=20.0, lengths=None) == Chains(
        mean_tokens=5000.0, growth_tokens_per_second=20.0
    )
