"""The public configs in ``tests/fixtures/models``, and the figures they must come to."""

import json
from pathlib import Path
from typing import Any

from agent.memory.arguments import from_flags
from agent.memory.budget import Budget, Device, compute
from agent.memory.layers import Heads
from collectors.readings import ModelFiles

DIRECTORY = Path(__file__).parents[2] / "fixtures" / "models"
KNOWN_ATTENTION = ("MHA", "GQA", "MQA", "MLA")
GIB = 1 << 30


def _rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DIRECTORY / "models.jsonl").read_text(encoding="utf-8").splitlines()]


ROWS = _rows()
KNOWN = [row for row in ROWS if row["attention"] in KNOWN_ATTENTION]


def config(name: str) -> dict[str, Any]:
    """A config by file name without its suffix."""
    loaded: dict[str, Any] = json.loads((DIRECTORY / "configs" / f"{name}.json").read_text(encoding="utf-8"))
    return loaded


def row_config(row: dict[str, Any]) -> dict[str, Any]:
    return config(row["config"].removesuffix(".json"))


def budget(
    content: dict[str, Any],
    device: Device | None = None,
    /,
    tensor_bytes: int | None = None,
    engine: str = "vllm",
    **flags: object,
) -> Budget:
    """A budget of a config alone, or with the tensor bytes an index gives."""
    files = ModelFiles(path="/models/some-model", config=content, tensor_bytes=tensor_bytes)
    return compute(files, from_flags(flags, engine=engine), device or Device())


def gqa(heads: int, width: int = 128, **reach: Any) -> Heads:
    """KV heads with K and V of one width."""
    return Heads(heads=heads, k_dim=width, v_dim=width, **reach)
