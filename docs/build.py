"""Make ``docs/metrics.md`` from the catalogue, ``docs/cli.md`` from the help texts, ``docs/gpus.md`` from the table,
``docs/engines.md`` from the registry, the tables of recorded engines in ``docs/budget.md`` and of the backtest in
``docs/forecast.md``, the chart of a recorded life in ``docs/fragmentation.md``, and from ``alerts/source`` the rules in
``alerts`` and the list of ``docs/runbooks``.

``python -m docs.build [--check]`` in the project's root; ``--check`` writes nothing and fails on a difference.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import click

from agent.cli import cli
from agent.health import REASONS
from agent.memory.gpus import GPUS, Gpu
from agent.memory.units import GIB
from agent.metrics import CATALOGUE
from agent.rules import THEMES
from collectors.registry import ENGINES, Engine
from collectors.support import TOLD
from docs import accuracy, backtested, device_stories, life_chart, real_recordings, rule_pages

FOLDER = Path(__file__).parent


def metrics_page() -> str:
    """The metric reference as Markdown."""
    lines = [
        "# Metrics",
        "",
        "Made from `agent/metrics.py` by `make docs`; do not edit. Bytes, seconds, ratios 0-1. What is not known has",
        "no sample. `gpu` is the index of the device (`device_info` joins it with its UUID), index:instance for a MIG",
        "instance; what concerns the hardware (ECC, remaps, Xid, lost) has the index of the whole GPU, its UUID once",
        "it is gone and another has its index. `server` is the name from the settings, empty for a device's own.",
        "`replica` (data-parallel rank) and `pool` (full, window, state) are absent where there is one only. A server",
        "that is down keeps `server_state` alone. `process_*` are the agent's own, by the names that clients of",
        "Prometheus give them; choose them by job. Lengths of requests are known after a minute of readings.",
        "",
        "| metric | type | labels | meaning |",
        "|---|---|---|---|",
    ]
    for metric in CATALOGUE:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.type} | {labels} | {metric.help} |")
    lines += [
        "",
        "Of these reasons `vramscope_collector_failures_total` has series from the first attempt of their source on,",
        "at 0 where that did not fail. Any other reason has none before its first failure, which `increase` does not",
        "see then; the sum over the reasons of a source grows with it, and `collector_success` is 0.",
        "",
        "| collector | of each | reasons |",
        "|---|---|---|",
    ]
    for (collector, of), reasons in REASONS.items():
        lines.append(f"| `{collector}` | {of} | {', '.join(f'`{reason}`' for reason in reasons)} |")
    return "\n".join(lines) + "\n"


def commands_page() -> str:
    """Every command's help as Markdown."""
    blocks = ["# Command line", "", "Made from the program's own help by `make docs`; do not edit.", ""]
    settings = {"terminal_width": 100, "max_content_width": 100, **cli.context_settings}
    context = click.Context(cli, info_name="vramscope", **settings)
    blocks += ["```", cli.get_help(context), "```", ""]
    for name, command in sorted(cli.commands.items()):
        inner = click.Context(command, info_name=name, parent=context, terminal_width=100, max_content_width=100)
        blocks += [f"## vramscope {name}", "", "```", command.get_help(inner), "```", ""]
    return "\n".join(blocks)


def gpus_page() -> str:
    """The GPUs that are known by name, as Markdown."""
    lines = [
        "# GPUs known by name",
        "",
        "Made from `agent/memory/gpus.py` by `make docs`; do not edit. For `--gpu` of `vramscope budget` and `plan`.",
        "What the driver reserves depends on its version: a CUDA total holds to a few hundred MiB; live readings win.",
        "",
        "| GPU | `--gpu` | NVML total, MiB | CUDA total, GiB | source |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *map(_gpu_row, GPUS)]) + "\n"


def _gpu_row(gpu: Gpu) -> str:
    names = ", ".join(f"`{alias}`" for alias in gpu.aliases)
    cuda = gpu.device.cuda_bytes
    shown = "not known" if cuda is None else f"{cuda / GIB:.2f}"
    return f"| {gpu.name} | {names} | {gpu.total_mib or 'none'} | {shown} | {gpu.source} |"


def budget_page() -> str:
    """The budget's page, with the tables between its marks made anew."""
    return _filled("budget.md", "recordings", {"exact": accuracy.table, "buffers": accuracy.buffers})


def forecast_page() -> str:
    """The forecast's page, likewise."""
    text = _filled("forecast.md", "docs/backtest.json", backtested.TABLES)
    return _filled("forecast.md", "tests/fixtures/recordings", real_recordings.TABLES, text)


def architecture_page() -> str:
    """The page of the architecture, likewise."""
    return _filled("architecture.md", "docs/devices.json", device_stories.TABLES)


def _filled(page: str, source: str, tables: Mapping[str, Callable[[], Iterable[str]]], text: str = "") -> str:
    text = text or (FOLDER / page).read_text(encoding="utf-8")
    for name, table in tables.items():
        begin = f"<!-- made by `make docs` from {source}: {name} -->\n"
        before, mark, rest = text.partition(begin)
        text = before + mark + "\n".join(table()) + "\n" + rest[rest.index("<!-- end -->") :]
    return text


def engines_page() -> str:
    """What each engine tells, as Markdown."""
    lines = [
        "# Engines",
        "",
        "Made from `collectors/registry.py` by `make docs`; do not edit. What an engine does not tell is absent.",
        "",
        f"| engine | `engine` | versions | paths read | {' | '.join(TOLD)} |",
        f"|---|---|---|---|{'---|' * len(TOLD)}",
        *map(_engine_row, ENGINES.values()),
        "",
        *(f"- **{engine.title}**: {engine.limits}" for engine in ENGINES.values() if engine.limits),
    ]
    return "\n".join(lines) + "\n"


def _engine_row(engine: Engine) -> str:
    paths = ", ".join(f"`{path}`" for path in sorted(engine.paths))
    told = " | ".join("yes" if one in engine.tells else "no" for one in TOLD)
    return f"| {engine.title} | `{engine.name}` | {engine.versions} | {paths} | {told} |"


PAGES: dict[str, Callable[[], str]] = {
    "engines.md": engines_page,
    "metrics.md": metrics_page,
    "cli.md": commands_page,
    "gpus.md": gpus_page,
    "budget.md": budget_page,
    "fragmentation.svg": life_chart.svg,
    "runbooks/README.md": rule_pages.runbooks,
    **{f"../alerts/{theme}.yml": partial(rule_pages.rules_file, theme) for theme in THEMES},
    "forecast.md": forecast_page,
    "architecture.md": architecture_page,
}


def main(arguments: list[str]) -> int:
    """0 when the pages are written, or are as they should be; 1 when ``--check`` finds an old one."""
    if arguments not in ([], ["--check"]):
        print("usage: python -m docs.build [--check]", file=sys.stderr)
        return 2
    stale = []
    for name, page in PAGES.items():
        path = FOLDER / name
        if not arguments:
            path.write_text(page(), encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != page():
            stale.append(name)
    if stale:
        print(f"docs/{', docs/'.join(stale)}: not what the code says; run `make docs`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
