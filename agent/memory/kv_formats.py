"""Formats of cached keys and values: bytes of a vector of so many elements.

A vector of d elements takes ``ceil(d x bytes / elements) + extra``: nvfp4 keeps 16 elements in 8 + 1 bytes, llama.cpp's
q8_0 32 in 34. Latents of MLA and records of compressed attention have layouts of their own in some formats: position-
free and rope elements apart. Sources: vLLM 0.33 v1/kv_cache_interface.py and the backends' customize_spec, llama.cpp
ggml block tables (gguf 0.19).
"""

from msgspec import Struct
from msgspec.structs import replace

from agent.memory.units import ceil_div


class Side(Struct, frozen=True, kw_only=True):
    """A vector's layout: ``elements`` in ``bytes``, and ``extra`` bytes for each vector."""

    elements: int = 1
    bytes: int
    extra: int = 0

    def of(self, elements: int) -> int:
        """Bytes of a vector."""
        return ceil_div(elements * self.bytes, self.elements) + self.extra

    def formula(self, elements: int) -> str:
        """The same as arithmetic."""
        whole = f"{elements} × {self.bytes}"
        if self.elements > 1:
            whole = f"ceil({whole} / {self.elements})"
        return f"{whole} + {self.extra}" if self.extra else whole


class Packed(Struct, frozen=True, kw_only=True):
    """A vector whose rope elements are kept apart from the others."""

    nope: Side
    rope: Side

    def of(self, nope: int, rope: int) -> int:
        return self.nope.of(nope) + self.rope.of(rope)

    def formula(self, nope: int, rope: int) -> str:
        return f"{self.nope.formula(nope)} + {self.rope.formula(rope)}"


class KvFormat(Struct, frozen=True, kw_only=True):
    """Layouts of one head's K and V; of a latent and of compressed attention's records where they are not plain K.

    ``window``: of the records of a window, where they differ from the others. ``multiple``: a head's K and V together
    are rounded up to so many bytes.
    """

    k: Side
    v: Side
    multiple: int = 1
    latent: Packed | None = None
    record: Packed | None = None
    window: Packed | None = None


def _plain(*, size: int, elements: int = 1, extra: int = 0) -> KvFormat:
    side = Side(elements=elements, bytes=size, extra=extra)
    return KvFormat(k=side, v=side)


def _turboquant(k_bits: int, v_bits: int) -> KvFormat:
    """K of 8 bits has no scale."""
    return KvFormat(
        k=Side(elements=8, bytes=k_bits, extra=0 if k_bits == 8 else 2),
        v=Side(elements=8, bytes=v_bits, extra=4),
        multiple=2,
    )


_SCALE_BYTES = 4
_BF16, _FP8 = Side(bytes=2), Side(bytes=1)
_NVFP4, _MXFP8 = Side(elements=16, bytes=9), Side(elements=32, bytes=33)
_MXFP8_RECORD = Packed(nope=_MXFP8, rope=_MXFP8)

FP8_INDEX = Side(elements=128, bytes=132)
MXFP4_INDEX = Side(elements=32, bytes=17)

FORMATS: dict[str, KvFormat] = {
    "bfloat16": _plain(size=2),
    "float16": _plain(size=2),
    "float32": _plain(size=4),
    "fp8": _plain(size=1),
    "fp8_e4m3": _plain(size=1),
    "fp8_e5m2": _plain(size=1),
    "int8": _plain(size=1),
    "int8_per_token_head": _plain(size=1, extra=_SCALE_BYTES),
    "fp8_per_token_head": _plain(size=1, extra=_SCALE_BYTES),
    "int4_per_token_head": _plain(size=1, elements=2, extra=_SCALE_BYTES),
    "nvfp4": _plain(size=9, elements=16),
    "turboquant_k8v4": _turboquant(8, 4),
    "turboquant_4bit_nc": _turboquant(4, 4),
    "turboquant_k3v4_nc": _turboquant(3, 4),
    "turboquant_3bit_nc": _turboquant(3, 3),
    "fp8_ds_mla": KvFormat(
        k=_FP8,
        v=_FP8,
        latent=Packed(nope=Side(elements=128, bytes=132), rope=_BF16),
        record=Packed(nope=Side(elements=64, bytes=65, extra=1), rope=_BF16),
    ),
    "mxfp8_ds_mla": KvFormat(k=_FP8, v=_FP8, record=_MXFP8_RECORD),
    "nvfp4_ds_mla": KvFormat(
        k=_NVFP4,
        v=_NVFP4,
        latent=Packed(nope=_NVFP4, rope=_FP8),
        record=Packed(nope=_NVFP4, rope=_NVFP4),
        window=_MXFP8_RECORD,
    ),
    "f16": _plain(size=2),
    "f32": _plain(size=4),
    "q8_0": _plain(size=34, elements=32),
    "q5_1": _plain(size=24, elements=32),
    "q5_0": _plain(size=22, elements=32),
    "q4_1": _plain(size=20, elements=32),
    "q4_0": _plain(size=18, elements=32),
    "iq4_nl": _plain(size=18, elements=32),
}
ALIASES = {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "float": "float32", "fp32": "float32"}

STATE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


def kv_format(name: str) -> KvFormat | None:
    """A KV format by any of its names; None when its layout is not known here."""
    return FORMATS.get(ALIASES.get(name, name))


def mixed(k: KvFormat, v: KvFormat) -> KvFormat:
    """K in one format and V in another."""
    return replace(k, v=v.v, multiple=max(k.multiple, v.multiple))
