"""A model on disk, whole, in parts, or damaged."""

import json
import os
import tempfile
from pathlib import Path

import pytest

from collectors.errors import CollectorError, Refused, Unreadable
from collectors.model_files import read_model
from collectors.safetensors import Tensor
from collectors.tensor_sums import TensorSums
from tests.collectors.checkpoints import Tensors, write_index, write_safetensors
from tests.collectors.test_procfs import as_nobody

CONFIG = {"model_type": "llama", "num_hidden_layers": 2}
TINY: Tensors = {
    "model.embed_tokens.weight": ("BF16", 1000),
    "model.layers.0.self_attn.q_proj.weight": ("BF16", 10),
    "model.layers.0.mlp.up_proj.weight": ("F8_E4M3", 20),
    "model.layers.1.self_attn.q_proj.weight": ("BF16", 40),
    "model.norm.weight": ("BF16", 3),
    "lm_head.weight": ("BF16", 500),
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A model directory with its config only."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return tmp_path


def fault(path: Path, **limits: int) -> CollectorError:
    with pytest.raises(CollectorError) as caught:
        read_model(path, **limits)
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_model_in_one_file(directory: Path) -> None:
    """Bytes in all, per layer, per other module and per type."""
    write_safetensors(directory / "model.safetensors", TINY)

    model = read_model(directory)

    assert model.path == str(directory)
    assert model.config == CONFIG
    assert (model.tensor_bytes, model.tensor_source) == (1573, "headers")
    assert model.layer_bytes == (30, 40)
    assert model.other_bytes == {"embed_tokens": 1000, "norm": 3, "lm_head": 500}
    assert model.bytes_by_dtype == {"BF16": 1553, "F8_E4M3": 20}
    assert model.notes == ()


def test_a_model_in_two_files_with_an_index(directory: Path) -> None:
    """The files that the index names, not others beside them; headers are trusted before its total."""
    head = {name: TINY[name] for name in list(TINY)[:2]}
    tail = {name: TINY[name] for name in list(TINY)[2:]}
    files = {"model-1-of-2.safetensors": head, "model-2-of-2.safetensors": tail}
    for name, tensors in files.items():
        write_safetensors(directory / name, tensors)
    write_safetensors(directory / "consolidated.safetensors", TINY)
    write_index(directory, files, total_size=7)

    for path in (directory, directory / "config.json", directory / "model.safetensors.index.json"):
        model = read_model(path)
        assert (model.tensor_bytes, model.tensor_source, model.layer_bytes) == (1573, "headers", (30, 40))
        assert model.notes == ()


def test_weight_files_that_are_not_there_leave_the_indexs_total(directory: Path) -> None:
    """Only config and index were downloaded: a total, but nothing per layer."""
    write_index(directory, {"a.safetensors": TINY, "b.safetensors": {"x": ("BF16", 1)}}, total_size=16060522496)

    model = read_model(directory)

    assert (model.tensor_bytes, model.tensor_source, model.layer_bytes) == (16060522496, "index", None)
    assert model.notes == (f"2 of 2 weight files are not in {directory}; bytes are those of the index",)


@pytest.mark.parametrize("total", [None, 0, -5, "many", 1e300])
def test_an_index_without_a_sane_total(directory: Path, total: object) -> None:
    """What is not known is not made up."""
    write_index(directory, {"a.safetensors": TINY}, total_size=total)

    model = read_model(directory)

    assert (model.tensor_bytes, model.tensor_source) == (None, None)
    assert model.notes == (
        f"1 of 1 weight files are not in {directory}; the index gives no total either: bytes are not known",
    )


def test_a_missing_index_is_a_note(directory: Path) -> None:
    """All model files count; a copy in another format does not."""
    write_safetensors(directory / "model-1.safetensors", {"model.layers.0.w": ("BF16", 5)})
    write_safetensors(directory / "model-2.safetensors", {"model.layers.1.w": ("BF16", 6)})
    write_safetensors(directory / "consolidated.safetensors", TINY)

    model = read_model(directory)

    assert model.layer_bytes == (5, 6)
    assert model.notes == (
        f"no model.safetensors.index.json in {directory}: its 2 safetensors files are taken for the whole checkpoint",
    )


def test_a_config_alone(directory: Path) -> None:
    """Under its own name or any other, even beside weights that are not its own."""
    other = directory / "llama-2-7b.json"
    other.write_text(json.dumps({"model_type": "llama"}), encoding="utf-8")
    alone = read_model(directory)
    write_safetensors(directory / "model.safetensors", TINY)
    lone = read_model(other)

    assert (alone.config, alone.tensor_bytes) == (CONFIG, None)
    assert alone.notes == (f"no safetensors files with {directory}, so the bytes of its tensors are not known",)
    assert (lone.config, lone.tensor_bytes) == ({"model_type": "llama"}, None)


def test_a_config_with_a_byte_order_mark(directory: Path) -> None:
    """Some editors leave one."""
    (directory / "config.json").write_bytes(b"\xef\xbb\xbf{}")

    assert read_model(directory).config == {}


@pytest.mark.parametrize(
    ("tensors", "layers", "other"),
    [
        (  # DeepSeek V3 counts its extra prediction layer on
            {"model.layers.0.w": ("BF16", 5), "model.layers.2.w": ("BF16", 7)},
            (5, 0, 7),
            {},
        ),
        (  # Qwen3-Next keeps it in a stack of its own
            {"model.layers.0.w": ("BF16", 5), "mtp.layers.0.w": ("BF16", 3), "mtp.fc.weight": ("BF16", 1)},
            (5,),
            {"mtp": 4},
        ),
        (  # a vision tower has layers too
            {
                "vision_tower.encoder.layers.0.w": ("F32", 4),
                "language_model.model.layers.0.w": ("BF16", 50),
                "language_model.model.embed_tokens.weight": ("BF16", 9),
                "language_model.lm_head.weight": ("BF16", 8),
                "model.visual.patch.weight": ("BF16", 2),
            },
            (50,),
            {"vision_tower": 4, "embed_tokens": 9, "lm_head": 8, "visual": 2},
        ),
        ({"layers.0.w": ("BF16", 5), "tok_embeddings.weight": ("BF16", 1)}, (5,), {"tok_embeddings": 1}),
        ({"transformer.h.0.w": ("BF16", 5), "transformer.wte.weight": ("BF16", 1)}, (5,), {"wte": 1}),
        ({"encoder.block.0.w": ("BF16", 5), "weight": ("BF16", 1)}, None, {"encoder": 5, "weight": 1}),
        ({"model.layers.0.mlp.experts.layers.7.w": ("BF16", 5)}, (5,), {}),
        (  # n-gram tables of a layer may stay on the host, what reads them does not
            {
                "layers.0.engram.embed.weight": ("BF16", 90),
                "layers.0.engram.embed.scale": ("BF16", 3),
                "layers.0.engram.wkv.weight": ("BF16", 5),
            },
            (5,),
            {"engram": 93},
        ),
    ],
)
def test_which_layers_are_the_decoders(
    directory: Path, tensors: Tensors, layers: tuple[int, ...] | None, other: dict[str, int]
) -> None:
    """The largest stack of layers; every byte is either in a layer or in a module."""
    write_safetensors(directory / "model.safetensors", tensors)

    model = read_model(directory)

    assert model.layer_bytes == layers
    assert model.other_bytes == other
    assert sum(layers or ()) + sum(other.values()) == model.tensor_bytes


@pytest.mark.parametrize(
    ("content", "reason", "message"),
    [
        (b"", "malformed", "expected JSON, got an empty file"),
        (
            b'{"a": 1',
            "malformed",
            "got a syntax error at line 1, column 8 (expecting ',' delimiter); download it again",
        ),
        (b"\x89PNG\xff\xfe", "malformed", "expected JSON, got binary data"),
        (b"[1]", "malformed", "expected a JSON object, got list"),
        (b"null", "malformed", "expected a JSON object, got NoneType"),
        (b"[" * 200_000, "malformed", "absurd nesting or numbers"),
        (b'{"a": ' + b"9" * 5000 + b"}", "malformed", "absurd nesting or numbers"),
        (b'{"a": 1, "b": {"c": 1, "d": 2, "c": 3}}', "malformed", "expected each key once, got 'c' twice; remove one"),
        (b'{"a": "' + b"x" * 10_000 + b'"}', "too_large", "expected at most 9000 bytes of JSON, got more"),
    ],
)
def test_a_config_that_cannot_be_used(directory: Path, content: bytes, reason: str, message: str) -> None:
    """One sentence that names the file, what was expected and what was there."""
    (directory / "config.json").write_bytes(content)

    error = fault(directory, max_config_bytes=9000 if reason == "too_large" else 1 << 20)

    assert error.reason == reason
    assert str(error).startswith(f"{directory}/config.json: ")
    assert message in str(error)


def test_paths_that_are_no_model(directory: Path, tmp_path: Path) -> None:
    """Missing, an empty directory, another kind of file, a file that is none."""
    empty = tmp_path / "empty"
    empty.mkdir()
    weights = tmp_path / "model.bin"
    weights.write_bytes(b"PK")
    (directory / "config.json").unlink()
    os.mkfifo(directory / "config.json")

    assert str(fault(tmp_path / "nowhere")) == (
        f"{tmp_path}/nowhere: no such file; expected a model directory, config.json, safetensors index or GGUF file"
    )
    assert str(fault(empty)) == f"{empty}: expected a model directory, but it has no config.json"
    assert str(fault(weights)) == (
        f"{weights}: expected a model directory, a config.json, a safetensors index or a GGUF file"
    )
    assert str(fault(directory)) == f"{directory}/config.json: expected a regular file"
    assert fault(empty / "model.safetensors.index.json").reason == "missing"


def test_a_weight_file_that_is_cut_off(directory: Path) -> None:
    """A download that was interrupted."""
    path = directory / "model.safetensors"
    write_safetensors(path, TINY)
    size = path.stat().st_size
    os.truncate(path, size - 1)

    assert str(fault(directory)) == f"{path}: cut off: expected {size} bytes, got {size - 1}; download it again"


def test_a_pipe_beside_the_model_is_not_waited_for(directory: Path) -> None:
    """Opening it would block until somebody writes."""
    os.mkfifo(directory / "model.safetensors")

    assert read_model(directory).tensor_bytes is None


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("[]", "expected a JSON object with a weight_map"),
        ("{}", "expected a JSON object with a weight_map that names the file of each tensor"),
        ('{"weight_map": {}}', "expected a JSON object with a weight_map that names the file of each tensor"),
        ('{"weight_map": {"w": "../../secret.safetensors"}}', "beside it, got '../../secret.safetensors'"),
        ('{"weight_map": {"w": "/etc/passwd"}}', "beside it, got '/etc/passwd'"),
        ('{"weight_map": {"w": 5}}', "beside it, got '5'"),
        (json.dumps({"weight_map": {str(n): f"{n}.safetensors" for n in range(5000)}}), "beside it, got 5000 of them"),
    ],
)
def test_an_index_that_cannot_be_used(directory: Path, index: str, message: str) -> None:
    """Names that leave the directory are not followed."""
    (directory / "model.safetensors.index.json").write_text(index, encoding="utf-8")

    error = fault(directory)

    assert isinstance(error, Unreadable)
    assert str(error).startswith(f"{directory}/model.safetensors.index.json: ")
    assert message in str(error)


def test_headers_that_no_model_has(directory: Path) -> None:
    """All together they have a bound; none is read then."""
    for number in range(4):
        with (directory / f"model-{number}.safetensors").open("wb") as file:
            file.write((72_000_000).to_bytes(8, "little"))
            file.truncate(72_000_008)  # a hole: no header, were it read

    assert str(fault(directory)) == (
        f"{directory}: expected the weights of one model, whose safetensors headers have at most 134,217,728 bytes "
        "together, got 288,000,000"
    )


@pytest.mark.parametrize(
    "tensors",
    [
        [Tensor("w", "BF16", 0)] * 101,
        [Tensor(f"{number}.w", "BF16", 0) for number in range(60)],
        [Tensor(f"{number}.layers.1.w", "BF16", 0) for number in range(60)],
        [Tensor("w", f"F{number}", 0) for number in range(60)],
        [Tensor("w" * 1001, "BF16", 0)],
    ],
    ids=["tensors", "modules", "stacks", "types", "name"],
)
def test_more_of_anything_than_a_model_has(tensors: list[Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept of a checkpoint is bounded, whatever its headers say."""
    monkeypatch.setattr("collectors.tensor_sums.MAX_TENSORS", 100)
    monkeypatch.setattr("collectors.tensor_sums.MAX_SUMS", 50)

    with pytest.raises(Unreadable, match=r"^/m: expected the weights of one model, at most 100 tensors in 50 layers"):
        TensorSums().add(tensors, Path("/m"))


def test_a_large_index(directory: Path) -> None:
    """Its map is taken apart in pieces; the files of all of them count."""
    weight_map = {f"model.layers.{number}.weight": f"model-{number % 3}.safetensors" for number in range(10_000)}
    index = {"weight_map": weight_map, "metadata": {"total_size": 9}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=2), encoding="utf-8")

    model = read_model(directory)

    assert model.notes == (f"3 of 3 weight files are not in {directory}; bytes are those of the index",)
    assert model.tensor_bytes == 9


def test_an_absurd_layer_number(directory: Path) -> None:
    """It would make a list of a billion layers."""
    write_safetensors(directory / "model.safetensors", {"model.layers.999999999.w": ("BF16", 1)})

    assert str(fault(directory)) == f"{directory}: a tensor of layer 999999999; expected fewer than 10000 layers"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up privileges")
def test_a_file_that_may_not_be_read() -> None:
    """A missing permission is told apart from a missing file."""

    def read() -> str:
        try:
            return str(read_model(place))
        except Refused as exc:
            return f"{exc.reason}: {exc}"

    with tempfile.TemporaryDirectory() as name:  # below a directory that everybody may enter
        place = Path(name)
        place.chmod(0o755)
        (place / "config.json").write_text("{}", encoding="utf-8")
        (place / "config.json").chmod(0o600)
        message = as_nobody(read)

    assert message == f"permission: {name}/config.json: no permission to read it; run vramscope as a user who may"
