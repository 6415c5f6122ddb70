"""Folders of engines, made from a recorded ``config.json``."""

import json
from pathlib import Path
from typing import Any

from tests.collectors.replay import FIXTURES

RECORDED = FIXTURES / "tensorrt_llm" / "engines" / "qwen2-0.17.json"


def engine_folder(folder: Path, *sizes: int, tp: int = 1, pp: int = 1, changes: dict[str, Any] | None = None) -> Path:
    """An engine whose ranks' files have these sizes; ``changes`` by the last name of a key, wherever it is."""
    config = _changed(json.loads(RECORDED.read_text()), {"tp_size": tp, "pp_size": pp, **(changes or {})})
    (folder / "config.json").write_text(json.dumps(config))
    for number, size in enumerate(sizes):
        with (folder / f"rank{number}.engine").open("wb") as file:
            file.truncate(size)
    return folder


def _changed(document: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {
        key: changes[key] if key in changes else _changed(value, changes) if isinstance(value, dict) else value
        for key, value in document.items()
    }
