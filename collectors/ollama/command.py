"""Which command lines start an Ollama server, and which model one of its runners holds.

``ollama serve`` is set up by variables of its environment. It starts a process for each model that it loads, and ends
it when the model is unloaded: ``ollama runner --model BLOB`` up to 0.29, ``llama-server --model BLOB`` since 0.30.
Source: ollama/ollama ``envconfig``, ``llm/server.go``.
"""

import itertools
import re
from collections.abc import Sequence

from collectors.discovery.command import ReadCommand, ReadFile, ServerCommand, Value, split_assignments
from collectors.discovery.flags import plain_text, whole

DEFAULT_PORT = 11434
_ADDRESS = re.compile(r"(?:(?P<scheme>https?)://)?(?P<host>\[[^\]]*\]|[^:/]*)(?::(?P<port>\d{1,5}))?(?:/.*)?")
_RUNNERS = frozenset({"ollama", "ollama_llama_server", "llama-server"})
_MODEL_FLAGS = ("--model", "-m")
_NUMBERS = {"OLLAMA_CONTEXT_LENGTH": "context-length", "OLLAMA_NUM_PARALLEL": "num-parallel"}
_CACHE_TYPE = "OLLAMA_KV_CACHE_TYPE"
_HOST = "OLLAMA_HOST"


def read_command(argv: Sequence[str], read: ReadFile) -> ServerCommand | None:
    """The server that a command line starts, None when it starts none."""
    assigned, words = split_assignments(argv)
    if list(words[1:2]) != ["serve"] or words[0].rpartition("/")[2] != "ollama":
        return None
    host, port = _address(assigned.get(_HOST, ""))
    arguments: dict[str, Value] = {
        flag: number for name, flag in _NUMBERS.items() if (number := whole(assigned.get(name, ""))) is not None
    }
    if cache_type := plain_text(assigned.get(_CACHE_TYPE, "")):
        arguments["kv-cache-type"] = cache_type
    return ServerCommand(served_name="ollama", host=host, port=port, arguments=arguments, programs=(words[0],))


def model_of(title: str) -> str | None:
    """The file of the model that a process of the server holds, by its command line; None for other processes."""
    words = title.split()
    if not words or words[0].rpartition("/")[2] not in _RUNNERS:
        return None
    return next((value for flag, value in itertools.pairwise(words) if flag in _MODEL_FLAGS), None)


def _address(text: str) -> tuple[str | None, int | None]:
    """As Ollama reads it: with or without a scheme, a host or a port."""
    found = _ADDRESS.fullmatch(text.strip().strip("\"'"))
    if found is None:
        return None, DEFAULT_PORT
    usual = {"http": 80, "https": 443}.get(found["scheme"] or "", DEFAULT_PORT)
    port = int(found["port"]) if found["port"] else usual
    return found["host"].strip("[]") or None, port if 0 < port < 65536 else DEFAULT_PORT


COMMAND = ReadCommand(
    marks=(b"ollama",),
    read=read_command,
    package="",
    variables=(_HOST, _CACHE_TYPE, *_NUMBERS),
    parts=frozenset({"llama_cpp"}),
    model_of=model_of,
)
