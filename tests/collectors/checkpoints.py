"""Writes small safetensors files: true headers, and data that is a hole."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Tensors = Mapping[str, tuple[str, int]]  # name: dtype, bytes


def header_of(tensors: Tensors) -> dict[str, Any]:
    """The header of a file that holds these tensors one behind the other."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": [size], "data_offsets": [end, end + size]}
        end += size
    return header


def write_safetensors(path: Path, tensors: Tensors) -> None:
    write_raw(path, json.dumps(header_of(tensors)).encode(), sum(size for _, size in tensors.values()))


def write_raw(path: Path, header: bytes, data_bytes: int) -> None:
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + data_bytes)


def write_index(directory: Path, files: Mapping[str, Tensors], *, total_size: object = None) -> None:
    """The index of a checkpoint in several files; the files themselves are not written."""
    index: dict[str, Any] = {"weight_map": {name: file for file, tensors in files.items() for name in tensors}}
    if total_size is not None:
        index["metadata"] = {"total_size": total_size}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
