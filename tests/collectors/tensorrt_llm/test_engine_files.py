"""An engine that TensorRT-LLM built: what it was built for, and the files of its ranks."""

from pathlib import Path
from typing import Any

import pytest

from collectors.errors import Unreadable
from collectors.model_files import read_engine, read_model
from tests.collectors.tensorrt_llm.engines import engine_folder

BUILT = {"tp": 1, "pp": 1, "block_size": 64, "max_model_len": 32768, "kv_cache_dtype": "bfloat16"}


def test_a_recorded_engine(tmp_path: Path) -> None:
    """Its heads under a config's names, its limits, and its file's bytes; by its folder or by its config."""
    folder = engine_folder(tmp_path, 5000)

    model = read_model(folder)

    assert (model.built, model.rank_bytes, model.notes) == (BUILT, (5000,), ())
    assert (model.tensor_bytes, model.config_path) == (None, str(folder / "config.json"))
    expected = {"model_type": "qwen2", "num_hidden_layers": 24, "num_key_value_heads": 2, "head_dim": 64}
    assert expected.items() <= model.config.items()
    assert read_model(folder / "config.json").rank_bytes == read_engine(folder).rank_bytes == (5000,)


def test_a_checkpoint_is_no_engine(tmp_path: Path) -> None:
    """Where only an engine counts, that is a failure with the reason."""
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')

    with pytest.raises(Unreadable, match="expected the folder of an engine"):
        read_engine(tmp_path)
    assert not read_model(tmp_path).built


@pytest.mark.parametrize(
    ("algorithm", "stored"), [(None, "float16"), ("FP8", "fp8"), ("INT8", "int8"), ("NVFP4", "nvfp4")]
)
def test_the_format_of_its_kv(tmp_path: Path, algorithm: str | None, stored: str) -> None:
    """That of its model unless another was chosen when it was built."""
    folder = engine_folder(tmp_path, changes={"kv_cache_quant_algo": algorithm, "dtype": "float16"})

    assert read_model(folder).built["kv_cache_dtype"] == stored


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"rotary_base": 1, "qk_layernorm": False, "cp_size": 2}, "context parallelism"),
        ({"kv_cache_type": "CONTINUOUS"}, "not paged"),
        ({"speculative_decoding_mode": 4}, "speculates"),
        ({"kv_cache_quant_algo": "MXFP9"}, "KV format"),
        ({"moe": {}, "runtime_defaults": None, "mlp_bias": {}, "layer_types": ["recurrent"]}, None),
        ({"architecture": "DeepseekV2ForCausalLM"}, None),
        ({"qwen_type": "qwen9"}, None),
    ],
)
def test_caches_that_are_not_known(tmp_path: Path, changes: dict[str, Any], why: str | None) -> None:
    """Nothing is taken for a model whose layers all keep the same heads but what is known to be one."""
    folder = engine_folder(tmp_path, 5000, 5000, changes=changes)
    if "layer_types" in changes:
        text = (folder / "config.json").read_text()
        (folder / "config.json").write_text(text.replace('"hidden_act"', '"layer_types": ["recurrent"], "hidden_act"'))
        why = "layer_types"

    model = read_model(folder)

    assert model.config["model_type"] is None
    assert [note for note in model.notes if why and why in note] or why is None
    assert model.rank_bytes


@pytest.mark.parametrize("key", ["weight_streaming", "use_strip_plan", "manage_weights"])
def test_weights_that_are_not_in_its_files(tmp_path: Path, key: str) -> None:
    """Then their bytes are not known."""
    model = read_model(engine_folder(tmp_path, 5000, changes={key: True}))

    assert model.rank_bytes == ()
    assert any(key in note for note in model.notes)


def test_files_that_are_missing_or_absurd(tmp_path: Path) -> None:
    """Of several ranks all have to be there."""
    model = read_model(engine_folder(tmp_path, 5000, 0, tp=2, pp=2))
    assert (model.rank_bytes, model.built["tp"], model.built["pp"]) == ((), 2, 2)
    assert "2 of 4 engine files are not in" in model.notes[0]

    assert "absurd" in read_model(engine_folder(tmp_path, 1, 0, 1, 1, tp=2, pp=2)).notes[0]
    assert read_model(engine_folder(tmp_path, 1, 2, 3, 4, tp=2, pp=2)).rank_bytes == (1, 2, 3, 4)


@pytest.mark.parametrize("value", [0, -1, "2", True, None, 1.5, 10**9])
@pytest.mark.parametrize("key", ["tp_size", "tokens_per_block"])
def test_sizes_that_are_none(tmp_path: Path, key: str, value: object) -> None:
    """One sentence with file and key; a block that is not told is not known."""
    folder = engine_folder(tmp_path, 5000, changes={key: value})
    if (key, value) == ("tokens_per_block", None):
        assert "block_size" not in read_model(folder).built
        return

    with pytest.raises(Unreadable, match=f"{key}: expected a whole number"):
        read_model(folder)


def test_ranks_that_no_engine_has(tmp_path: Path) -> None:
    """Each of three numbers may be one; their product is what files are looked for by."""
    sizes = {"tp_size": 1024, "pp_size": 1024, "cp_size": 1024}

    with pytest.raises(Unreadable, match="ranks of mapping: expected a whole number of 1 to 1024, got '1073741824'"):
        read_model(engine_folder(tmp_path, 5000, changes={"mapping": sizes}))


def test_parts_of_a_config_that_are_no_objects(tmp_path: Path) -> None:
    """Are taken for empty."""
    model = read_model(engine_folder(tmp_path, 5000, changes={"mapping": [], "quantization": 3, "plugin_config": None}))

    assert model.built == {"tp": 1, "pp": 1, "max_model_len": 32768, "kv_cache_dtype": "bfloat16"}
