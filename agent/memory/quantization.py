"""How a checkpoint stores its weights: ``quantization_config`` turned into bits per weight and scales.

Bits per weight (weights + scales): FP8 in 128 x 128 blocks 8 + 32/16384; AWQ and GPTQ int4 in groups of 128
4 + 16/128 + 4/128 (GPTQ adds a 32-bit index per input). Embeddings, head, norms and routers stay in 16 bit.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from agent.memory.units import ceil_div, shown

_SCALE_BYTES = 4
_ALWAYS_PLAIN = ("lm_head", "gate", "embed_tokens", "e_score_correction_bias", "router", "norm")


class WeightFormat(Struct, frozen=True, kw_only=True):
    """Layout of one quantised matrix. Without group or block there is one fp32 scale per output row."""

    name: str
    bits: int
    group_size: int | None = None
    group_bits: int = 0  # scale and zero point of a group
    block: tuple[int, int] | None = None
    input_index: bool = False

    def matrix_bytes(self, rows: int, columns: int) -> int:
        """Bytes of a matrix of ``rows`` outputs and ``columns`` inputs, with its scales."""
        weights = ceil_div(rows * columns * self.bits, 8)
        if self.block:
            return weights + ceil_div(rows, self.block[0]) * ceil_div(columns, self.block[1]) * _SCALE_BYTES
        if self.group_size:
            groups = rows * ceil_div(columns, self.group_size)
            return weights + ceil_div(groups * self.group_bits, 8) + (4 * columns if self.input_index else 0)
        return weights + rows * _SCALE_BYTES


class Quantization(Struct, frozen=True, kw_only=True):
    """Facts of a quantised checkpoint. ``format`` is None when its bits are not known here, and ``why`` says so."""

    method: str
    format: WeightFormat | None
    why: str = ""
    kv_cache_dtype: str | None = None
    plain_modules: tuple[str, ...] = ()  # left in 16 bit beyond head, embeddings, routers and norms


def parse_quantization(value: object) -> Quantization | None:
    """The facts in a config's ``quantization_config``, None when there is none; odd content is an unknown format."""
    if not isinstance(value, dict) or not value:
        return None
    method = value.get("quant_method") or ("modelopt" if value.get("quant_algo") else "")
    method = method.lower() if isinstance(method, str) and method else "unnamed"
    weight_format = _format(method, value)
    return Quantization(
        method=method,
        format=weight_format,
        why="" if weight_format else f"the bytes of weights quantised by {method!r} are not known from its config",
        kv_cache_dtype=_kv_cache_dtype(value),
        plain_modules=_plain_modules(value),
    )


def named_format(method: str) -> WeightFormat | None:
    """What a quantisation made while loading (a flag, not the checkpoint) holds; None when not known here."""
    return WeightFormat(name="fp8", bits=8) if method == "fp8" else None


def _format(method: str, value: Mapping[str, Any]) -> WeightFormat | None:
    if method == "fp8":
        return _fp8(value.get("weight_block_size"))
    if method in ("awq", "gptq"):
        return _grouped(method, value)
    if method == "modelopt" and value.get("quant_algo") == "FP8":
        return WeightFormat(name="fp8", bits=8)
    if method == "bitsandbytes" and value.get("load_in_8bit") is True:
        return WeightFormat(name="int8", bits=8)
    if method == "compressed-tensors":
        return _compressed(value)
    return None


def _fp8(block: object) -> WeightFormat | None:
    if block is None:
        return WeightFormat(name="fp8", bits=8)
    if not isinstance(block, list) or len(block) != 2:
        return None
    rows, columns = (_positive(part) for part in block)
    if rows is None or columns is None:
        return None
    return WeightFormat(name=f"fp8 in blocks of {rows} x {columns}", bits=8, block=(rows, columns))


def _grouped(method: str, value: Mapping[str, Any]) -> WeightFormat | None:
    bits = _positive(value.get("bits", value.get("w_bit")))
    group = value.get("group_size", value.get("q_group_size", 128))
    size = 1 << 31 if group == -1 else _positive(group)  # -1: one group per row
    if bits not in (2, 3, 4, 8) or size is None:
        return None
    return WeightFormat(
        name=f"int{bits} {method}", bits=bits, group_size=size, group_bits=16 + bits, input_index=method == "gptq"
    )


def _compressed(value: Mapping[str, Any]) -> WeightFormat | None:
    """compressed-tensors with one group of targets; packed int4 has a 16-bit scale per group."""
    groups = value.get("config_groups")
    group = next(iter(groups.values())) if isinstance(groups, dict) and len(groups) == 1 else None
    weights = group.get("weights") if isinstance(group, dict) else None
    if not isinstance(weights, dict):
        return None
    bits, kind, strategy = (weights.get(key) for key in ("num_bits", "type", "strategy"))
    if bits == 8 and kind in ("float", "int") and strategy in ("tensor", "channel"):
        return WeightFormat(name="fp8" if kind == "float" else "int8", bits=8)
    if bits == 8 and kind == "float" and strategy == "block":
        return _fp8(weights.get("block_structure"))
    size = _positive(weights.get("group_size"))
    if bits in (4, 8) and kind == "int" and strategy == "group" and size is not None:
        zero = 0 if weights.get("symmetric", True) is True else bits
        return WeightFormat(name=f"int{bits}", bits=bits, group_size=size, group_bits=16 + zero)
    return None


def _kv_cache_dtype(value: Mapping[str, Any]) -> str | None:
    """The KV format a checkpoint declares: an 8-bit float scheme is fp8, anything else keeps a name of its own."""
    scheme, algorithm = value.get("kv_cache_scheme"), value.get("kv_cache_quant_algo")
    if isinstance(scheme, dict):
        bits, kind = scheme.get("num_bits"), scheme.get("type")
        return "fp8" if (bits, kind) == (8, "float") else f"kv_cache_scheme {shown(kind)} of {shown(bits)} bits"
    if isinstance(algorithm, str) and algorithm:
        return algorithm.lower()
    return None


def _plain_modules(value: Mapping[str, Any]) -> tuple[str, ...]:
    names: list[str] = []
    for key in ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules"):
        listed = value.get(key)
        names += [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    return tuple(name for name in names if not name.rstrip("$*").endswith(_ALWAYS_PLAIN))


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 31 else None
