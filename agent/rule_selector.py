"""Label matchers of PromQL, as ``vramscope rules --selector`` takes them."""

import json
import re
from typing import NamedTuple

from agent.memory.units import shown
from agent.metrics import CATALOGUE

_OURS = frozenset(label for metric in CATALOGUE for label in metric.labels) - {"container", "namespace", "pod"}
"""Labels that only some of our series have; the three left out are usual labels of targets too."""
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<name>[a-zA-Z_][a-zA-Z0-9_]*)
      | (?P<operator>=~|!~|!=|=)
      | (?P<quoted>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`[^`]*`)
      | (?P<comma>,)
    )\s*""",
    re.VERBOSE,
)
_PLAIN = re.compile(r"\\[^1-9ZuUN]|\[\^?\]?(?:\\.|[^\]\\])*\]")
_NOT_RE2 = re.compile(r"\\[1-9ZuUN]|\(\?(?:[=!>(#]|<[=!]|P=|[a-zA-Z]*[aLux][a-zA-Z]*[:)-])|[*+?}]\+")
"""What Python reads and RE2 refuses, beside escapes and classes: https://github.com/google/re2/wiki/Syntax."""
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'"}


class Matcher(NamedTuple):
    """One matcher; ``value`` is the text itself, without quotes and escapes."""

    name: str
    operator: str
    value: str

    def __str__(self) -> str:
        return f"{self.name}{self.operator}{json.dumps(self.value, ensure_ascii=False)}"


def parse_selector(text: str) -> str:
    """The matchers of ``text`` in one form, without braces; empty when there are none.

    Raises:
        ValueError: it is no list of matchers, or one that would leave out series of the agent.
    """
    if not text.isprintable():
        raise _not_a_selector(text)
    tokens = _tokens(text.strip().removeprefix("{").removesuffix("}"))
    matchers = []
    while tokens:
        kinds = tuple(kind for kind, _ in tokens[:3])
        if kinds != ("name", "operator", "quoted") or (len(tokens) > 3 and tokens[3][0] != "comma"):
            raise _not_a_selector(text)
        (_, name), (_, operator), (_, quoted), *rest = tokens
        matchers.append(_matcher(name, operator, quoted))
        tokens = rest[1:]
    return ", ".join(map(str, matchers))


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens = []
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            if not text[position:].strip():
                break
            raise _not_a_selector(text)
        tokens.append((found.lastgroup or "", found[found.lastgroup or 0]))
        position = found.end()
    return tokens


def _matcher(name: str, operator: str, quoted: str) -> Matcher:
    if name == "__name__" or name in _OURS:
        raise ValueError(f"{name} is a label that not every series of the agent has; select by job or instance")
    value = quoted[1:-1] if quoted[0] == "`" else _unescaped(quoted[1:-1])
    if operator in ("=~", "!~"):
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"{shown(value)} is not a regular expression: {error}") from error
        if _NOT_RE2.search(_PLAIN.sub(".", value)):
            raise ValueError(f"{shown(value)} has what regular expressions of Prometheus (RE2) lack")
    return Matcher(name, operator, value)


def _unescaped(text: str) -> str:
    def replaced(found: re.Match[str]) -> str:
        if len(found[1]) == 5 and not "\ud800" <= chr(int(found[1][1:], 16)) <= "\udfff":
            return chr(int(found[1][1:], 16))
        if found[1] not in _ESCAPES:
            raise ValueError(f"{found[0]} is not an escape; write a backslash as \\\\")
        return _ESCAPES[found[1]]

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", replaced, text)


def _not_a_selector(text: str) -> ValueError:
    return ValueError(f"""expected label matchers such as job="vramscope",instance=~"gpu.+", got {shown(text)}""")
