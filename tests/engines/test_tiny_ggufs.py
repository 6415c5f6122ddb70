"""The GGUF files that llama.cpp is given: the product's reader finds in them what their configs say."""

import math
from pathlib import Path

import pytest

from agent.memory.arguments import Arguments
from agent.memory.budget import Device, compute
from collectors.model_files import read_model
from collectors.readings import ModelFiles
from tests.engines.tiny_ggufs import MODELS


@pytest.mark.parametrize("name", ["llama", "gemma3", "deepseek2"])
def test_a_file_and_its_config_have_one_budget(name: str, tmp_path: Path) -> None:
    """KV and weights of a GGUF are those of the same model in a config's words; the embedding is on the host."""
    model = MODELS[name]()
    arguments = Arguments(engine="llama_cpp", ctx_size=4096, parallel=4)

    of_file = compute(read_model(model.write(tmp_path / "model.gguf")), arguments, Device())
    of_config = compute(ModelFiles(path="model", config=model.config), arguments, Device())

    assert of_file.ranks[0].kv == of_config.ranks[0].kv
    assert of_file.ranks[0].kv.pool_bytes is not None
    held = [shape for name, shape in model.tensors.items() if name != "token_embd.weight"]
    assert of_file.ranks[0].weights_bytes == sum(4 * math.prod(shape) for shape in held)
    assert not [warning for warning in of_file.warnings if "arithmetic" in warning]
