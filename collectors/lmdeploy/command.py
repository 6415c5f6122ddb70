"""Which command lines start an LMDeploy server, and what they say of it: ``lmdeploy serve api_server MODEL``.

Source: InternLM/lmdeploy ``lmdeploy/cli/serve.py``, 0.9 to 0.14.
"""

from collections.abc import Sequence

from collectors.discovery.command import ReadCommand, ReadFile, ServerCommand
from collectors.discovery.flags import FlagTable, plain_text, read_flags
from collectors.discovery.programs import started

DEFAULT_PORT = 23333
_MODULES = frozenset({"lmdeploy", "lmdeploy.cli", "lmdeploy.cli.entrypoint"})
_IDENTITY = frozenset({"server-name", "server-port", "model-name", "revision", "download-dir", "ssl"})

FLAGS = FlagTable(
    kinds={
        "server-name": "text",
        "server-port": "whole",
        "model-name": "text",
        "revision": "text",
        "download-dir": "text",
        "ssl": "switch",
        "backend": "text",
        "tp": "whole",
        "dp": "whole",
        "session-len": "whole",
        "max-batch-size": "whole",
        "cache-max-entry-count": "number",
        "cache-block-seq-len": "whole",
        "quant-policy": "whole",
        "enable-prefix-caching": "switch",
    },
    arguments={"tp": "tp", "dp": "dp", "session-len": "max_model_len"},
)


def read_command(argv: Sequence[str], read: ReadFile) -> ServerCommand | None:
    """The server that a command line starts, None when it starts none; it names the model first."""
    one = started(argv)
    is_ours = one.name in _MODULES if one.is_module else one.program == "lmdeploy"
    if not is_ours or one.words[:2] != ("serve", "api_server"):
        return None
    words = one.words[2:]
    values = read_flags(words, FLAGS)

    def text(name: str) -> str | None:
        value = values.get(name)
        return value if isinstance(value, str) else None

    model = plain_text(words[0]) if words and not words[0].startswith("-") else None
    port = values.get("server-port", DEFAULT_PORT)
    return ServerCommand(
        model=model,
        revision=text("revision"),
        download_directory=text("download-dir"),
        served_name=text("model-name") or model,
        host=text("server-name"),
        port=port if isinstance(port, int) and 0 < port < 65536 else None,
        tls=values.get("ssl") is True,
        arguments={name: value for name, value in values.items() if name not in _IDENTITY},
        programs=one.programs,
    )


COMMAND = ReadCommand(marks=(b"lmdeploy",), read=read_command, package="lmdeploy")
