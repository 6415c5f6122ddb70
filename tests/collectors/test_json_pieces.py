"""Large JSON objects in pieces: all entries come out once, or the text is refused."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.json_pieces import AFTER_OBJECTS, AFTER_TEXTS, MAX_ENTRY_BYTES, pieces

texts = st.text(max_size=6) | st.sampled_from(('},"', "},", ",", '","', '"', "\\", '}, "'))
objects = st.dictionaries(texts, st.fixed_dictionaries({"a": texts, "b": st.lists(st.integers(), max_size=2)}))


@settings(deadline=None, derandomize=True)
@given(
    (objects.map(lambda whole: (whole, AFTER_OBJECTS))) | st.dictionaries(texts, texts).map(lambda w: (w, AFTER_TEXTS)),
    st.integers(1, 40),
    st.sampled_from((None, 1)),
)
def test_all_entries_come_out_or_it_is_refused(
    case: tuple[dict[str, object], re.Pattern[bytes]], size: int, indent: int | None
) -> None:
    """However it is cut into chunks, with names that look like what stands between entries."""
    whole, between = case
    text = json.dumps(whole, indent=indent).encode()
    found: dict[str, object] = {}

    try:
        for piece in pieces([text[start : start + size] for start in range(0, len(text), size)], between):
            found |= json.loads(piece)
    except json.JSONDecodeError:
        assert any(mark in repr(whole) for mark in ("}", ","))
        return

    assert found == whole


def test_a_piece_is_no_longer_than_chunk_and_entry() -> None:
    """What has been given out is not kept."""
    text = json.dumps({f"w{number}": {"a": number} for number in range(1000)}).encode()

    lengths = [
        len(piece) for piece in pieces([text[start : start + 100] for start in range(0, 20_000, 100)], AFTER_OBJECTS)
    ]

    assert max(lengths) < 150


def test_an_entry_without_end() -> None:
    """It is not collected for ever."""
    with pytest.raises(ValueError, match=f"^an entry of more than {MAX_ENTRY_BYTES} bytes$"):
        list(pieces([b'{"a": {"b": [', *[b"1," * 50_000] * 100], AFTER_OBJECTS))
