"""The bytes that the layers of each public model come to: every row of the table, from its config."""

from collections.abc import Iterable
from typing import Any

import pytest

from agent.memory.kv_cache import Layouts, held
from agent.memory.kv_formats import FORMATS
from agent.memory.layers import Cache, Compressor, Heads, IndexKeys, Latent, Record, State
from agent.memory.model_config import ModelShape, parse_model
from tests.agent.memory.models import ROWS, config, row_config

FP8_DS_MLA = 656  # 512 B latent in fp8, 4 fp32 scales, 64 x 2 B rope
V4_RECORD = {"bf16": 512 * 2, "fp8": 448 + 64 * 2 + 8}  # 8 B of scales: 584 B
V41_RECORD = {"bf16": 512 * 2, "fp8": 512 + 512 // 32}  # all in fp8 with a scale byte for each 32 (SM100): 528 B
RECORD_LAYOUTS = {"deepseek_v4": "fp8_ds_mla", "deepseek_v41_text": "mxfp8_ds_mla"}
STATE_BYTES = {None: 2, "bfloat16": 2, "float32": 4}


def caches(shape: ModelShape) -> Iterable[Cache]:
    return (cache for layer in shape.layers for cache in layer.caches)


def growing_bytes(cache: Cache, layout: str, record: dict[str, int]) -> float:
    """Bytes of one more token, at tensor-parallel size 1."""
    element = 2 if layout == "bf16" else 1
    match cache:
        case Heads(reach="full"):
            return cache.heads * (cache.k_dim + cache.v_dim) * element
        case Latent(sparse=True) if layout == "fp8":
            return FP8_DS_MLA
        case Latent():
            return (cache.rank + cache.rope) * element
        case IndexKeys(packed=True):  # fp8 and an fp32 scale for each 128, at any KV format
            return (cache.dim + cache.dim // 128 * 4) / cache.ratio
        case IndexKeys():
            return cache.dim * 2
        case Record(window=None):
            return record[layout] / cache.ratio
    return 0


def fixed_bytes(cache: Cache, record: dict[str, int]) -> int:
    """Bytes a request holds whatever its length, windows full: heads in bf16, records in fp8, states as they are."""
    match cache:
        case Heads(reach="window" | "chunk" | "encoder", tokens=int(tokens)):
            return tokens * cache.heads * (cache.k_dim + cache.v_dim) * 2
        case Record(window=int(window)):
            return window * record["fp8"]
        case State():
            channels = cache.conv_channels + cache.groups * cache.group_channels
            conv = cache.conv_width * channels * STATE_BYTES[cache.conv_dtype]
            return conv + cache.heads * cache.head_elements * STATE_BYTES[cache.state_dtype]
    return 0


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_every_row_of_the_table(row: dict[str, Any]) -> None:
    """Bytes per token in bf16 and in fp8, and bytes per request, of all 88 models from their configs alone."""
    shape = parse_model(row_config(row))
    record = V41_RECORD if shape.model_type == "deepseek_v41_text" else V4_RECORD

    found = (
        sum(growing_bytes(cache, "bf16", record) for cache in caches(shape)),
        sum(growing_bytes(cache, "fp8", record) for cache in caches(shape)),
        sum(fixed_bytes(cache, record) for cache in caches(shape)),
    )

    assert (shape.unknown, found) == ((), (row["bytes_per_token_bf16"], row["bytes_per_token_fp8"], row["fixed_bytes"]))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_the_account_agrees(row: dict[str, Any]) -> None:
    """The account of a rank holds the same, and what compressors keep besides."""
    shape = parse_model(row_config(row))
    fixed_layout = RECORD_LAYOUTS.get(shape.model_type or "", "bfloat16")
    compressors = sum(4 * cache.elements * cache.window for cache in caches(shape) if isinstance(cache, Compressor))

    slope = held(shape.layers, Layouts(kv=FORMATS["bfloat16"]), tp=1).slope
    fixed = held(shape.layers, Layouts(kv=FORMATS[fixed_layout]), tp=1).fixed

    assert (row["bytes_per_token_bf16"], row["fixed_bytes"] + compressors) == (slope, fixed)


@pytest.mark.parametrize(
    ("record", "keys", "expected"),
    [
        (512 // 2 + 512 // 16, 64 + 4, 890),  # nvfp4: half a byte and a scale byte for each 16; keys in mxfp4
        (528, 132, 1_650),  # fp8 as SM100 packs it
        (584, 132, 1_790),  # fp8 as SM90 packs it
    ],
)
def test_slope_of_deepseek_v41(record: int, keys: int, expected: int) -> None:
    """Four layers keep a history for all 40: three of every second token, one of each, so 2.5 records a token."""
    layers = parse_model(config("deepseek-v4.1-flash")).layers
    histories = (cache for layer in layers for cache in layer.caches if isinstance(cache, Record))
    records = sum(1 / cache.ratio for cache in histories if cache.window is None)

    assert (records, records * (record + keys)) == (2.5, expected)
