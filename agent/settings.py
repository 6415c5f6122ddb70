"""Settings of the agent: a YAML file, everything optional, every mistake answered by one sentence."""

import difflib
import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import yaml
from msgspec import Meta, Struct

from agent.errors import InputError
from agent.memory.arguments import ENGINES as PLANNED
from agent.memory.arguments import Arguments, from_flags
from agent.memory.budget import model_name
from agent.memory.model_config import parse_model
from agent.memory.risk import HEADROOM_RATIO
from agent.memory.units import shown
from collectors import strict_yaml
from collectors.engine_logs.journal import PREFIX as JOURNAL
from collectors.engine_logs.journal import matches_of
from collectors.errors import CollectorError
from collectors.http_text import is_host, parse_base_url
from collectors.model_files import read_model
from collectors.registry import ENGINES
from collectors.regular_file import read_regular

DEFAULT_LISTEN = "0.0.0.0:10175"
MAX_BYTES = 1 << 20
MAX_KEY_BYTES = 64 << 10
MAX_NAME = 200
MAX_PATH = 4096

UNNAMED = Arguments(engine="")
"""Of a server whose engine is not known yet."""

Seconds = Annotated[float, Meta(ge=0.1, le=3600)]


class Intervals(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rhythms in seconds: device memory, process lists, endpoints; ``settle``: how long memory must lie still."""

    memory: Seconds = 1.0
    processes: Seconds = 5.0
    endpoints: Seconds = 1.0
    settle: Seconds = 60.0


class ServerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One inference server. ``devices`` (UUIDs in rank order) matter only where its processes are not visible.

    ``engine``: found where it is None.
    """

    url: str
    engine: str | None = None
    name: str = ""
    model: str | None = None
    arguments: dict[str, int | float | str | bool] = {}
    devices: tuple[str, ...] = ()
    api_key_file: str | None = None
    log: str | None = None

    @property
    def label(self) -> str:
        """The server's name, by default made of model and port; of what is given, so it stays whatever is found."""
        model = model_name(self.model) if self.model else ""
        return self.name or f"{model or self.engine or 'server'}:{port_of(self.url)}"


class RecorderSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The flight recorder: how many minutes it keeps (0: none), and bytes for these and what was frozen of them."""

    minutes: Annotated[float, Meta(ge=0, le=1440)] = 30.0
    max_bytes: Annotated[int, Meta(ge=1 << 20, le=1 << 40)] = 256 << 20


class ThresholdSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the agent itself judges by; those of the alert rules are given to ``vramscope rules``."""

    headroom_ratio: Annotated[float, Meta(gt=0, lt=1)] = HEADROOM_RATIO


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    listen: str = DEFAULT_LISTEN
    intervals: Intervals = Intervals()
    discovery: bool = True
    servers: tuple[ServerSettings, ...] = ()
    web_config_file: str | None = None
    state_directory: str | None = None
    probe_directory: str | None = None
    recorder: RecorderSettings = RecorderSettings()
    thresholds: ThresholdSettings = ThresholdSettings()


def load_settings(path: Path) -> Settings:
    """Read and check a settings file.

    Raises:
        InputError: one sentence that names file, key, what was expected and what was there.
    """
    try:
        content = read_regular(path, max_bytes=MAX_BYTES)
    except OSError as error:
        raise InputError(f"{path}: can't read the settings file: {error.strerror}; check --config") from error
    return parse_settings(content, where=str(path))


def parse_settings(content: bytes, *, where: str) -> Settings:
    """Settings from YAML text; ``where`` names its origin in messages.

    Raises:
        InputError: see ``load_settings``.
    """
    try:
        document = strict_yaml.load(content)
    except ValueError as error:
        raise InputError(f"{where}: not valid YAML: {error}") from error
    try:
        settings = msgspec.convert({} if document is None else document, Settings)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: {_validation_problem(str(error), document)}") from error
    _check(settings, where)
    return settings


def as_yaml(settings: Settings) -> str:
    """The settings as a file that could be given again. Keys are never in them, only the names of their files."""
    document = msgspec.to_builtins(settings)
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def _validation_problem(message: str, document: object) -> str:
    """One sentence from msgspec's message: key, expected, got."""
    text, _, place = message.partition(" - at `")
    path = place.rstrip("`").removeprefix("$").lstrip(".")
    key = f"{path}: " if path else ""
    unknown = re.fullmatch(r"Object contains unknown field `(.+)`", text, re.DOTALL)
    if unknown:
        fields = _fields_at(path)
        close = difflib.get_close_matches(unknown[1], fields, n=1)
        hint = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(fields)}"
        return f"{key}unknown key {shown(unknown[1])}; {hint}"
    missing = re.fullmatch(r"Object missing required field `(.+)`", text, re.DOTALL)
    if missing:
        return f"{key}key {missing[1]!r} is missing; add it"
    wanted = re.sub(r"`([a-z]+)`", lambda found: _WORDS.get(found[1], found[1]), text.partition(", got")[0])
    wanted = wanted[0].lower() + wanted[1:].replace("`", "")
    return f"{key}{wanted}, got {shown(_value_at(document, path))}{_REMEDIES.get(path, '')}"


_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
}
_SECTIONS: Mapping[str, type[Struct]] = {
    "intervals": Intervals,
    "recorder": RecorderSettings,
    "thresholds": ThresholdSettings,
}
_REMEDIES = {"listen": '; write HOST:PORT, such as "0.0.0.0:10175"', "servers": "; write one - url: ... for each"}


def _fields_at(path: str) -> list[str]:
    if path.startswith("servers"):
        return list(ServerSettings.__struct_fields__)
    return list(_SECTIONS.get(path, Settings).__struct_fields__)


def _value_at(document: object, path: str) -> object:
    for key, number in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path):
        try:
            document = document[int(number)] if number else document[key]  # type: ignore[index] # any JSON value
        except (KeyError, IndexError, TypeError):
            return None
    return document


def _check(settings: Settings, where: str) -> None:
    parse_listen(settings.listen, where=f"{where}: listen")
    _check_path(settings.web_config_file, f"{where}: web_config_file")
    _check_path(settings.state_directory, f"{where}: state_directory")
    _check_path(settings.probe_directory, f"{where}: probe_directory")
    urls: dict[str, int] = {}
    names: dict[str, int] = {}
    for number, server in enumerate(settings.servers):
        place = f"{where}: servers[{number}]"
        check_server(server, place)
        for known, one, value, key in (
            (urls, _endpoint(server.url), server.url, "url"),
            (names, server.label, server.label, "name"),
        ):
            if one in known:
                raise InputError(
                    f"{place}: {key} {shown(value)} is that of servers[{known[one]}] too; keep one of them"
                )
            known[one] = number


def _endpoint(url: str) -> str:
    """The same text for the same endpoint: all loopback addresses of this host are one."""
    parts = parse_base_url(url)
    try:
        loopback = ipaddress.ip_address(parts.host).is_loopback
    except ValueError:
        loopback = parts.host == "localhost"
    return f"{'localhost' if loopback else parts.host}:{port_of(url)}{parts.path.rstrip('/')}"


def port_of(url: str) -> int:
    """The port of a checked base URL, that of its scheme where it names none."""
    parts = parse_base_url(url)
    return parts.port or {"http": 80, "https": 443}[parts.scheme]


def check_server(server: ServerSettings, place: str, *, options: bool = False) -> Arguments:
    """Check what types can't say, and translate the engine's flags; ``options``: they came as options, not as keys.

    Raises:
        InputError: one sentence that starts with ``place``.
    """
    where = place if options else f"{place}.url"
    try:
        url = parse_base_url(server.url)
    except ValueError as error:
        raise InputError(f"{where}: {error}") from error
    if url.path.rstrip("/").endswith("/metrics") or any(map(str.isspace, server.url)):
        raise InputError(f"{where}: expected a base URL such as http://127.0.0.1:8000, got {shown(server.url)}")
    if server.engine is not None and server.engine not in ENGINES:
        raise InputError(f"{place}.engine: expected one of {', '.join(ENGINES)}, got {shown(server.engine)}")
    for path, key in ((server.model, "model"), (server.api_key_file, "api_key_file"), (server.log, "log")):
        _check_path(path, f"--{key}" if options else f"{place}.{key}")
    if server.log is not None and server.log.startswith(JOURNAL):
        try:
            matches_of(server.log.removeprefix(JOURNAL))
        except ValueError as error:
            raise InputError(f"{place}.log: {error}, got {shown(server.log)}") from error
    if not server.label.isprintable() or len(server.label) > MAX_NAME:
        raise InputError(
            f"{place}.name: expected at most {MAX_NAME} characters that can be printed, got {shown(server.label)}"
        )
    try:
        return _given(server.arguments, server.engine)
    except ValueError as error:
        raise InputError(f"{place}.arguments: {error}") from error


def _given(flags: Mapping[str, object], engine: str | None) -> Arguments:
    """The engine's arguments; of one that is not known yet none, but some engine has to take the flags."""
    first = engine or next(iter(ENGINES))
    try:
        arguments = arguments_of(flags, engine=first)
    except ValueError:
        if engine is not None or not any(_takes(other, flags) for other in ENGINES):
            raise
        return UNNAMED
    return UNNAMED if engine is None else arguments


def _takes(engine: str, flags: Mapping[str, object]) -> bool:
    try:
        arguments_of(flags, engine=engine)
    except ValueError:
        return False
    return True


def arguments_of(flags: Mapping[str, object], *, engine: str) -> Arguments:
    """What a server was started with, from flags under its engine's names.

    Raises:
        ValueError: see ``from_flags``.
    """
    return from_flags(flags, engine=engine, own=None if engine in PLANNED else ENGINES[engine].flags.meanings)


def _check_path(path: str | None, place: str) -> None:
    if path is not None and (not path or "\0" in path or len(path) > MAX_PATH):
        raise InputError(f"{place}: expected the path of a file, got {shown(path)}")


def check_model(path: str, *, where: str) -> None:
    """Read a model's files and config once, before anything else is done.

    Raises:
        InputError: one sentence that starts with ``where``.
    """
    try:
        parse_model(read_model(Path(path)).config)
    except (CollectorError, ValueError) as error:
        raise InputError(f"{where}: {error}" if path in str(error) else f"{where} {path}: {error}") from error


def parse_listen(text: str, *, where: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``, ``[IPV6]:PORT`` or ``:PORT`` (all addresses).

    Raises:
        InputError: one sentence that starts with ``where``.
    """
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if (
        not colon
        or not port.isascii()
        or not port.isdigit()
        or len(port) > 5
        or int(port) > 65535
        or (":" in host and not bracketed)
    ):
        raise InputError(f"{where}: expected HOST:PORT with a port of 0 to 65535, got {shown(text)}")
    if not is_host(host):
        raise InputError(f"{where}: expected an address or a name of this host, got {shown(host)}")
    return (host[1:-1] if bracketed else host) or "0.0.0.0", int(port)  # noqa: S104 - scraped from other hosts


def state_directory(settings: Settings, environment: Mapping[str, str], *, is_root: bool) -> Path:
    """Where the agent keeps its state: as settings say, else systemd, else the usual place of this user."""
    if settings.state_directory is not None:
        return Path(settings.state_directory)
    if given := environment.get("STATE_DIRECTORY", "").partition(":")[0]:
        return Path(given)
    for variable, below in (("XDG_STATE_HOME", "vramscope"), ("HOME", ".local/state/vramscope")):
        if not is_root and environment.get(variable, "").startswith("/"):
            return Path(environment[variable]) / below
    return Path("/var/lib/vramscope")


def check_keys(settings: Settings, *, where: str) -> Settings:
    """The settings, once the key of each server that has one was read; ``where`` names their origin in messages.

    Raises:
        InputError: see ``read_api_key``.
    """
    for number, server in enumerate(settings.servers):
        if server.api_key_file is not None:
            place = f"{where}: servers[{number}].api_key_file: {server.api_key_file}"
            read_secret(Path(server.api_key_file), where=place)
    return settings


def read_api_key(server: ServerSettings) -> str | None:
    """The key in the server's ``api_key_file``, None without one.

    Raises:
        InputError: the file can't be read or is empty; the sentence never shows its content.
    """
    if server.api_key_file is None:
        return None
    return read_secret(Path(server.api_key_file), where=f"{server.label}: api_key_file {server.api_key_file}")


def read_secret(path: Path, *, where: str) -> str:
    """The one line in a file that a header can carry.

    Raises:
        InputError: the file can't be read or holds something else; the sentence never shows its content.
    """
    try:
        key = read_regular(path, max_bytes=MAX_KEY_BYTES).decode().strip()
    except OSError as error:
        raise InputError(f"{where}: can't read it: {error.strerror}; check path and permission") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: expected one line of text, got binary data") from error
    if not key or not key.isprintable() or not key.isascii():
        raise InputError(f"{where}: expected one line with the key; it is empty or has characters a header can't carry")
    return key
