"""Which modules a quantised checkpoint leaves in 16 bit, from the names and patterns its config lists.

Three dialects mean the same: parts of a dotted name (``mlp.gate``), wildcards (``model.layers.*.self_attn``), and
simple regular expressions (``re:.*mlp\\.(gate|up)_proj.*``). Whatever is before ``layers`` in a name doesn't count.
"""

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import product

from msgspec import Struct

_MAX_PATTERNS = 256
_MAX_CHOICES = 64
_LISTS = ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules", "llm_int8_skip_modules")
_SAME = {"block_sparse_moe": "mlp", "feed_forward": "mlp", "ffn": "mlp", "attn": "self_attn", "mixer": "self_attn"}
_GROUP = re.compile(r"\(\??:?([^()]*)\)")
_NUMBERED = re.compile(r"(?:^|\.)\d")
_ODD = re.compile(r"[\[\]{}()+\\?|^$]")


class PlainModules(Struct, frozen=True, kw_only=True):
    """Modules by name and by wildcard; ``odd``: patterns of a kind that is not understood.

    ``by_layer``: some name a layer by its number, so layers may differ.
    """

    names: frozenset[str] = frozenset()
    wildcards: tuple[str, ...] = ()
    odd: tuple[str, ...] = ()
    by_layer: bool = False

    def has(self, module: str) -> bool:
        """Whether a module such as ``layers.3.self_attn.q_proj`` is one of them, or in one of them."""
        parts = module.split(".")
        ends = range(1, len(parts) + 1)
        return any(".".join(parts[begin:end]) in self.names for end in ends for begin in range(end)) or any(
            fnmatchcase(module, wildcard) for wildcard in self.wildcards
        )


def plain_modules(config: dict[str, object]) -> PlainModules:
    """All that a ``quantization_config`` lists; entries of another type than text don't count."""
    listed = [config[key] for key in _LISTS if isinstance(config.get(key), list)]
    texts = {text[:300] for entries in listed if isinstance(entries, list) for text in entries if isinstance(text, str)}
    names: set[str] = set()
    wildcards: set[str] = set()
    odd: set[str] = set()
    for text in texts:
        for pattern in _wildcards(text):
            kind = odd if _ODD.search(pattern) else wildcards if "*" in pattern else names
            kind.add(text if kind is odd else _canonical(pattern))
    kept = sorted(wildcards)
    return PlainModules(
        names=frozenset(names - {""}),
        wildcards=tuple(kept[:_MAX_PATTERNS]),
        odd=tuple(sorted({*odd, *kept[_MAX_PATTERNS:]})),
        by_layer=any(_NUMBERED.search(name) for name in (*names, *kept)),
    )


def _wildcards(text: str) -> Iterator[str]:
    """The pattern as wildcards; a regular expression with alternatives becomes several."""
    if not text.startswith("re:"):
        yield text
        return
    pieces = _GROUP.split(text[3:].lstrip("^").rstrip("$"))
    choices = [piece.split("|") if index % 2 else [piece] for index, piece in enumerate(pieces)]
    total = 1
    for choice in choices:
        total *= len(choice)
    combinations: Iterable[tuple[str, ...]] = product(*choices) if total <= _MAX_CHOICES else [("(",)]
    for combination in combinations:
        yield "".join(combination).replace(".*", "*").replace("\\.", ".")


def _canonical(pattern: str) -> str:
    """From ``layers`` on, with one name for each part of a layer; a wildcard also means all inside of it."""
    parts = [_SAME.get(part, part) for part in pattern.strip(".").split(".")]
    if "layers" in parts:
        parts = parts[parts.index("layers") :]
    name = ".".join(parts)
    return f"{name.rstrip('*')}*" if "*" in name else name
