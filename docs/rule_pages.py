"""The committed rule files and the first page of the runbooks, from the sources of the rules."""

from agent.rules import THEMES, Choices, as_yaml, page_of, rules, thresholds

_MADE = "# Made from alerts/source by `make docs`; do not edit. Your own thresholds and names: `vramscope rules`."


def rules_file(theme: str) -> str:
    """The rules of one theme with the default thresholds."""
    return f"{_MADE}\n{as_yaml({'groups': rules(theme, Choices())})}"


def runbooks() -> str:
    """The list of alerts, each with its page, of the recorded series, and of the numbers they compare with."""
    every = [rule for theme in THEMES for group in rules(theme, Choices()) for rule in group["rules"]]
    lines = [
        "# Runbooks",
        "",
        "Made from `alerts/source` by `make docs`; do not edit. One page for each alert of [`alerts/`](../../alerts).",
        "critical: somebody must act now; warning: somebody must act soon, a ticket; info: to know, routed nowhere.",
        "Let `VramscopeDeviceExhausting` inhibit `VramscopeDeviceCreep` with equal `instance` and `gpu`.",
        "",
        "| alert | severity | `for` | in one sentence |",
        "|---|---|---|---|",
    ]
    for rule in (rule for rule in every if "alert" in rule):
        page = page_of(rule["alert"].removeprefix(Choices().prefix))
        what = f"{rule['labels']['severity']} | {rule['for']} | {rule['annotations']['summary']}"
        lines.append(f"| [{rule['alert']}]({page}) | {what} |")
    lines += [
        "",
        "## Recorded series",
        "",
        "One for each node, for overviews of many; the others are used by alerts.",
        "",
        "| series | expression |",
        "|---|---|",
        *(f"| `{rule['record']}` | `{' '.join(rule['expr'].split())}` |" for rule in every if "record" in rule),
        "",
        "## Thresholds",
        "",
        "Each is set by `vramscope rules --set NAME=VALUE`, which writes all rules anew.",
        "",
        "| name | default | why |",
        "|---|---|---|",
        *(f"| `{one.name}` | {one.value:,} | {one.why} |" for one in thresholds().values()),
    ]
    return "\n".join(lines) + "\n"
