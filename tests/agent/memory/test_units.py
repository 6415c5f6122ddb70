"""Bytes and counts as people write them."""

import pytest

from agent.memory.units import parse_count, shown, size_text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (500, "500 B"),
        (2048, "2.00 KiB"),
        (300 << 20, "300.00 MiB"),
        (1 << 29, "0.50 GiB"),
        (80 << 30, "80.00 GiB"),
        (1 << 41, "2,048.00 GiB"),
        (-(5 << 30), "-5.00 GiB"),
    ],
)
def test_size_text(count: int, text: str) -> None:
    """The unit follows the size."""
    assert size_text(count) == text


@pytest.mark.parametrize("text", ["", "k", "1.5", "1e3", "-1", "0x10", "٣", "1" * 19, "1kk"])
def test_no_numbers(text: str) -> None:
    """One sentence, not a guess."""
    with pytest.raises(ValueError, match=r"^expected an integer, got "):
        parse_count(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (10**30, "an integer of 100 bits"),
        ({"a": 1}, "an object"),
        ([[1]] * 9, "a list of 9 entries"),
        ("x" * 100, "'" + "x" * 60 + "'..."),
        (None, "None"),
    ],
)
def test_shown(value: object, text: str) -> None:
    """Short in a message, whatever it is."""
    assert shown(value) == text
