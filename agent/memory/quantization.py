"""How a checkpoint stores its weights: ``quantization_config`` turned into bits per weight and scales.

Bits per weight (weights + scales): FP8 in 128 x 128 blocks 8 + 32/16384 (scales of 8 bits: 8 + 8/16384); AWQ and GPTQ
int4 in groups of 128 4 + 16/128 + 4/128 (GPTQ adds a 32-bit index per input); MXFP4 4 + 8/32; NVFP4 4 + 8/16 and 32
bits a matrix; NF4 4 + 32/64, with its scales quantised once more 4 + 8/64 + 32/16384. Embeddings, head, norms and
routers stay in 16 bit, and so does what ``plain`` names.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from agent.memory.plain_modules import PlainModules, plain_modules
from agent.memory.units import ceil_div, shown


class WeightFormat(Struct, frozen=True, kw_only=True):
    """Layout of one quantised matrix: scales of groups, of blocks, of rows, or one of the matrix."""

    name: str
    bits: float
    group_size: int | None = None
    group_bits: float = 0  # scale and zero point of a group
    block: tuple[int, int] | None = None
    scale_bytes: int = 4
    rows_scaled: bool = False
    matrix_scales: int = 0  # of the whole matrix, beside those of its groups
    input_index: bool = False

    def matrix_bytes(self, rows: int, columns: int) -> int:
        """Bytes of a matrix of ``rows`` outputs and ``columns`` inputs, with its scales."""
        weights = -int(-rows * columns * self.bits // 8)
        if self.block:
            blocks = ceil_div(rows, self.block[0]) * ceil_div(columns, self.block[1])
            return weights + blocks * self.scale_bytes
        if self.group_size:
            groups = rows * ceil_div(columns, self.group_size)
            index = 4 * columns if self.input_index else 0
            return weights - int(-groups * self.group_bits // 8) + index + self.matrix_scales * self.scale_bytes
        return weights + (rows if self.rows_scaled else 1) * self.scale_bytes


FP8 = WeightFormat(name="fp8", bits=8)
FP8_ROWS = WeightFormat(name="fp8 per row", bits=8, rows_scaled=True)
INT8_ROWS = WeightFormat(name="int8 per row", bits=8, rows_scaled=True)
MXFP4 = WeightFormat(name="mxfp4", bits=4, group_size=32, group_bits=8)
NVFP4 = WeightFormat(name="nvfp4", bits=4, group_size=16, group_bits=8, matrix_scales=1)
NF4 = WeightFormat(name="nf4", bits=4, group_size=64, group_bits=32)
NF4_DOUBLE = WeightFormat(name="nf4, scales quantised", bits=4, group_size=64, group_bits=8 + 32 / 256)


class Quantization(Struct, frozen=True, kw_only=True):
    """Facts of a quantised checkpoint. ``format`` is None when its bits are not known here, and ``why`` says so.

    ``experts``: the format of experts where it is another; ``experts_only``: everything else stays in 16 bit;
    ``everything``: embeddings, norms and biases have the format too.
    """

    method: str
    format: WeightFormat | None
    why: str = ""
    kv_cache_dtype: str | None = None
    experts: WeightFormat | None = None
    experts_only: bool = False
    everything: bool = False
    plain: PlainModules = PlainModules()

    def of(self, module: str) -> WeightFormat | None:
        """The format of a module such as ``layers.3.mlp.experts.up_proj``; None: it stays in 16 bit."""
        expert = ".experts." in module
        if (self.experts_only and not expert) or self.plain.has(module):
            return None
        return self.experts if expert and self.experts else self.format


def parse_quantization(value: object, *, expert_dtype: object = None) -> Quantization | None:
    """The facts in a config's ``quantization_config``, None when there is none; odd content is an unknown format.

    Args:
        expert_dtype: what the config says of experts apart (DeepSeek V4).
    """
    if value is None or value == {}:
        return None
    if not isinstance(value, dict):
        return Quantization(
            method="unnamed",
            format=None,
            why=f"quantization_config is no object but {shown(value)}, so the bytes of weights are not known from it",
        )
    method = value.get("quant_method") or ("modelopt" if value.get("quant_algo") else "")
    method = method.lower() if isinstance(method, str) and method else "unnamed"
    weight_format = _format(method, value)
    fp4 = value.get("expert_dtype", expert_dtype) == "fp4"
    if fp4 and weight_format is not None and weight_format.block:
        weight_format = _with_short_scales(weight_format)
    return Quantization(
        method=method,
        format=weight_format,
        why="" if weight_format else f"the bytes of weights quantised by {method!r} are not known from its config",
        kv_cache_dtype=_kv_cache_dtype(value),
        experts=MXFP4 if fp4 else None,
        experts_only=method == "mxfp4",
        everything=method == "gguf",
        plain=plain_modules(value),
    )


def named_format(method: str) -> WeightFormat | None:
    """What a quantisation made while loading (a flag, not the checkpoint) holds; None when not known here."""
    return {"fp8": FP8, "bitsandbytes": NF4}.get(method)


def _format(method: str, value: Mapping[str, Any]) -> WeightFormat | None:
    if method == "fp8":
        return _fp8(value.get("weight_block_size"))
    if method in ("awq", "gptq", "auto-round"):
        return _grouped(method, value)
    if method == "modelopt":
        return _modelopt(value)
    if method == "bitsandbytes":
        return _bitsandbytes(value)
    if method == "compressed-tensors":
        return _compressed(value)
    if method == "gguf":
        return _mean(value.get("bits_per_weight"))
    return {"mxfp4": MXFP4, "fbgemm_fp8": FP8_ROWS}.get(method)


def _fp8(block: object) -> WeightFormat | None:
    if block is None:
        return FP8
    if not isinstance(block, list) or len(block) != 2:
        return None
    rows, columns = (_positive(part) for part in block)
    if rows is None or columns is None:
        return None
    return WeightFormat(name=f"fp8 in blocks of {rows} x {columns}", bits=8, block=(rows, columns))


def _with_short_scales(layout: WeightFormat) -> WeightFormat:
    """Checkpoints with FP4 experts store their FP8 scales as exponents of 8 bits (DeepSeek V4)."""
    return WeightFormat(name=layout.name, bits=layout.bits, block=layout.block, scale_bytes=1)


def _grouped(method: str, value: Mapping[str, Any]) -> WeightFormat | None:
    bits = _positive(value.get("bits", value.get("w_bit")))
    group = value.get("group_size", value.get("q_group_size", 128))
    size = 1 << 31 if group == -1 else _positive(group)  # -1: one group per row
    if bits not in (2, 3, 4, 8) or size is None:
        return None
    return WeightFormat(
        name=f"int{bits} {method}", bits=bits, group_size=size, group_bits=16 + bits, input_index=method != "awq"
    )


def _modelopt(value: Mapping[str, Any]) -> WeightFormat | None:
    algorithm = value.get("quant_algo")
    if algorithm == "NVFP4":
        return NVFP4 if value.get("group_size", 16) == 16 else None
    return {"FP8": FP8, "FP8_PER_CHANNEL_PER_TOKEN": FP8_ROWS}.get(algorithm) if isinstance(algorithm, str) else None


def _bitsandbytes(value: Mapping[str, Any]) -> WeightFormat | None:
    if value.get("load_in_8bit") is True:
        return INT8_ROWS
    if value.get("load_in_4bit") is True and value.get("bnb_4bit_quant_type", "fp4") in ("nf4", "fp4"):
        return NF4_DOUBLE if value.get("bnb_4bit_use_double_quant") is True else NF4
    return None


def _compressed(value: Mapping[str, Any]) -> WeightFormat | None:
    """compressed-tensors, where all groups of targets have one layout; packed int4 has a 16-bit scale per group."""
    groups = value.get("config_groups")
    layouts = {_compressed_group(group) for group in groups.values()} if isinstance(groups, dict) else set()
    return layouts.pop() if len(layouts) == 1 else None


def _compressed_group(group: object) -> WeightFormat | None:
    weights = group.get("weights") if isinstance(group, dict) else None
    if not isinstance(weights, dict):
        return None
    bits, kind, strategy = (weights.get(key) for key in ("num_bits", "type", "strategy"))
    if bits == 8 and kind in ("float", "int") and strategy in ("tensor", "channel"):
        rows = {"float": FP8_ROWS, "int": INT8_ROWS}
        whole = {"float": FP8, "int": WeightFormat(name="int8", bits=8)}
        return (rows if strategy == "channel" else whole)[kind]
    if bits == 8 and kind == "float" and strategy == "block":
        return _fp8(weights.get("block_structure"))
    size = _positive(weights.get("group_size"))
    if (bits, kind) == (4, "float"):
        return {(16, "tensor_group"): NVFP4, (32, "group"): MXFP4}.get((size, str(strategy))) if size else None
    if bits in (4, 8) and kind == "int" and strategy == "group" and size is not None:
        zero = 0 if weights.get("symmetric", True) is True else bits
        return WeightFormat(name=f"int{bits}", bits=bits, group_size=size, group_bits=16 + zero)
    return None


def _mean(bits: object) -> WeightFormat | None:
    """GGUF mixes types; the mean of its tensors."""
    if not isinstance(bits, int | float) or isinstance(bits, bool) or not 0 < bits <= 64:
        return None
    return WeightFormat(name=f"GGUF of {bits:g} bits on average", bits=bits, scale_bytes=0)


def _kv_cache_dtype(value: Mapping[str, Any]) -> str | None:
    """The KV format a checkpoint declares: an 8-bit float scheme is fp8, anything else keeps a name of its own."""
    scheme, algorithm = value.get("kv_cache_scheme"), value.get("kv_cache_quant_algo")
    if isinstance(scheme, dict):
        bits, kind = scheme.get("num_bits"), scheme.get("type")
        return "fp8" if (bits, kind) == (8, "float") else f"kv_cache_scheme {shown(kind)} of {shown(bits)} bits"
    if isinstance(algorithm, str) and algorithm:
        return algorithm.lower()
    return None


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 31 else None
