"""The models that real engines are given: their bytes by hand, and as the product's own reader finds them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from collectors.model_files import read_model
from tests.engines.tiny_models import TinyModel, make_gemma3, make_llama, make_mla

SHARED = 2 * 512 * 64 + 64  # embedding and head, final norm
MLP_AND_NORMS = 3 * 64 * 128 + 2 * 64
LLAMA_LAYER = 64 * 128 + 2 * 64 * 64 + 128 * 64 + MLP_AND_NORMS  # q, k and v, o
MLA_LAYER = (
    64 * 4 * (64 + 64)  # q
    + 64 * (512 + 64)  # down to the latent and the rotary part
    + 512  # its norm
    + 512 * 4 * (64 + 64)  # up to K and V of each head
    + 4 * 64 * 64  # o
    + MLP_AND_NORMS
)
GEMMA3_LAYER = LLAMA_LAYER + 2 * 64 + 2 * 32  # norms around the feed-forward part, and of each head's q and k


@pytest.mark.parametrize(
    ("make", "elements"),
    [
        (make_llama, SHARED + 2 * LLAMA_LAYER),
        (make_mla, SHARED + 3 * MLA_LAYER),
        (make_gemma3, SHARED - 512 * 64 + 6 * GEMMA3_LAYER),
    ],
)
def test_checkpoint_holds_the_bytes_that_the_config_asks_for(
    make: Callable[[Path], TinyModel], elements: int, tmp_path: Path
) -> None:
    """Every tensor is there at two bytes an element, by hand, by the maker's account and by the headers read back."""
    model = make(tmp_path)

    files = read_model(tmp_path)

    assert model.tensor_bytes == 2 * elements
    assert (files.tensor_bytes, files.tensor_source) == (2 * elements, "headers")
    assert files.bytes_by_dtype == {"BF16": 2 * elements}


def test_tokenizer_has_a_token_for_every_byte(tmp_path: Path) -> None:
    """512 tokens: four special ones, one per byte, and filler."""
    make_llama(tmp_path)

    vocabulary = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]

    assert sorted(vocabulary.values()) == list(range(512))
    assert {"Ġ", "Ċ", "a", "ÿ"} <= vocabulary.keys()  # space, newline and two that stand for themselves
