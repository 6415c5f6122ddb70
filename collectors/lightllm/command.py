"""Which command lines start a LightLLM server, and what they say of it: ``python -m lightllm.server.api_server``.

Source: ModelTC/LightLLM ``lightllm/server/api_cli.py``, 1.0 to 1.1.
"""

from collections.abc import Sequence

from collectors.discovery.command import ReadCommand, ReadFile, ServerCommand
from collectors.discovery.flags import FlagTable, read_flags
from collectors.discovery.programs import started

DEFAULT_PORT = 8000
_MODULE, _SCRIPT = "lightllm.server.api_server", "/lightllm/server/api_server.py"
_WITHOUT_MODEL = ("pd_master", "config_server", "visual", "visual_only")  # they hold no KV
_IDENTITY = frozenset({"run-mode", "host", "port", "model-dir", "model-name"})
_DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}

FLAGS = FlagTable(
    kinds={
        "run-mode": "text",
        "host": "text",
        "port": "whole",
        "model-dir": "text",
        "model-name": "text",
        "tp": "whole",
        "dp": "whole",
        "max-total-token-num": "whole",
        "mem-fraction": "number",
        "max-req-total-len": "whole",
        "running-max-req-size": "whole",
        "data-type": "text",
        "quant-type": "text",
        "llm-kv-type": "text",
        "disable-dynamic-prompt-cache": "switch",
        "disable-cudagraph": "switch",
    },
    # tp counts the ranks of all replicas, so dp is none of the agent's
    arguments={"tp": "tp", "data-type": "dtype", "quant-type": "quantization", "max-req-total-len": "max_model_len"},
)


def read_command(argv: Sequence[str], read: ReadFile) -> ServerCommand | None:
    """The server that a command line starts, None when it starts none that holds a model."""
    one = started(argv)
    if not (one.name == _MODULE if one.is_module else one.name.endswith(_SCRIPT)):
        return None
    values = read_flags(one.words, FLAGS)
    if values.get("run-mode") in _WITHOUT_MODEL:
        return None

    def text(name: str) -> str | None:
        value = values.get(name)
        return value if isinstance(value, str) else None

    port = values.get("port", DEFAULT_PORT)
    arguments = {name: value for name, value in values.items() if name not in _IDENTITY and value != "none"}
    if (dtype := text("data-type")) is not None:
        arguments["data-type"] = _DTYPES.get(dtype, dtype)
    return ServerCommand(
        model=text("model-dir"),
        served_name=text("model-name") or text("model-dir"),
        host=text("host"),
        port=port if isinstance(port, int) and 0 < port < 65536 else None,
        arguments=arguments,
        programs=one.programs,
    )


COMMAND = ReadCommand(marks=(b"lightllm",), read=read_command, package="lightllm")
