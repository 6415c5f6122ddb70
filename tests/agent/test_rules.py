"""``vramscope rules``: what is set gets into every rule, and nothing that is set breaks one."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from agent.cli import run
from agent.rule_selector import Matcher, parse_selector
from agent.rules import THEMES, Choices, rules, thresholds
from tests.promtool import promtool

SOURCES = sorted((Path(__file__).parents[2] / "alerts" / "source").glob("*.yml"))


def _written(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert run(["rules", *options]) == 0
    return capsys.readouterr().out


def _alert(document: Any, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(
        rule for group in document["groups"] for rule in group["rules"] if rule.get("alert") == name
    )
    return found


def _checked(text: str, folder: Path) -> None:
    path = folder / "rules.yml"
    path.write_text(text, encoding="utf-8")
    promtool("check", "rules", "--lint=all", "--lint-fatal", path)


def test_without_options_it_is_what_the_files_hold(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """All groups of all files in one, and Prometheus takes it."""
    text = _written(capsys)

    assert yaml.safe_load(text)["groups"] == [group for theme in THEMES for group in rules(theme, Choices())]
    _checked(text, tmp_path)


def test_a_threshold_is_set_in_expression_and_description(capsys: pytest.CaptureFixture[str]) -> None:
    """The number stands in the text as well, so that both say the same."""
    document = yaml.safe_load(_written(capsys, "--set", "headroom_ratio=0.05", "--set", "foreign_bytes=1073741824"))

    low = _alert(document, "VramscopeHeadroomLow")
    assert low["expr"] == "vramscope_headroom_ratio < 0.05"
    assert "{{ 0.05 | humanizePercentage }}" in low["annotations"]["description"]
    assert "> 1073741824" in _alert(document, "VramscopeForeignProcess")["expr"]


def test_a_hold_is_set_in_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    """How long an alert goes on is a threshold like others."""
    document = yaml.safe_load(_written(capsys, "--set", "pool_hold_seconds=60"))

    assert _alert(document, "VramscopeKvPoolFilling")["keep_firing_for"] == "60s"


@pytest.mark.parametrize("source", SOURCES, ids=[path.stem for path in SOURCES])
def test_every_selector_of_a_source_has_a_place_for_the_matchers(source: Path) -> None:
    """Each metric of an expression is followed by braces that end in the placeholder."""
    document = yaml.safe_load(source.read_text(encoding="utf-8"))
    for rule in (rule for group in document.get("groups", ()) for rule in group["rules"]):
        unquoted = re.sub(r'"[^"]*"', '""', rule["expr"])
        metrics = re.findall(r"[\w:]*\bvramscope_\w[\w:]*|\bup\b", unquoted)
        placed = re.findall(r"(?:[\w:]*\bvramscope_\w[\w:]*|\bup\b)\{(?:[^{}]+, )?@selector@\}", unquoted)
        assert metrics
        assert len(metrics) == len(placed), rule["expr"]


def test_every_threshold_is_used_and_has_a_reason() -> None:
    """None is left over from a rule that is gone."""
    text = "".join(path.read_text(encoding="utf-8") for path in SOURCES)

    for name, threshold in thresholds().items():
        assert f"@{name}@" in text
        assert len(threshold.why) > 20


@pytest.mark.parametrize(
    "selector",
    [
        'job="vramscope"',
        '{job="vramscope", instance=~"gpu-.+:10175"}',
        "job!='x', namespace!~\"a|b\"",
        "job=`a\\d`",
        r'job="a\"} or vector(1) #"',
        r'job="@headroom_ratio@: {{ $value }} \\ é"',
    ],
)
def test_matchers_stay_matchers(selector: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Whatever their values are, every rule is still a rule and the YAML has the same shape."""
    text = _written(capsys, "--selector", selector)

    _checked(text, tmp_path)
    with_it, without = yaml.safe_load(text), yaml.safe_load(_written(capsys))
    assert [group["name"] for group in with_it["groups"]] == [group["name"] for group in without["groups"]]
    expression = _alert(with_it, "VramscopeHeadroomLow")["expr"]
    assert expression == f"vramscope_headroom_ratio{{{parse_selector(selector)}}} < 0.1"


@given(st.lists(st.tuples(st.sampled_from(["=", "!="]), st.text()), max_size=3))
def test_a_selector_written_out_is_the_same_selector(given_matchers: list[tuple[str, str]]) -> None:
    """Any text as a value: quoted as it is written out, it is read back as that text."""
    text = ", ".join(str(Matcher("job", operator, value)) for operator, value in given_matchers)
    if not text.isprintable():
        return

    assert parse_selector(text) == text


def test_only_selected_targets_alert(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Of two jobs with the same figures one alerts, under its own prefix."""
    (tmp_path / "rules.yml").write_text(
        _written(capsys, "--selector", 'job="ours"', "--prefix", "Team", "--runbook-base", "https://wiki.example/gpu/"),
        encoding="utf-8",
    )
    series = 'vramscope_device_lost{{job="{}",instance="n",gpu="0"}}'
    case = {
        "interval": "1m",
        "input_series": [{"series": series.format(job), "values": "1x10"} for job in ("ours", "theirs")],
        "alert_rule_test": [
            {
                "alertname": "TeamDeviceLost",
                "eval_time": "5m",
                "exp_alerts": [
                    {
                        "exp_labels": {"severity": "critical", "job": "ours", "instance": "n", "gpu": "0"},
                        "exp_annotations": {
                            "summary": "A GPU is gone.",
                            "description": _lost_description("n", "0"),
                            "runbook_url": "https://wiki.example/gpu/device-lost.md",
                        },
                    }
                ],
            }
        ],
    }
    test = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [case]}
    (tmp_path / "test.yml").write_text(yaml.safe_dump(test), encoding="utf-8")

    promtool("test", "rules", tmp_path / "test.yml")


def _lost_description(instance: str, gpu: str) -> str:
    [rule] = [rule for rule in rules("hardware", Choices())[0]["rules"] if rule["alert"] == "VramscopeDeviceLost"]
    text: str = rule["annotations"]["description"]
    return text.replace("{{ $labels.gpu }}", gpu).replace("{{ $labels.instance }}", instance)


def test_a_manifest_for_the_operator(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A PrometheusRule with the same groups, name, namespace and labels; as JSON too, which Kubernetes takes."""
    options = (
        "--prometheus-rule",
        "vramscope",
        "--namespace",
        "monitoring",
        "--label",
        "release=kube-prometheus-stack",
    )
    text = _written(capsys, *options)
    document = yaml.safe_load(text)

    assert (document["apiVersion"], document["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert document["metadata"] == {
        "name": "vramscope",
        "namespace": "monitoring",
        "labels": {"release": "kube-prometheus-stack"},
    }
    assert document["spec"] == yaml.safe_load(_written(capsys))
    assert set().union(*(group.keys() for group in document["spec"]["groups"])) == {"name", "interval", "rules"}
    fields = {"alert", "record", "expr", "for", "keep_firing_for", "labels", "annotations"}
    assert set().union(*(rule.keys() for group in document["spec"]["groups"] for rule in group["rules"])) == fields
    _checked(yaml.safe_dump(document["spec"]), tmp_path)
    assert json.loads(_written(capsys, *options, "--json")) == document


def test_json_has_the_thresholds_in_force(capsys: pytest.CaptureFixture[str]) -> None:
    """One document with its schema, every threshold, and the groups."""
    document = json.loads(_written(capsys, "--json", "--set", "headroom_ratio=0.05"))

    assert document["schema"] == "vramscope.rules/1"
    assert document["thresholds"].keys() == thresholds().keys()
    assert document["thresholds"]["headroom_ratio"] == 0.05
    assert _alert(document, "VramscopeHeadroomLow")["expr"] == "vramscope_headroom_ratio < 0.05"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--set", "headroom_ratio"), "--set: expected NAME=VALUE, got 'headroom_ratio'"),
        (
            ("--set", "headroom_ratio=0.1", "--set", "headroom_ratio=0.2"),
            "--set: 'headroom_ratio' is given twice; keep one",
        ),
        (
            ("--prometheus-rule", "x", "--label", "a=b", "--label", "a=c"),
            "--label: 'a' is given twice; keep one",
        ),
        (("--set", "headroom=0.1"), "--set: no threshold is called 'headroom'; did you mean headroom_ratio?"),
        (("--set", "headroom_ratio=5%"), "--set: headroom_ratio: expected a number from 0 to 1, got '5%'"),
        (("--set", "headroom_ratio=1.5"), "--set: headroom_ratio: expected a number from 0 to 1, got '1.5'"),
        (("--set", "headroom_ratio=nan"), "--set: headroom_ratio: expected a number from 0 to 1, got 'nan'"),
        (("--set", "foreign_bytes=1.5"), "--set: foreign_bytes: expected a whole number, 0 or more, got '1.5'"),
        (("--set", "pool_projection=-1"), "--set: pool_projection: expected a number, 0 or more, got '-1'"),
        (("--selector", "job"), "--selector: expected label matchers such as "),
        (("--selector", 'job="a" instance="b"'), "--selector: expected label matchers such as "),
        (("--selector", 'job="a'), "--selector: expected label matchers such as "),
        (("--selector", 'job="a"} or up{job="b"'), "--selector: expected label matchers such as "),
        (("--selector", 'job="a\n"'), "--selector: expected label matchers such as "),
        (("--selector", r'job="a\d"'), r"--selector: \d is not an escape; write a backslash as \\"),
        (("--selector", 'job=~"("'), "--selector: '(' is not a regular expression: "),
        (("--selector", 'gpu="0"'), "--selector: gpu is a label that not every series of the agent has; select by "),
        (("--selector", '__name__="up"'), "--selector: __name__ is a label that not every series of the agent has"),
        (("--prefix", "My-"), "--prefix: expected letters, digits and _, such as Vramscope, got 'My-'"),
        (
            ("--runbook-base", "wiki"),
            "--runbook-base: expected a URL such as https://wiki.example/runbooks, got 'wiki'",
        ),
        (("--runbook-base", "https://w/{{ x"), "--runbook-base: expected a URL such as "),
        (("--prometheus-rule", "My Rules"), "--prometheus-rule: expected a name of Kubernetes, such as vramscope"),
        (("--prometheus-rule", "x", "--namespace", "A"), "--namespace: expected a name such as monitoring, got 'A'"),
        (("--prometheus-rule", "x", "--label", "release"), "--label: expected KEY=VALUE, got 'release'"),
        (("--namespace", "x"), "--namespace and --label belong to a PrometheusRule; give --prometheus-rule NAME too"),
    ],
)
def test_a_mistake_is_one_sentence(options: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, nothing on stdout, and what was expected."""
    assert run(["rules", *options]) == 2

    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(f"vramscope: {sentence}")
    assert output.err.count("\n") == 1


@pytest.mark.parametrize("pattern", ["(?=a)b", r"(a)\\1", "a++", r"a\\Z", "(?x)a", "(?<!a)b"])
def test_a_pattern_that_prometheus_lacks_is_refused(pattern: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Rather than written into rules that it would not load."""
    assert run(["rules", "--selector", f'job=~"{pattern}"']) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("pattern", ["a[*+]b", r"a\\+\\+", "(?i)a", "[(?=]"])
def test_a_pattern_that_only_looks_like_that_is_taken(pattern: str) -> None:
    """Escaped, or in a class."""
    assert parse_selector(f'job=~"{pattern}"') == f'job=~"{pattern}"'


def test_a_number_without_end_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """In one sentence."""
    assert run(["rules", "--set", f"hidden_bytes=1{'0' * 400}"]) == 2
    assert capsys.readouterr().err.startswith("vramscope: --set: hidden_bytes: expected a whole number, 0 or more")
