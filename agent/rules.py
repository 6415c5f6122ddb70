"""Recording and alerting rules for Prometheus, made from the sources in ``alerts/source``.

A source is a rule file in which ``@name@`` stands for a threshold, ``{@selector@}`` for the label matchers of every
selector, and alerts have neither prefix nor runbook address. Sources are parsed as YAML first and filled in then, so
nothing that is set can change their structure.
"""

import difflib
import functools
import importlib.resources
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from agent.memory.units import shown

RUNBOOKS = "https://github.com/vramscope/vramscope/blob/main/docs/runbooks"
THEMES = ("kv_pool", "device_memory", "budget", "processes", "failures", "hardware", "agent", "fleet")
"""The files, in the order in which one that holds all of them has their groups."""
MAX_VALUE = 1e300
"""Beyond that an expression has no such number."""
Group = dict[str, Any]


class Threshold(Struct, frozen=True, kw_only=True):
    """A number that rules compare with, its default and the reason for it."""

    name: str
    value: float
    why: str


class Choices(Struct, frozen=True, kw_only=True):
    """What can be set; ``selector`` as ``parse_selector`` gives it, ``thresholds`` only those that differ."""

    thresholds: Mapping[str, float] = {}
    selector: str = ""
    prefix: str = "Vramscope"
    runbook_base: str = RUNBOOKS


def thresholds() -> dict[str, Threshold]:
    """All thresholds by name, with their defaults."""
    document = _source("thresholds")
    return {name: Threshold(name=name, value=entry["value"], why=entry["why"]) for name, entry in document.items()}


def parse_threshold(text: str) -> tuple[str, float]:
    """``NAME=VALUE`` as a threshold.

    Raises:
        ValueError: no such threshold, or a value that it can't have.
    """
    name, equals, value = text.partition("=")
    known = thresholds()
    if not equals:
        raise ValueError(f"expected NAME=VALUE, got {shown(text)}")
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(known)}"
        raise ValueError(f"no threshold is called {shown(name)}; {hint}")
    whole = name.endswith(("_bytes", "_seconds", "_level"))
    most = 1 if name.endswith("_ratio") else math.inf
    try:
        number = int(value) if whole else float(value)
    except ValueError:
        number = math.nan
    if not (0 <= number <= most and number < MAX_VALUE):
        expected = "a number from 0 to 1" if most == 1 else f"{'a whole number' if whole else 'a number'}, 0 or more"
        raise ValueError(f"{name}: expected {expected}, got {shown(value)}")
    return name, number


def rules(theme: str, choices: Choices) -> list[Group]:
    """The groups of one file, ready for Prometheus 2.42 and newer."""
    source = _source(theme)
    numbers = {name: threshold.value for name, threshold in thresholds().items()} | dict(choices.thresholds)
    values = {"selector": choices.selector, **{name: _number(value) for name, value in numbers.items()}}
    values |= source.get("texts", {})
    groups = _filled(source["groups"], values)
    return [{**group, "rules": [_named(rule, choices) for rule in group["rules"]]} for group in groups]


def manifest(groups: list[Group], *, name: str, namespace: str | None, labels: Mapping[str, str]) -> dict[str, Any]:
    """The groups as a PrometheusRule of the Prometheus operator."""
    metadata = {"name": name, "namespace": namespace, "labels": dict(labels)}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {key: value for key, value in metadata.items() if value},
        "spec": {"groups": groups},
    }


def as_yaml(document: object) -> str:
    """YAML as people read it: keys in their order, expressions line by line."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=116)


def page_of(alert: str) -> str:
    """The name of an alert's page in the runbooks; ``alert`` without its prefix."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", alert).lower() + ".md"


def _named(rule: dict[str, Any], choices: Choices) -> dict[str, Any]:
    if "alert" not in rule:
        return rule
    page = f"{choices.runbook_base.rstrip('/')}/{page_of(rule['alert'])}"
    return rule | {
        "alert": choices.prefix + rule["alert"],
        "annotations": rule["annotations"] | {"runbook_url": page},
    }


def _filled(value: Any, values: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(inner, values) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, values) for inner in value]
    if not isinstance(value, str):
        return value
    text = value.rstrip("\n")
    if not values["selector"]:
        text = text.replace("{@selector@}", "").replace(", @selector@", "")
    return re.sub(r"@(\w+)@", lambda found: values[found[1]], text)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


@functools.cache
def _source(name: str) -> Any:
    packaged = importlib.resources.files("agent") / "data" / "alerts"
    folder = packaged if packaged.is_dir() else Path(__file__).parent.parent / "alerts"
    return yaml.safe_load((folder / "source" / f"{name}.yml").read_text(encoding="utf-8"))


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        """Everything is written out where it stands."""
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)
