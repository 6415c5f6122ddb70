"""What grafana-dashboard-builder's YAML may hold beside its own components, and a loader that takes text as it stands.

The tool takes every brace for a placeholder and runs Python tags found in its input; here text with braces is no text
to it, and the loader is a safe one. Panels, variables, annotations and links of any type pass through as Grafana writes
them; a panel can name styles, which are what it says beside its own keys.
"""

import re
from collections.abc import Mapping
from typing import Any

import yaml
from grafana_dashboards.components.annotations import AnnotationsItemBase
from grafana_dashboards.components.base import ComponentBase, ComponentRegistry
from grafana_dashboards.components.links import LinksItemBase
from grafana_dashboards.components.panels import PanelsItemBase
from grafana_dashboards.components.templates import TemplatesItemBase


class Literal:
    """Text that is no ``str``, so that the tool's placeholder engine leaves PromQL and legends alone."""

    def __init__(self, text: str) -> None:
        self.text = text

    def filled(self, selectors: Mapping[str, str]) -> str:
        """The text, with the label matchers that ``{@name@`` stands for.

        Raises:
            KeyError: no selector has that name.
        """
        return re.sub(r"(?<=\{)@(\w+)@", lambda found: selectors[found[1]], self.text)


class Loader(yaml.SafeLoader):
    """A safe loader that gives text with braces as a ``Literal``."""

    def text(self, node: yaml.ScalarNode) -> "str | Literal":
        value = str(self.construct_scalar(node))
        return Literal(value) if "{" in value or "}" in value else value


Loader.add_constructor("tag:yaml.org,2002:str", Loader.text)


class Style(ComponentBase):  # type: ignore[misc]  # the tool has no types
    """YAML key ``style``: what panels of one look have in common."""


class Selectors(ComponentBase):  # type: ignore[misc]  # the tool has no types
    """YAML key ``selectors``: label matchers by name, written ``{@name@}`` in queries."""


class Panel(PanelsItemBase):  # type: ignore[misc]  # the tool has no types
    """YAML key ``panel``: a panel of any type, as Grafana writes it, with ``styles``, the later ones winning.

    ``span`` and ``height`` are in grid cells; ``target`` holds what all ``targets`` say, ``runbooks`` the alerts whose
    pages are linked.
    """

    def gen_json_from_data(self, data: dict[str, Any], context: object) -> dict[str, Any]:
        panel: dict[str, Any] = {}
        for name in data.get("styles", ()):
            panel = merged(panel, self.registry.get_component(Style, name).data)
        return merged(panel, {key: value for key, value in data.items() if key != "styles"})


class Variable(TemplatesItemBase):  # type: ignore[misc]  # the tool has no types
    """YAML key ``variable``: a template variable of any type, as Grafana writes it."""

    def gen_json_from_data(self, data: dict[str, Any], context: object) -> dict[str, Any]:
        return data


class Event(AnnotationsItemBase):  # type: ignore[misc]  # the tool has no types
    """YAML key ``event``: an annotation, as Grafana writes it."""

    def gen_json_from_data(self, data: dict[str, Any], context: object) -> dict[str, Any]:
        return data


class Link(LinksItemBase):  # type: ignore[misc]  # the tool has no types
    """YAML key ``link``: a link of a dashboard, as Grafana writes it."""

    def gen_json_from_data(self, data: dict[str, Any], context: object) -> dict[str, Any]:
        return data


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Both, key by key: the second wins; overrides of fields add up, as later ones win there too."""
    result = dict(below)
    for key, value in above.items():
        known = result.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            result[key] = merged(known, value)
        elif key == "overrides" and known:
            result[key] = [*known, *value]
        else:
            result[key] = value
    return result


def selectors(registry: ComponentRegistry) -> dict[str, str]:
    """All matchers by name."""
    return {name: text for component in registry[Selectors] for name, text in component.data.items()}
