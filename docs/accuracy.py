"""How wrong the budget is against what real engines said: recorded starts beside the budget of the same arguments.

Recordings are ``tests/fixtures/<engine>/budget-<version>/recorded.json``.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from agent.memory.arguments import Arguments
from agent.memory.budget import Device, KvBudget, RankBudget, compute
from agent.memory.units import MIB
from collectors.readings import ModelFiles

RECORDINGS = Path(__file__).parents[1] / "tests" / "fixtures"
TITLES = {"vllm": "vLLM", "sglang": "SGLang", "llama_cpp": "llama.cpp"}
EXACT = {
    "blocks": "{} blocks",
    "tokens": "{} tokens",
    "concurrency": "concurrency {}",
    "pool_bytes": "pool {} B",
    "kv_mib": "KV cache {} MiB",
    "index_mib": "index keys {} MiB",
    "window_mib": "window cache {} MiB",
    "state_mib": "states {} MiB",
}


class Start(Struct, frozen=True, kw_only=True):
    """One recorded start of an engine."""

    engine: str
    version: str
    name: str
    model: str
    arguments: dict[str, Any]
    said: dict[str, Any]
    config: dict[str, Any]

    def rank(self) -> RankBudget:
        """The budget of its first rank; a block's size is as the engine reported it."""
        reported = {name: value for name, value in self.said.items() if name == "block_size"}
        arguments = Arguments(engine=self.engine, engine_version=self.version, **self.arguments | reported)
        return compute(ModelFiles(path=self.model, config=self.config), arguments, Device()).ranks[0]


class Figure(Struct, frozen=True, kw_only=True):
    """One figure: what the engine said and what the budget says, as the engine writes it. ``name`` is one of EXACT."""

    start: Start
    name: str
    said: str
    budget: str

    @property
    def off(self) -> str:
        """How far the budget is off."""
        return "not known" if self.budget == "–" else f"{100 * (float(self.budget) / float(self.said) - 1):+.2f} %"


def starts() -> Iterator[Start]:
    """All recordings, by engine and version."""
    for path in sorted(RECORDINGS.glob("*/budget-*/recorded.json")):
        recorded = json.loads(path.read_text(encoding="utf-8"))
        for case in recorded["cases"]:
            config = json.loads((path.parent / f"{case['model']}.config.json").read_text(encoding="utf-8"))
            yield Start(engine=recorded["engine"], version=recorded["version"], config=config, **case)


def figures(start: Start) -> Iterator[Figure]:
    """The integer parts that it said."""
    kv = start.rank().kv
    for name, said in start.said.items():
        if name in EXACT:
            yield Figure(start=start, name=name, said=str(said), budget=predicted(kv, name))


def predicted(kv: KvBudget, name: str) -> str:
    """A figure of the budget, with as many digits as the engine prints; a dash where it is not known."""
    if name == "concurrency":
        return "–" if kv.max_concurrency is None else f"{kv.max_concurrency:.2f}"
    if name.endswith("_mib"):
        size = _cache_bytes(kv, name.removesuffix("_mib"))
        return "–" if size is None else f"{size / MIB:.2f}"
    value = {"blocks": kv.blocks, "tokens": kv.pool_tokens, "pool_bytes": kv.pool_bytes}[name]
    return "–" if value is None else str(value)


def table() -> list[str]:
    """The recordings as Markdown: a row for each start, with every figure and how far the budget is off."""
    every = [(start, list(figures(start))) for start in starts()]
    count = sum(len(found) for _, found in every)
    wrong = sum(figure.said != figure.budget for _, found in every for figure in found)
    lines = [
        f"{count} figures of {len(every)} starts; {wrong} differ.",
        "",
        "| engine | start | the engine said | the budget says | off by |",
        "|---|---|---|---|---|",
    ]
    for start, found in every:
        differing = [figure for figure in found if figure.said != figure.budget]
        said = ", ".join(EXACT[figure.name].format(figure.said) for figure in found)
        budget = ", ".join(EXACT[figure.name].format(figure.budget) for figure in differing) or "the same"
        off = ", ".join(figure.off for figure in differing) or "nothing"
        lines.append(f"| {TITLES[start.engine]} {start.version} | {_title(start)} | {said} | {budget} | {off} |")
    return lines


def buffers() -> list[str]:
    """Compute buffers of llama.cpp beside their range, in MiB, as Markdown."""
    lines = ["| start | the engine said | low | likely | high |", "|---|---|---|---|---|"]
    for start in starts():
        runtime = start.rank().runtime
        if "compute_mib" in start.said and runtime is not None:
            part = runtime.activations
            sizes = " | ".join(f"{size / MIB:.2f}" for size in (part.low, part.likely, part.high))
            lines.append(f"| {start.version} {start.name} | {start.said['compute_mib']} | {sizes} |")
    return lines


def _cache_bytes(kv: KvBudget, kind: str) -> int | None:
    """Bytes of one of llama.cpp's caches on all streams; ``kv`` is what is neither window nor index."""
    if kind == "state":
        return kv.state_bytes
    first = kv.groups[0].blocks_per_request
    if kv.blocks is None or kv.pool_bytes is None or first is None:
        return None
    streams = kv.blocks // first
    apart = {
        group.kind: streams * group.layers * group.page_bytes * (group.blocks_per_request or 0)
        for group in kv.groups
        if group.kind in ("window", "index")
    }
    return kv.pool_bytes - sum(apart.values()) if kind == "kv" else apart.get(kind, 0)


def _title(start: Start) -> str:
    shown = ", ".join(f"{name} {str(value).lower()}" for name, value in start.arguments.items())
    return f"{start.name}: {shown}" if shown else f"{start.name}: no arguments"
