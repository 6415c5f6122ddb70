"""Metrics pages: no page does anything but give facts or one error; what is read is what the library reads."""

import contextlib
import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from collectors.errors import CollectorError, Unreadable
from collectors.exposition import Wanted
from collectors.vllm.page import FULL_NAMES, parse_page
from collectors.vllm.pools import arguments_of, notes_of, pools_of
from tests.fuzz.exposition import PAGES, damaged_lines, damaged_pages, grammatical_pages, random_pages
from tests.fuzz.trying import tried

WANTED = Wanted(FULL_NAMES)
Plain = tuple[str, dict[str, str], float]


def ours(text: str) -> list[Plain] | None:
    """What the line reader makes of a page, None when it refuses it."""
    try:
        found = WANTED.samples(text, source="page")
    except Unreadable:
        return None
    return [(sample.name, sample.labels, sample.value) for sample in found]


def theirs(text: str) -> list[Plain] | None:
    """What the library makes of those lines of the page that start with a wanted name."""
    kept = [
        line
        for line in text.split("\n")
        if line.startswith(tuple(f"{name}{end}" for name in FULL_NAMES for end in "{ "))
    ]
    try:
        families = list(text_string_to_metric_families("\n".join(kept)))
        return [(s.name, s.labels, _number(s.value)) for family in families for s in family.samples]
    except Exception:
        return None


def _number(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def same(first: list[Plain] | None, second: list[Plain] | None) -> bool:
    return repr(first) == repr(second)


@pytest.mark.parametrize("number", range(len(PAGES)))
def test_every_page_of_the_fixtures_is_read_as_the_library_reads_it(number: int) -> None:
    """Recorded and reconstructed ones, before anything is done to them."""
    found = ours(PAGES[number])

    assert found is not None
    assert same(found, theirs(PAGES[number]))


@tried(grammatical_pages, briefly=100, at_length=2000)
def test_grammatical_pages_are_read_as_the_library_reads_them(text: str) -> None:
    """Every spacing, escape, timestamp, exemplar and number that the formats allow."""
    found = ours(text)

    assert found is not None
    assert same(found, theirs(text))


@tried(damaged_lines | damaged_pages | random_pages, briefly=100)
def test_what_is_read_of_a_damaged_page_is_what_the_library_reads(text: str) -> None:
    """It may be refused where the library is lenient (it says so of itself), but never read as something else."""
    found = ours(text)

    assert found is None or same(found, theirs(text))


@tried(damaged_pages | damaged_lines | random_pages | grammatical_pages, briefly=100)
def test_facts_of_any_page_are_possible_ones(text: str) -> None:
    """Facts or one error of one line; never more used than there is, never a count below zero."""
    with contextlib.suppress(CollectorError):
        page = parse_page(text, source="page")
        arguments_of(page)
        for pool in pools_of(page):
            assert pool.used_ratio is None or 0 <= pool.used_ratio <= 1
            assert pool.used_blocks is None or 0 <= pool.used_blocks <= (pool.blocks or 0)
            assert (pool.used_tokens or 0) + (pool.available_tokens or 0) <= (pool.capacity_tokens or 0)
        assert not page.replicas or all("\n" not in note for note in notes_of(page))
