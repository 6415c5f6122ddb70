"""Which command lines start a llama.cpp server, and what they say of it: ``llama-server -m MODEL.gguf``.

Its flags stand in variables of the environment as well; the command line wins. Source: ggml-org/llama.cpp
``common/arg.cpp``, b11549.
"""

import re
from collections.abc import Mapping, Sequence

from collectors.discovery.command import ReadCommand, ReadFile, ServerCommand, Value, split_assignments
from collectors.discovery.flags import FlagTable, read_flags

DEFAULT_PORT = 8080
_PROGRAM = re.compile(r"llama-server(?:-[a-z0-9]+)?")
_IDENTITY = frozenset({"model", "hf-repo", "alias", "host", "port", "ssl-cert-file"})

FLAGS = FlagTable(
    kinds={
        "model": "text",
        "hf-repo": "text",
        "alias": "text",
        "host": "text",
        "port": "whole",
        "ssl-cert-file": "text",
        "ctx-size": "whole",
        "parallel": "whole",
        "ubatch-size": "whole",
        "cache-type-k": "text",
        "cache-type-v": "text",
        "kv-unified": "switch",
        "swa-full": "switch",
        "gpu-layers": "text",
        "sleep-idle-seconds": "whole",
        "lora": "text",
        "lora-scaled": "text",
    },
    aliases={
        "m": "model",
        "hf": "hf-repo",
        "hfr": "hf-repo",
        "a": "alias",
        "c": "ctx-size",
        "np": "parallel",
        "n-parallel": "parallel",
        "ub": "ubatch-size",
        "ctk": "cache-type-k",
        "ctv": "cache-type-v",
        "kvu": "kv-unified",
        "no-kvu": "no-kv-unified",
        "ngl": "gpu-layers",
        "n-gpu-layers": "gpu-layers",
    },
)
VARIABLES = {
    "LLAMA_ARG_MODEL": "model",
    "LLAMA_ARG_HF_REPO": "hf-repo",
    "LLAMA_ARG_ALIAS": "alias",
    "LLAMA_ARG_HOST": "host",
    "LLAMA_ARG_PORT": "port",
    "LLAMA_ARG_SSL_CERT_FILE": "ssl-cert-file",
    "LLAMA_ARG_CTX_SIZE": "ctx-size",
    "LLAMA_ARG_N_PARALLEL": "parallel",
    "LLAMA_ARG_UBATCH": "ubatch-size",
    "LLAMA_ARG_CACHE_TYPE_K": "cache-type-k",
    "LLAMA_ARG_CACHE_TYPE_V": "cache-type-v",
    "LLAMA_ARG_KV_UNIFIED": "kv-unified",
    "LLAMA_ARG_N_GPU_LAYERS": "gpu-layers",
}
_OFF = frozenset({"0", "false", "off", "disabled"})


def read_command(argv: Sequence[str], read: ReadFile) -> ServerCommand | None:
    """The server that a command line starts, None when it starts none."""
    assigned, words = split_assignments(argv)
    if not words or not _PROGRAM.fullmatch(words[0].rpartition("/")[2]):
        return None
    values = read_flags([*_as_flags(assigned), *words[1:]], FLAGS)
    model, port, host = _text(values, "model"), values.get("port", DEFAULT_PORT), _text(values, "host")
    over_socket = host is not None and host.endswith(".sock")
    return ServerCommand(
        model=model,
        served_name=_text(values, "alias") or model or _text(values, "hf-repo"),
        host=host,
        port=port if isinstance(port, int) and 0 < port < 65536 and not over_socket else None,
        has_endpoint=not over_socket,
        tls="ssl-cert-file" in values,
        arguments={name: value for name, value in values.items() if name not in _IDENTITY},
        programs=(words[0],),
        notes=("it listens on a Unix socket, which is not read: its metrics are not known",) if over_socket else (),
    )


def _as_flags(assigned: Mapping[str, str]) -> list[str]:
    """Variables as the flags they stand for."""
    words = []
    for variable, flag in VARIABLES.items():
        value = assigned.get(variable)
        if value is None:
            continue
        if FLAGS.kinds[flag] == "switch":
            words.append(f"--no-{flag}" if value.lower() in _OFF else f"--{flag}")
        else:
            words.append(f"--{flag}={value}")
    return words


def _text(values: Mapping[str, Value], name: str) -> str | None:
    value = values.get(name)
    return value if isinstance(value, str) else None


COMMAND = ReadCommand(marks=(b"llama-server",), read=read_command, package="", variables=tuple(VARIABLES))
