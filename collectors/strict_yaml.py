"""YAML as people write it by hand: the safe loader, with a key that stands twice refused, and one-line problems."""

from collections.abc import Hashable
from typing import Any

import yaml


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
        raise ValueError(f"{place}{error.problem}") from error
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error
    except (ValueError, AttributeError, LookupError, TypeError, ArithmeticError) as error:  # PyYAML leaves these as is
        raise ValueError("a value is not what its tag or form says, such as a date that is none") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    problem = f"key {key.value!r} stands twice; keep one"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)
