"""Which command lines start a NIM for LLMs up to 1.x: ``python3 -m nim_llm_sdk.entrypoints.launch``, below its script.

What it starts then, an API server of its own or an engine's, is part of it. The settings of its container are in
variables; a flag wins. From 2.0 on its processes are a proxy and a plain engine, which is found as that engine. Source:
``/opt/nim/start_server.sh`` of NIM 1.x as published by its users; NVIDIA's NIM for LLMs documentation, "Architecture"
(2.1) and "Configuration" (1.14).
"""

from collections.abc import Sequence

from collectors.discovery.command import ReadCommand, ReadFile, ServerCommand, split_assignments
from collectors.discovery.flags import FlagTable, read_flags
from collectors.discovery.programs import started

DEFAULT_PORT = 8000
_MODULES = frozenset(
    {
        "nim_llm_sdk.entrypoints.launch",
        "nim_llm_sdk.entrypoints.openai.api_server",
        "vllm_nvext.entrypoints.openai.api_server",
    }
)
_IDENTITY = frozenset({"host", "port", "model", "served-model-name"})
VARIABLES = {
    "NIM_SERVER_PORT": "port",
    "NIM_MODEL_NAME": "model",
    "NIM_SERVED_MODEL_NAME": "served-model-name",
    "NIM_TENSOR_PARALLEL_SIZE": "tensor-parallel-size",
    "NIM_MAX_MODEL_LEN": "max-model-len",
}

FLAGS = FlagTable(
    kinds={
        "host": "text",
        "port": "whole",
        "model": "text",
        "served-model-name": "text",
        "tensor-parallel-size": "whole",
        "pipeline-parallel-size": "whole",
        "max-model-len": "whole",
        "quantization": "text",
        "gpu-memory-utilization": "number",
    },
    arguments={
        "tensor-parallel-size": "tp",
        "pipeline-parallel-size": "pp",
        "max-model-len": "max_model_len",
        "quantization": "quantization",
    },
)


def read_command(argv: Sequence[str], read: ReadFile) -> ServerCommand | None:
    """The server that a command line starts, None when it starts none."""
    assigned, words = split_assignments(argv)
    one = started(words)
    if not one.is_module or one.name not in _MODULES:
        return None
    given = [f"--{flag}={assigned[name]}" for name, flag in VARIABLES.items() if name in assigned]
    values = read_flags([*given, *one.words], FLAGS)

    def text(name: str) -> str | None:
        value = values.get(name)
        return value if isinstance(value, str) else None

    port = values.get("port", DEFAULT_PORT)
    return ServerCommand(
        model=text("model"),
        served_name=text("served-model-name") or text("model"),
        host=text("host"),
        port=port if isinstance(port, int) and 0 < port < 65536 else None,
        arguments={name: value for name, value in values.items() if name not in _IDENTITY},
        programs=one.programs,
    )


COMMAND = ReadCommand(
    marks=(b"nim_llm_sdk", b"vllm_nvext"),
    read=read_command,
    package="",
    variables=tuple(VARIABLES),
    parts=frozenset({"nim", "vllm", "sglang", "tensorrt_llm"}),
)
