"""Strategies that several targets share: a text or a JSON value that once was right, damaged in a few places."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

_PIECES = (
    "",
    "\n",
    "\r\n",
    " ",
    "\t",
    '"',
    "\\",
    "{",
    "}",
    ",",
    "=",
    "#",
    ":",
    "-",
    "0",
    "1e999",
    "NaN",
    "\0",
    "é",
    "\ud7ff",
    "\u2028",
)
_NUMBERS = (0, 1, -1, 2**31, 2**63, 10**30, 0.5, -0.0, 1e308)
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(_NUMBERS),
    st.integers(-10, 10_000),
    st.floats(),
    st.text(max_size=20),
    st.just([]),
    st.just({}),
)
json_values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def damaged_text(draw: st.DrawFn, originals: Sequence[str]) -> str:
    """One of the originals after up to six cuts, insertions, repetitions and swaps."""
    text = draw(st.sampled_from(originals))
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.sampled_from((0, 1, 1, 2, 5, 40, 400))))
        kind = draw(st.sampled_from(("cut", "insert", "repeat", "swap")))
        if kind == "cut":
            text = text[:start] + text[end:]
        elif kind == "insert":
            text = text[:start] + draw(st.sampled_from(_PIECES) | st.text(max_size=10)) + text[start:]
        elif kind == "repeat":
            text = text[:end] + text[start:end] * draw(st.integers(1, 3)) + text[end:]
        else:
            text = text[:start] + text[end:] + text[start:end]
    return text


@st.composite
def damaged_bytes(draw: st.DrawFn, originals: Sequence[bytes]) -> bytes:
    """The same of bytes, some of which may end up outside of any encoding."""
    data = draw(damaged_text([original.decode("latin-1") for original in originals]))
    return data.encode("latin-1", "replace")


@st.composite
def damaged_json(draw: st.DrawFn, originals: Sequence[Any]) -> Any:
    """A copy of one of the originals in which up to five values, at any depth, are another, gone, or added."""
    value = draw(st.sampled_from(originals))
    for _ in range(draw(st.integers(1, 5))):
        value = _changed(draw, value)
    return value


def _changed(draw: st.DrawFn, value: Any) -> Any:
    if not isinstance(value, dict | list) or not value or draw(st.integers(0, 9)) == 0:
        return draw(json_values)
    if isinstance(value, list):
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], _changed(draw, value[place]), *value[place + 1 :]]
    key = draw(st.sampled_from(sorted(value, key=str)))
    without = {other: kept for other, kept in value.items() if other != key}
    kind = draw(st.sampled_from(("change", "change", "change", "remove", "add")))
    if kind == "remove":
        return without
    if kind == "add":
        return {**value, draw(st.text(max_size=12)): draw(json_values)}
    return {**value, key: _changed(draw, value[key])}
