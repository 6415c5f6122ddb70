"""Which command lines start a vLLM server, and what they say of it.

``vllm serve MODEL``, also by an interpreter; ``python -m vllm.entrypoints.openai.api_server --model MODEL``; the
worker ``dynamo.vllm``; and the title ``VLLM::APIServer`` of a process that has overwritten its command line. Source:
vllm-project/vllm, ``entrypoints/cli``, ``entrypoints/openai/api_server.py``, ``utils/system_utils.py``, 0.6 to 0.33.
"""

import re
from collections.abc import Sequence

from collectors import strict_yaml
from collectors.discovery.command import ReadCommand, ReadFile, ServerCommand, split_assignments
from collectors.discovery.dynamo import SYSTEM_PORT, as_worker
from collectors.discovery.programs import started
from collectors.vllm.parsing import Flags, parse, words_of

DEFAULT_PORT = 8000
_TITLE = re.compile(r"\S+::APIServer(?:_DP(?P<rank>\d{1,6})|_\S*)?\s*")
_SCRIPT = "/vllm/entrypoints/openai/api_server.py"
_WITH_COMMAND = frozenset({"vllm.entrypoints.cli.main", "vllm.entrypoints.cli", "vllm"})
_WORKER = "dynamo.vllm"
_WITHOUT_COMMAND = frozenset({"vllm.entrypoints.openai.api_server", _WORKER})
_IDENTITY = frozenset({"model", "revision", "download-dir", "served-model-name", "host", "port", "uds", "ssl-certfile"})


def read_command(argv: Sequence[str], read: ReadFile) -> ServerCommand | None:
    """The server that a command line starts, None when it starts none; ``read`` gives a file that it names."""
    variables, argv = split_assignments(argv)
    if len(argv) == 1 and (title := _TITLE.fullmatch(argv[0])):
        return ServerCommand(named_by_title=True, rank=int(title["rank"]) if title["rank"] else None)
    programs, words, takes_model = _program(argv)
    if words is None:
        return None
    head = words[:1] if takes_model and words and not words[0].startswith("-") else ()
    settings, notes = _settings(words, read)
    flags = parse([*head, *settings, *words[len(head) :]])
    command = _command(flags, programs, takes_model=takes_model, notes=notes)
    return as_worker(command, variables) if started(argv).name == _WORKER else command


def _program(argv: Sequence[str]) -> tuple[tuple[str, ...], Sequence[str] | None, bool]:
    """The paths that were started, the words for the server (None: it is none), and whether a model may stand bare."""
    one = started(argv)
    if one.name.endswith(_SCRIPT) or one.name in _WITHOUT_COMMAND:
        return one.programs[:1], one.words, False
    is_ours = one.name in _WITH_COMMAND if one.is_module else one.program == "vllm"
    return one.programs, one.words[1:] if is_ours and one.words[:1] == ("serve",) else None, True


def _settings(words: Sequence[str], read: ReadFile) -> tuple[list[str], tuple[str, ...]]:
    """The words of the file behind ``--config``, which come before those of the command line."""
    if "--config" not in words[:-1]:
        return [], ()
    path = words[list(words).index("--config") + 1]
    try:
        document = strict_yaml.load(read(path))
    except (OSError, ValueError) as exc:
        why = exc.strerror.lower() if isinstance(exc, OSError) and exc.strerror else "it is not YAML as vLLM reads it"
        return [], (f"the flags in its --config {path[:200]} are not known: {why}",)
    return words_of(document) if isinstance(document, dict) else [], ()


def _command(flags: Flags, programs: tuple[str, ...], *, takes_model: bool, notes: tuple[str, ...]) -> ServerCommand:
    def text(name: str) -> str | None:
        value = flags.values.get(name)
        return value if isinstance(value, str) else None

    def whole(name: str) -> int | None:
        value = flags.values.get(name)
        return value if isinstance(value, int) else None

    model = (flags.bare if takes_model else None) or text("model")
    unreachable = _unreachable(flags)
    supervises = flags.values.get("data-parallel-multi-port-external-lb") is True
    first_rank = whole("data-parallel-start-rank")
    if first_rank is None:
        first_rank = (whole("node-rank") or 0) * (whole("data-parallel-size-local") or 0)
    return ServerCommand(
        model=model,
        revision=text("revision"),
        download_directory=text("download-dir"),
        served_name=text("served-model-name") or model,
        host=text("host"),
        port=(whole("port") if "port" in flags.values else DEFAULT_PORT) or None,
        has_endpoint=unreachable is None,
        tls="ssl-certfile" in flags.values,
        arguments={name: value for name, value in flags.values.items() if name not in _IDENTITY},
        programs=programs,
        rank=first_rank if supervises else None,
        supervises=supervises,
        notes=(*notes, unreachable) if unreachable else notes,
    )


def _unreachable(flags: Flags) -> str | None:
    """Why no metrics can be read over TCP."""
    if flags.values.get("headless") is True:
        return "it runs with --headless: its metrics are those of the server on the first node"
    if "uds" in flags.values:
        return "it listens on a Unix socket (--uds), which is not read: its metrics are not known"
    if flags.values.get("grpc") is True:
        return "it serves gRPC instead of HTTP (--grpc): its metrics are not known"
    return None


COMMAND = ReadCommand(marks=(b"vllm", b"::APIServer"), read=read_command, package="vllm", variables=(SYSTEM_PORT,))
