"""Long sequences of a pool."""

from agent.memory.chains import Chains, chains_of, with_long
from agent.memory.lengths import Lengths


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


def test_growth_that_short_requests_do_not_explain() -> None:
    """Ten requests have generated 2000 tokens each in the mean; ten short ones hold 10 x 500 at most, a quarter."""
    chains = Chains(mean_tokens=5000.0, growth_tokens_per_second=20.0)

    assert with_long(chains, age=2000.0, short=500.0).long_ratio == 0.75
    assert with_long(chains, age=400.0, short=500.0).long_ratio == 0.0
    assert with_long(chains, age=2000.0, short=None) == chains
    assert with_long(chains, age=0.0, short=500.0) == chains


def test_the_bound_holds_however_the_growth_is_spread() -> None:
    """Three chains of 20 000 tokens and seventeen of 200: they hold 95 %; at least 84 % is said."""
    ages = [20_000] * 3 + [200] * 17
    found = with_long(Chains(mean_tokens=0.0, growth_tokens_per_second=0.0), age=sum(ages) / 20, short=512.0)

    assert found.long_ratio is not None
    assert 0.83 < found.long_ratio < sum(age for age in ages if age > 512) / sum(ages)


def test_what_is_short_is_learnt_from_those_that_ended() -> None:
    """Nineteen of twenty ended within 300 tokens; of fewer than twenty nothing is said."""
    lengths = Lengths()
    for number in range(20):
        assert lengths.short is None
        lengths.add(0.0, requests=1, tokens=250 if number else 9000)

    assert lengths.short is not None
    assert 250 < lengths.short < 400
