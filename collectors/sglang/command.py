"""Which command lines start an SGLang server, and what they say of it.

``python -m sglang.launch_server --model-path MODEL`` and ``sglang serve --model-path MODEL``. Source: SGLang
``launch_server.py``, ``cli/main.py``, ``srt/server_args.py``, 0.4.6 to 0.5.23.
"""

from collections.abc import Sequence

from collectors.discovery.command import ReadCommand, ReadFile, ServerCommand, Value, split_assignments
from collectors.discovery.dynamo import SYSTEM_PORT, as_worker
from collectors.discovery.flags import FlagTable, read_flags
from collectors.discovery.programs import Started, started

DEFAULT_PORT = 30000
_MODULE = "sglang.launch_server"
_WORKER = "dynamo.sglang"
_SCRIPT = "/sglang/launch_server.py"
_COMMANDS = frozenset({"sglang.cli.main", "sglang"})
_IDENTITY = frozenset({"model-path", "revision", "download-dir", "served-model-name", "host", "port", "ssl-certfile"})

FLAGS = FlagTable(
    kinds={
        "model-path": "text",
        "revision": "text",
        "download-dir": "text",
        "served-model-name": "text",
        "host": "text",
        "port": "whole",
        "ssl-certfile": "text",
        "tp-size": "whole",
        "pp-size": "whole",
        "dp-size": "whole",
        "dcp-size": "whole",
        "enable-dp-attention": "switch",
        "dtype": "text",
        "quantization": "text",
        "kv-cache-dtype": "text",
        "page-size": "whole",
        "context-length": "whole",
        "mem-fraction-static": "number",
        "chunked-prefill-size": "whole",
        "max-running-requests": "whole",
        "max-total-tokens": "whole",
        "swa-full-tokens-ratio": "number",
        "mamba-full-memory-ratio": "number",
        "disable-cuda-graph": "switch",
        "disable-radix-cache": "switch",
        "speculative-algorithm": "text",
        "cpu-offload-gb": "number",
    },
    aliases={
        "model": "model-path",
        "tp": "tp-size",
        "tensor-parallel-size": "tp-size",
        "pp": "pp-size",
        "pipeline-parallel-size": "pp-size",
        "dp": "dp-size",
        "data-parallel-size": "dp-size",
    },
)


def read_command(argv: Sequence[str], read: ReadFile) -> ServerCommand | None:
    """The server that a command line starts, None when it starts none."""
    variables, argv = split_assignments(argv)
    one = started(argv)
    words = _words(one)
    if words is None:
        return None
    values = read_flags(words, FLAGS)
    model = _text(values, "model-path")
    port = values.get("port", DEFAULT_PORT)
    command = ServerCommand(
        model=model,
        revision=_text(values, "revision"),
        download_directory=_text(values, "download-dir"),
        served_name=_text(values, "served-model-name") or model,
        host=_text(values, "host"),
        port=port if isinstance(port, int) and 0 < port < 65536 else None,
        tls="ssl-certfile" in values,
        arguments=_arguments(values),
        programs=one.programs,
    )
    return as_worker(command, variables) if one.name == _WORKER else command


def _words(one: Started) -> Sequence[str] | None:
    if one.name.endswith(_SCRIPT) or (one.is_module and one.name in (_MODULE, _WORKER)):
        return one.words
    is_ours = one.name in _COMMANDS if one.is_module else one.program == "sglang"
    return one.words[1:] if is_ours and one.words[:1] == ("serve",) else None


def _arguments(values: dict[str, Value]) -> dict[str, Value]:
    arguments = {name: value for name, value in values.items() if name not in _IDENTITY}
    if arguments.pop("disable-radix-cache", False):
        arguments["prefix-caching"] = False
    return arguments


def _text(values: dict[str, Value], name: str) -> str | None:
    value = values.get(name)
    return value if isinstance(value, str) else None


COMMAND = ReadCommand(marks=(b"sglang",), read=read_command, package="sglang", variables=(SYSTEM_PORT,))
