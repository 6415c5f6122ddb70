"""YAML as people write it by hand: the safe loader, and one line for each problem.

Keys are text and stand once, text is text that can be written out, and aliases do not multiply what was written.
"""

import yaml

MAX_CHARACTERS = 4 << 20
"""Of all values, each counted as often as it is referred to."""
_KEY_TAGS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge")


def load(text: str | bytes) -> object:
    """The document, None when there is nothing in it.

    Raises:
        ValueError: it is not YAML; the text starts with the line where it stops being so, when that is known.
    """
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a stricter safe loader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ValueError(f"{place}{str(error.problem)[:200]}") from error
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error
    except (ValueError, AttributeError, LookupError, TypeError, ArithmeticError) as error:  # PyYAML leaves these as is
        raise ValueError("a value is not what its tag or form says, such as a date that is none") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


class _Loader(yaml.SafeLoader):
    def __init__(self, stream: str | bytes) -> None:
        super().__init__(stream)
        self._characters = 0
        self._sizes: dict[int, int] = {}  # of the nodes that are complete, by id

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Count what a node and all below it stand for, once more for each alias."""
        is_alias = self.check_event(yaml.AliasEvent)
        before = self._characters
        node = super().compose_node(parent, index)
        if node is None:
            return None
        if not is_alias:
            _check(node)
            self._characters += 1 + (len(node.value) if isinstance(node, yaml.ScalarNode) else 0)
            self._sizes[id(node)] = self._characters - before
        elif id(node) in self._sizes:
            self._characters += self._sizes[id(node)]
        else:
            raise _problem("an alias stands inside what it names", node)
        if self._characters > MAX_CHARACTERS:
            raise _problem(f"its aliases stand for more than {MAX_CHARACTERS} characters", node)
        return node


def _check(node: yaml.Node) -> None:
    if isinstance(node, yaml.ScalarNode) and any("\ud800" <= char <= "\udfff" for char in node.value):
        raise _problem("half of a surrogate pair, which is no character", node)
    seen = set()
    for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
        if not isinstance(key, yaml.ScalarNode) or key.tag not in _KEY_TAGS:
            raise _problem("a key that is not text; put it in quotes", key)
        if key.value in seen:
            raise _problem(f"key {key.value[:60]!r} stands twice; keep one", key)
        seen.add(key.value)


def _problem(text: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=text, problem_mark=node.start_mark)
