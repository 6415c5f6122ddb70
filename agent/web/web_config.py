"""The web config: TLS, response headers and basic auth, in the file format of Prometheus' own exporters.

Format: prometheus/exporter-toolkit, docs/web-configuration.md. Messages never quote a value: it may be a secret.
"""

import difflib
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from agent.errors import InputError
from agent.memory.units import shown
from agent.web.tls import Tls, TlsSettings, open_tls
from collectors import strict_yaml
from collectors.regular_file import read_regular

MAX_BYTES = 1 << 20
MAX_COST = 14
"""Of a bcrypt hash: about a second on one core; each step up doubles it."""
BCRYPT_PATTERN = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")
HEADERS: Mapping[str, tuple[str, ...]] = {
    "content-security-policy": (),
    "strict-transport-security": (),
    "x-content-type-options": ("nosniff",),
    "x-frame-options": ("deny", "sameorigin"),
    "x-xss-protection": (),
}
"""The headers that may be set, with the values allowed where not all are."""
NOT_OFFERED = {
    "cert": "write the certificate to a file and name it in cert_file",
    "key": "write the key to a file and name it in key_file",
    "client_ca": "write the certificates to a file and name it in client_ca_file",
    "curve_preferences": "leave it out, the curves are those of OpenSSL",
    "rate_limit": "leave it out, what a client can cost is bounded already",
}


class HttpSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``http_server_config``. HTTP/1.1 is what is spoken, whatever ``http2`` says."""

    http2: bool = True
    headers: dict[str, str] | None = None


class _Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file as written."""

    tls_server_config: TlsSettings | None = None
    http_server_config: HttpSettings | None = None
    basic_auth_users: dict[str, str] | None = None


class WebConfig(Struct, frozen=True, kw_only=True):
    """What the server goes by. No ``tls`` is plain HTTP, no ``users`` (bcrypt hash by name) is no basic auth."""

    tls: Tls | None = None
    headers: Mapping[str, str] = {}
    users: Mapping[str, bytes] = {}

    def __repr__(self) -> str:
        return f"WebConfig(tls={self.tls is not None}, headers={dict(self.headers)}, <{len(self.users)} users>)"

    @property
    def protects(self) -> bool:
        """Whether there is TLS or basic auth at all."""
        return self.tls is not None or bool(self.users)

    @property
    def proves_clients(self) -> bool:
        """Whether a request that is answered comes from somebody known."""
        return bool(self.users) or (self.tls is not None and self.tls.proves_clients)


def load_web_config(path: Path) -> WebConfig:
    """Read a web config and every file that it names, relative ones from its own folder.

    Raises:
        InputError: one sentence that names file, key, what was expected and what to do.
    """
    settings = _read(path)
    tls = settings.tls_server_config
    headers = (settings.http_server_config or HttpSettings()).headers or {}
    return WebConfig(
        users={name: _hash(name, text, str(path)) for name, text in (settings.basic_auth_users or {}).items()},
        headers=dict(_header(name, value, str(path)) for name, value in headers.items() if value),
        tls=open_tls(tls, folder=path.parent, where=f"{path}: tls_server_config") if tls else None,
    )


def files_of(path: Path) -> tuple[Path, ...]:
    """The files that a web config is made of: itself and, as far as it can be read, those that it names."""
    try:
        tls = _read(path).tls_server_config
    except InputError:
        tls = None
    return (path, *(tls.files(path.parent) if tls else ()))


def _read(path: Path) -> _Settings:
    try:
        content = read_regular(path, max_bytes=MAX_BYTES)
    except OSError as error:
        raise InputError(f"{path}: can't read the web config: {error.strerror}; check web_config_file") from error
    try:
        document = strict_yaml.load(content)
    except ValueError as error:
        problem = re.sub(r"(['\"]).*\1", "...", str(error))
        raise InputError(f"{path}: not valid YAML: {problem}; put values in quotes where in doubt") from error
    try:
        return msgspec.convert({} if document is None else document, _Settings)
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: {_problem(str(error))}") from error


def _hash(name: str, text: str, where: str) -> bytes:
    place = f"{where}: basic_auth_users: user {shown(name)}"
    if not name or ":" in name or not name.isprintable():
        raise InputError(f"{place}: expected a name without colon or control characters")
    found = BCRYPT_PATTERN.fullmatch(text)
    if found is None:
        raise InputError(f"{place}: expected a bcrypt hash of the password; make one with: htpasswd -nBC 10 NAME")
    if not 4 <= int(found[1]) <= MAX_COST:
        raise InputError(f"{place}: expected a bcrypt cost of 4 to {MAX_COST}, got {found[1]}; 10 is usual")
    return text.encode()


def _header(name: str, value: str, where: str) -> tuple[str, str]:
    place = f"{where}: http_server_config.headers"
    if name.lower() not in HEADERS:
        raise InputError(f"{place}: {shown(name)} can't be set; expected some of {', '.join(HEADERS)}")
    allowed = HEADERS[name.lower()]
    if allowed and value not in allowed:
        raise InputError(f"{place}: {name} can only be {' or '.join(allowed)}")
    if not value.isascii() or not value.isprintable():
        raise InputError(f"{place}: {name}: expected one line of ASCII text")
    return name.lower(), value


def _problem(message: str) -> str:
    """One sentence from msgspec's message, which names types and keys, never values."""
    text, _, place = message.partition(" - at `")
    path = place.rstrip("`").removeprefix("$").lstrip(".")
    key = f"{path}: " if path else ""
    unknown = re.fullmatch(r"Object contains unknown field `(.+)`", text)
    if unknown:
        fields = _fields(path)
        close = difflib.get_close_matches(unknown[1], fields, n=1)
        hint = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(fields)}"
        return f"{key}key {shown(unknown[1])} is not taken here; {NOT_OFFERED.get(unknown[1], hint)}"
    missing = re.fullmatch(r"Object missing required field `(.+)`", text)
    if missing:
        return f"{key}key {missing[1]!r} is missing; add it"
    text = text.replace("`", "").replace(" | null", "").replace("object", "a mapping").replace("array", "a list")
    return f"{key}{text[0].lower()}{text[1:]}; put it right"


def _fields(path: str) -> tuple[str, ...]:
    kinds: Mapping[str, type[Struct]] = {"tls_server_config": TlsSettings, "http_server_config": HttpSettings}
    return kinds.get(path, _Settings).__struct_fields__
