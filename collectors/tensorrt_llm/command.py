"""Which command lines start a trtllm-serve, and what they say of it: ``trtllm-serve [serve] MODEL``.

Source: NVIDIA/TensorRT-LLM ``tensorrt_llm/commands/serve.py``, 0.16 to 1.3.
"""

from collections.abc import Sequence

from collectors.discovery.command import ReadCommand, ReadFile, ServerCommand, Value
from collectors.discovery.flags import FlagTable, plain_text, read_flags
from collectors.discovery.programs import started

DEFAULT_PORT = 8000
_MODULE = "tensorrt_llm.commands.serve"
_IDENTITY = frozenset({"host", "port"})

FLAGS = FlagTable(
    kinds={
        "host": "text",
        "port": "whole",
        "backend": "text",
        "tp-size": "whole",
        "pp-size": "whole",
        "ep-size": "whole",
        "max-batch-size": "whole",
        "max-num-tokens": "whole",
        "max-seq-len": "whole",
        "kv-cache-free-gpu-memory-fraction": "number",
        "kv-cache-dtype": "text",
    },
    aliases={
        "tensor-parallel-size": "tp-size",
        "pipeline-parallel-size": "pp-size",
        "free-gpu-memory-fraction": "kv-cache-free-gpu-memory-fraction",
    },
    arguments={"tp-size": "tp", "pp-size": "pp", "max-seq-len": "max_model_len", "kv-cache-dtype": "kv_cache_dtype"},
)


def read_command(argv: Sequence[str], read: ReadFile) -> ServerCommand | None:
    """The server that a command line starts, None when it starts none; it names the model first."""
    one = started(argv)
    is_ours = one.name == _MODULE if one.is_module else one.program == "trtllm-serve"
    words = one.words[1:] if one.words[:1] == ("serve",) else one.words
    if not is_ours or not words or words[0] in ("disaggregated", "disaggregated_mpi_worker", "mm_embedding_serve"):
        return None
    values = read_flags(words, FLAGS)
    model = plain_text(words[0]) if not words[0].startswith("-") else None
    port, host = values.get("port", DEFAULT_PORT), values.get("host")
    arguments: dict[str, Value] = {name: value for name, value in values.items() if name not in _IDENTITY}
    return ServerCommand(
        model=model,
        served_name=model,
        host=host if isinstance(host, str) else None,
        port=port if isinstance(port, int) and 0 < port < 65536 else None,
        arguments=arguments,
        programs=one.programs,
    )


COMMAND = ReadCommand(marks=(b"trtllm-serve", b"tensorrt_llm"), read=read_command, package="tensorrt_llm")
