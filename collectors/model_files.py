"""A model on disk: its ``config.json`` and the bytes of its tensors, from the headers of safetensors or GGUF files.

Files may be named by somebody else's process, so each is a regular file, bounded, and every size in it is checked.
"""

import codecs
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from collectors import gguf
from collectors.errors import CollectorError, Refused, Unreadable
from collectors.gguf_config import config_of
from collectors.json_pieces import AFTER_TEXTS, PIECE_BYTES, pieces
from collectors.ollama.manifests import blob_of
from collectors.readings import ModelFiles
from collectors.safetensors import header_bytes, read_header
from collectors.tensor_sums import TensorSums
from collectors.tensorrt_llm.engine_files import engine_model, is_engine

INDEX_NAME = "model.safetensors.index.json"
MAX_CONFIG_BYTES = 2 * 1024 * 1024
MAX_INDEX_BYTES = 64 * 1024 * 1024
MAX_SHARDS = 4096
MAX_HEADERS_BYTES = 128 * 1024 * 1024
"""Of all weight files together; a tensor takes some 140 bytes."""
_MAX_CHECKPOINT_BYTES = 1 << 50


class _Checkpoint(Struct, frozen=True, kw_only=True):
    """The weight files of a model, or the total that an index claims where they are not all there."""

    files: tuple[Path, ...] = ()
    claimed_bytes: int | None = None
    notes: tuple[str, ...] = ()


class _Index(Struct, frozen=True):
    """The parts of an index that are needed, not taken apart yet."""

    weight_map: msgspec.Raw
    metadata: msgspec.Raw = msgspec.Raw(b"null")


def read_model(path: Path, *, max_config_bytes: int = MAX_CONFIG_BYTES) -> ModelFiles:
    """A model from its directory, its ``config.json``, its safetensors index, a GGUF file, or a lone config.

    A directory without ``config.json`` may hold one GGUF model, whole or in parts.

    A directory may also be an engine that TensorRT-LLM built.

    Without weight files, and without an index that sums them up, only the config is known and a note says so.

    Raises:
        Refused: no permission.
        Unreadable: not there, not a model, or a file that is damaged, cut off, too large or absurd.
    """
    try:
        if (file := _gguf_file(path)) is not None:
            return _gguf_model(path, file)
        config_path, index_path = _located(path)
        config = _json_object(config_path, max_config_bytes)
        if is_engine(config):
            return engine_model(path, config_path, config)
        checkpoint = _checkpoint(index_path) if index_path else _Checkpoint(notes=(_no_weights(path),))
        sums = _sums(path, checkpoint.files)
    except OSError as exc:
        raise os_error(path, exc) from exc
    return _model(path, config_path, config, checkpoint, sums)


def read_engine(path: Path) -> ModelFiles:
    """A model of which only a built engine counts. Raises: as ``read_model``, also for anything else."""
    model = read_model(path)
    if not model.built:
        raise Unreadable("not_an_engine", f"{path}: expected the folder of an engine that TensorRT-LLM built")
    return model


def _sums(path: Path, files: Sequence[Path]) -> TensorSums:
    """Those of all weight files: too many headers are refused before one is read."""
    header = sum(header_bytes(file) for file in files)
    if header > MAX_HEADERS_BYTES:
        raise Unreadable(
            "absurd",
            f"{path}: expected the weights of one model, whose safetensors headers have at most "
            f"{MAX_HEADERS_BYTES:,} bytes together, got {header:,}",
        )
    sums = TensorSums()
    for file in files:
        sums.add(read_header(file), path)
    return sums


def _model(
    path: Path, config_path: Path, config: dict[str, Any], checkpoint: _Checkpoint, sums: TensorSums
) -> ModelFiles:
    total = sums.total if sums.count else checkpoint.claimed_bytes
    return ModelFiles(
        path=str(path),
        config_path=str(config_path),
        config=config,
        tensor_bytes=total,
        tensor_source=None if total is None else "headers" if sums.count else "index",
        layer_bytes=sums.by_layer(),
        other_bytes=sums.by_other_module(),
        bytes_by_dtype=sums.by_dtype,
        notes=checkpoint.notes,
    )


def _gguf_file(path: Path) -> Path | None:
    """The GGUF file meant, the first of several parts; None where another format is."""
    if path.is_dir() and not (path / "config.json").exists():
        firsts = {gguf.parts(file)[0] for file in path.glob("*.gguf") if not file.name.startswith("mmproj")}
        if len(firsts) > 1:
            names = ", ".join(sorted(file.name for file in firsts)[:3])
            raise Unreadable("ambiguous", f"{path}: {len(firsts)} GGUF models; name one of them, such as {names}")
        return firsts.pop() if firsts else None
    if (blob := blob_of(path)) is not None:
        return blob
    if path.suffix == ".gguf" and path.exists():
        return gguf.parts(path)[0]
    return path if path.is_file() and not path.suffix and _is_gguf(path) else None


def _is_gguf(path: Path) -> bool:
    """Whether a file without a suffix, such as a blob of Ollama's, begins like one."""
    with path.open("rb") as file:
        return file.read(4) == b"GGUF"


def _gguf_model(path: Path, file: Path) -> ModelFiles:
    files = gguf.parts(file)
    missing = [part.name for part in files if not part.exists()]
    if missing and missing[0] == files[0].name:
        raise Unreadable("missing", f"{files[0]}: no such file; the first part has the model's metadata")
    headers, sums = [], TensorSums()
    for part in files:
        if part.name not in missing:
            header = gguf.read_header(part)
            sums.add(header.tensors, path)
            headers.append(header)
    checkpoint = _Checkpoint(
        notes=(f"{len(missing)} of {len(files)} parts are not in {file.parent}, so tensor bytes are not known",)
        if missing
        else ()
    )
    return _model(path, file, config_of(headers), checkpoint, TensorSums() if missing else sums)


def _located(path: Path) -> tuple[Path, Path | None]:
    """The config, and where the index of its weights would be; None for a config that stands alone."""
    if path.is_dir():
        if not (path / "config.json").exists():
            raise Unreadable("no_config", f"{path}: expected a model directory, but it has no config.json")
        return path / "config.json", path / INDEX_NAME
    if path.name.endswith(".safetensors.index.json"):
        return path.parent / "config.json", path
    if path.name == "config.json":
        return path, path.parent / INDEX_NAME
    if path.suffix == ".json" or not path.exists():
        return path, None
    raise Unreadable(
        "not_a_model", f"{path}: expected a model directory, a config.json, a safetensors index or a GGUF file"
    )


def _checkpoint(index_path: Path) -> _Checkpoint:
    if not index_path.exists():
        return _without_index(index_path.parent)
    names, claimed = _index(index_path)
    files = tuple(index_path.parent / name for name in names)
    missing = sum(not file.is_file() for file in files)
    if not missing:
        return _Checkpoint(files=files)
    note = f"{missing} of {len(files)} weight files are not in {index_path.parent}"
    source = "bytes are those of the index" if claimed else "the index gives no total either: bytes are not known"
    return _Checkpoint(claimed_bytes=claimed, notes=(f"{note}; {source}",))


def _without_index(directory: Path) -> _Checkpoint:
    """All weight files of a directory; its own format (``consolidated``) counts only where there is no other."""
    files = sorted(file for file in directory.glob("*.safetensors") if file.is_file())
    files = [file for file in files if file.name.startswith("model")] or files
    if len(files) > MAX_SHARDS:
        raise Unreadable(
            "absurd", f"{directory}: more than {MAX_SHARDS} safetensors files; expected those of one model"
        )
    if not files:
        return _Checkpoint(notes=(_no_weights(directory),))
    if [file.name for file in files] == ["model.safetensors"]:
        return _Checkpoint(files=tuple(files))
    note = f"no {INDEX_NAME} in {directory}: its {len(files)} safetensors files are taken for the whole checkpoint"
    return _Checkpoint(files=tuple(files), notes=(note,))


def _index(path: Path) -> tuple[list[str], int | None]:
    """The names of the weight files, and the sum of tensor bytes where the index has one."""
    data = _content(path, MAX_INDEX_BYTES)
    names: set[str] = set()
    try:
        index = msgspec.json.decode(data.removeprefix(codecs.BOM_UTF8), type=_Index)
        for piece in pieces(_chunks(bytes(index.weight_map)), AFTER_TEXTS):
            names.update(str(name) for name in msgspec.json.decode(piece, type=dict[str, Any]).values())
        metadata = msgspec.json.decode(index.metadata)
    except (ValueError, RecursionError) as exc:
        raise _no_map(path) from exc
    if not names:
        raise _no_map(path)
    strange = next((name for name in names if Path(name).name != name or not name.endswith(".safetensors")), None)
    if strange is not None or len(names) > MAX_SHARDS:
        got = f"{strange[:100]!r}" if strange is not None else f"{len(names)} of them"
        raise Unreadable("absurd", f"{path}: expected names of safetensors files beside it, got {got}")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if not isinstance(total, int | float) or not 0 < total < _MAX_CHECKPOINT_BYTES:
        return sorted(names), None
    return sorted(names), int(total)


def _no_map(path: Path) -> Unreadable:
    return Unreadable(
        "malformed", f"{path}: expected a JSON object with a weight_map that names the file of each tensor"
    )


def _chunks(data: bytes) -> Iterator[bytes]:
    return (data[start : start + PIECE_BYTES] for start in range(0, len(data), PIECE_BYTES))


def _content(path: Path, max_bytes: int) -> bytes:
    if path.exists() and not path.is_file():
        raise Unreadable("not_regular", f"{path}: expected a regular file")
    with path.open("rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise Unreadable("too_large", f"{path}: expected at most {max_bytes} bytes of JSON, got more")
    return data


def _json_object(path: Path, max_bytes: int) -> dict[str, Any]:
    data = _content(path, max_bytes)
    try:
        value = json.loads(data.decode("utf-8-sig"), object_pairs_hook=_unique)
    except _RepeatedKeyError as exc:
        raise Unreadable("malformed", f"{path}: expected each key once, got {exc} twice; remove one") from exc
    except UnicodeDecodeError as exc:
        raise Unreadable("malformed", f"{path}: expected JSON, got binary data") from exc
    except json.JSONDecodeError as exc:
        why = re.sub(r"( starting)? at$", "", exc.msg)
        what = f"a syntax error at line {exc.lineno}, column {exc.colno} ({why[:1].lower()}{why[1:]})"
        got = what if data.strip() else "an empty file"
        raise Unreadable("malformed", f"{path}: expected JSON, got {got}; download it again") from exc
    except (ValueError, RecursionError) as exc:
        raise Unreadable("malformed", f"{path}: expected the JSON of a model, got absurd nesting or numbers") from exc
    if not isinstance(value, dict):
        raise Unreadable("malformed", f"{path}: expected a JSON object, got {type(value).__name__}")
    return value


class _RepeatedKeyError(Exception):
    """A JSON object with a key twice, of which a reader takes the one and an engine maybe the other."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        repeated = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise _RepeatedKeyError(repr(repeated[:60]))
    return value


def _no_weights(path: Path) -> str:
    return f"no safetensors files with {path}, so the bytes of its tensors are not known"


def os_error(path: Path, exc: OSError) -> CollectorError:
    """Why a file of a model can't be read, as the system says."""
    where = exc.filename or path
    if isinstance(exc, FileNotFoundError):
        return Unreadable(
            "missing", f"{where}: no such file; expected a model directory, config.json, safetensors index or GGUF file"
        )
    if isinstance(exc, PermissionError):
        return Refused("permission", f"{where}: no permission to read it; run vramscope as a user who may")
    return Unreadable("unreadable", f"{where}: can't be read: {exc.strerror or type(exc).__name__}")
