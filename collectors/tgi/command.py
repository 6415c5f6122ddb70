"""Which command lines start a TGI server, and what they say of it: ``text-generation-launcher --model-id MODEL``.

Its flags stand in variables of the environment as well, under their names in capitals; the command line wins. Source:
huggingface/text-generation-inference ``launcher/src/main.rs``.
"""

from collections.abc import Mapping, Sequence

from collectors.discovery.command import ReadCommand, ReadFile, ServerCommand, Value, split_assignments
from collectors.discovery.flags import FlagTable, read_flags

DEFAULT_PORT = 3000
_IDENTITY = frozenset({"model-id", "revision", "huggingface-hub-cache", "hostname", "port"})

FLAGS = FlagTable(
    kinds={
        "model-id": "text",
        "revision": "text",
        "huggingface-hub-cache": "text",
        "hostname": "text",
        "port": "whole",
        "num-shard": "whole",
        "quantize": "text",
        "dtype": "text",
        "kv-cache-dtype": "text",
        "max-total-tokens": "whole",
        "max-batch-total-tokens": "whole",
        "cuda-memory-fraction": "number",
    },
    aliases={"p": "port"},
    arguments={
        "num-shard": "tp",
        "quantize": "quantization",
        "dtype": "dtype",
        "max-total-tokens": "max_model_len",
    },
)
# HOSTNAME is not among them: every container has it.
VARIABLES = {
    flag.upper().replace("-", "_"): flag
    for flag in FLAGS.kinds
    if flag not in ("hostname", "revision", "huggingface-hub-cache")
}


def read_command(argv: Sequence[str], read: ReadFile) -> ServerCommand | None:
    """The server that a command line starts, None when it starts none."""
    assigned, words = split_assignments(argv)
    if not words or words[0].rpartition("/")[2] != "text-generation-launcher":
        return None
    given = [f"--{flag}={assigned[name]}" for name, flag in VARIABLES.items() if name in assigned]
    values = read_flags([*given, *words[1:]], FLAGS)
    model, port = _text(values, "model-id"), values.get("port", DEFAULT_PORT)
    return ServerCommand(
        model=model,
        revision=_text(values, "revision"),
        download_directory=_text(values, "huggingface-hub-cache"),
        served_name=model,
        host=_text(values, "hostname"),
        port=port if isinstance(port, int) and 0 < port < 65536 else None,
        arguments={name: value for name, value in values.items() if name not in _IDENTITY},
        programs=(words[0],),
    )


def _text(values: Mapping[str, Value], name: str) -> str | None:
    value = values.get(name)
    return value if isinstance(value, str) else None


COMMAND = ReadCommand(marks=(b"text-generation-launcher",), read=read_command, package="", variables=tuple(VARIABLES))
