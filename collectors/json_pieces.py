"""A large JSON object in pieces, each an object with some of its entries.

A text is decoded in one go and no other thread of Python runs meanwhile: so much of it at a time as takes milliseconds.
"""

import re
from collections.abc import Iterable, Iterator

PIECE_BYTES = 1 << 16
MAX_ENTRY_BYTES = 1 << 20
_SPACES = 64

AFTER_OBJECTS = re.compile(rb'\}\s{0,64},\s{0,64}(?=")')
AFTER_TEXTS = re.compile(rb'"\s{0,64},\s{0,64}(?=")')


def pieces(chunks: Iterable[bytes], between: re.Pattern[bytes]) -> Iterator[bytes]:
    """Objects that hold together what one does whose text comes in chunks and whose entries are all of one kind.

    ``between`` finds where an entry ends and another begins. A text that looks like such a place is cut there, and what
    comes out is no JSON: it is refused, never misread.

    Raises:
        ValueError: an entry is larger than any should be.
    """
    text, searched = b"", 0
    for chunk in chunks:
        text += chunk
        place = None
        for place in between.finditer(text, searched):  # noqa: B007 the last one counts
            pass
        if place is not None:
            yield text[: place.start() + 1] + b"}"
            text = b"{" + text[place.end() :]
        elif len(text) > MAX_ENTRY_BYTES:
            raise ValueError(f"an entry of more than {MAX_ENTRY_BYTES} bytes")
        searched = max(0, len(text) - 2 * _SPACES - 2)
    yield text
