"""llama.cpp's log, and Ollama's, which has the lines of a llama.cpp and those of its own runner. Sizes are MiB, by
backend buffer: ``CUDA0`` is the first device of the process; all on the host counts for no device. Source:
ggml-org/llama.cpp, ``src/llama-context.cpp``, ``src/llama-kv-cache.cpp``, ``src/llama-model.cpp``; ollama/ollama,
``ml/device.go``.
"""

import re

from collectors.engine_logs.shapes import LogFormat, Shape, Where, shape

_SIZE = r"\d{1,9}(?:\.\d{1,6})?"
_DEVICE = re.compile(r"(?:^|[\s=\"])(?:CUDA|ROCm|Vulkan|SYCL|MUSA|CANN)(\d{1,3})(?=[\s\"]|$)")


def _where(line: str) -> Where:
    """The buffer that a line is about: the first one it names."""
    found = _DEVICE.search(line[:400])
    return int(found[1]) if found else None


def _buffer(word: str, field: str) -> Shape:
    return shape(
        f"{word} buffer size", rf"{word} buffer size\s{{0,4}}=\s{{0,12}}(?P<{field}_mib>{_SIZE}) MiB", combine="sum"
    )


_SHAPES = (
    _buffer("model", "weights"),
    _buffer("LoRA", "weights"),
    _buffer("KV", "kv_pool"),
    _buffer("RS", "state"),
    _buffer("compute", "activations"),
    _buffer("output", "activations"),
    shape(
        "+ (",
        r"\| {1,40}\d{1,9} = {1,12}\d{1,9} \+ \( {0,12}\d{1,9} = {1,12}(?P<weights_mib>\d{1,9}) \+ {1,12}"
        r"(?P<kv_pool_mib>\d{1,9}) \+ {1,12}(?P<activations_mib>\d{1,9})\)",
        versions="the table at the end of a run; its context is the KV pool and states",
    ),
)
LLAMA_CPP = LogFormat(
    title="llama.cpp",
    starts=(b"load_model: loading model", b"system_info: n_threads"),
    ready=(b"listening on http", b"all slots are idle"),
    again=(b"fitting params to free memory took", b"successfully fit params to free device memory"),
    where=_where,
    shapes=_SHAPES,
    hint="its log states no sizes: start llama-server with --verbosity 4",
)


def _runner(word: str, field: str) -> Shape:
    """A line of Ollama's own runner: ``msg="kv cache" device=CUDA0 size="936.0 MiB"``."""
    sizes = "|".join(rf"(?P<{field}_{unit.lower()}>{_SIZE}) {unit}" for unit in ("GiB", "MiB", "KiB"))
    return shape(word, rf'msg="{word}".{{0,80}}? size="(?:{sizes})"', versions="0.11 to 0.29")


OLLAMA = LogFormat(
    title="Ollama",
    starts=(b"starting runner", b"starting llama server", b"starting llama-server", *LLAMA_CPP.starts),
    port=re.compile(r'msg="starting (?:runner|llama[ -]server)".{0,3500}? --port (\d{1,5})(?!\d)'),
    again=LLAMA_CPP.again,
    where=_where,
    several_models=True,
    shapes=(
        _runner("model weights", "weights"),
        _runner("kv cache", "kv_pool"),
        _runner("compute graph", "activations"),
        *_SHAPES,
    ),
)
