"""``vramscope rules``: alert and recording rules with one's own thresholds, selectors and names."""

import re
from collections.abc import Callable
from typing import TypeVar

import click
from msgspec import json

from agent.errors import InputError
from agent.kubernetes_names import like, namespace_name, object_name, once, parse_labels
from agent.rule_selector import parse_selector
from agent.rules import RUNBOOKS, THEMES, Choices, as_yaml, manifest, parse_threshold, rules, thresholds

_PREFIX = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_URL = re.compile(r"https?://[^\s/{}\ud800-\udfff][^\s{}\ud800-\udfff]*")
T = TypeVar("T")


@click.command("rules")
@click.option("--set", "given", metavar="NAME=VALUE", multiple=True, help="A threshold, such as headroom_ratio=0.05.")
@click.option("--selector", metavar="MATCHERS", default="", help="""Only series of these targets: 'job="vramscope"'.""")
@click.option("--prefix", metavar="P", default="Vramscope", show_default=True, help="Begins the name of each alert.")
@click.option("--runbook-base", metavar="URL", default=RUNBOOKS, help="Where the runbooks' pages are.")
@click.option("--prometheus-rule", metavar="NAME", help="A PrometheusRule of this name, for the Prometheus operator.")
@click.option("--namespace", metavar="NS", help="Its namespace.")
@click.option("--label", "labels", metavar="KEY=VALUE", multiple=True, help="A label of it, by which it is found.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout and nothing else.")
def rules_command(
    given: tuple[str, ...],
    selector: str,
    prefix: str,
    runbook_base: str,
    prometheus_rule: str | None,
    namespace: str | None,
    labels: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write alert and recording rules for Prometheus 2.42 and newer, vmalert, Thanos or Mimir.

    The thresholds, their defaults and reasons are in docs/runbooks/README.md, and in the JSON.

    Example: vramscope rules --set headroom_ratio=0.05 --selector 'job="vramscope"' > vramscope-rules.yml
    """
    set_here = once("--set", (_one_sentence("--set", parse_threshold, text) for text in given))
    choices = Choices(
        thresholds=set_here,
        selector=_one_sentence("--selector", parse_selector, selector),
        prefix=prefix and like(_PREFIX, "--prefix", prefix, "letters, digits and _, such as Vramscope"),
        runbook_base=like(_URL, "--runbook-base", runbook_base, "a URL such as https://wiki.example/runbooks"),
    )
    groups = [group for theme in THEMES for group in rules(theme, choices)]
    document: dict[str, object] = {"groups": groups}
    if prometheus_rule is not None:
        document = manifest(
            groups,
            name=object_name("--prometheus-rule", prometheus_rule),
            namespace=namespace_name(namespace),
            labels=parse_labels(labels),
        )
    elif namespace is not None or labels:
        raise InputError("--namespace and --label belong to a PrometheusRule; give --prometheus-rule NAME too")
    if not as_json:
        click.echo(as_yaml(document), nl=False)
        return
    if prometheus_rule is None:
        values = {name: set_here.get(name, one.value) for name, one in thresholds().items()}
        document = {"schema": "vramscope.rules/1", "thresholds": values, **document}
    click.echo(json.encode(document))


def _one_sentence(option: str, parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise InputError(f"{option}: {error}") from error
