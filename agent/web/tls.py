"""TLS of the HTTP server: a context from the files and options of a web config, with one sentence per mistake.

Options are those of Go's crypto/tls as exporter-toolkit names them; what Python's ssl can't do as told is refused.
"""

import ssl
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from msgspec import Struct

from agent.errors import InputError
from agent.memory.units import shown
from collectors.regular_file import read_regular

MAX_BYTES = 4 << 20
VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
CLIENT_POLICIES = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
UNVERIFIED_POLICIES = ("RequestClientCert", "RequireAnyClientCert", "RequireClientCert")
TLS13_SUITES = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
TLS12_SUITES = {
    f"TLS_ECDHE_{kind}_WITH_{suite}": f"ECDHE-{kind}-{name}"
    for kind in ("ECDSA", "RSA")
    for suite, name in (
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
        ("AES_128_CBC_SHA", "AES128-SHA"),
        ("AES_256_CBC_SHA", "AES256-SHA"),
    )
}
"""Go's names of the suites that its crypto/tls holds secure, and OpenSSL's for the same."""


class TlsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``tls_server_config`` of a web config."""

    cert_file: str
    key_file: str
    client_auth_type: str = "NoClientCert"
    client_ca_file: str | None = None
    client_allowed_sans: tuple[str, ...] = ()
    min_version: str = "TLS12"
    max_version: str = "TLS13"
    cipher_suites: tuple[str, ...] = ()
    prefer_server_cipher_suites: bool = True

    def files(self, folder: Path) -> tuple[Path, ...]:
        """Every file named, relative ones from ``folder``."""
        return tuple(folder / name for name in (self.cert_file, self.key_file, self.client_ca_file) if name)


class Tls(Struct, frozen=True, kw_only=True):
    """TLS in force: the context of new connections, and which client certificates are let in (empty: any verified)."""

    context: ssl.SSLContext
    allowed_names: frozenset[str]

    @property
    def proves_clients(self) -> bool:
        """Whether every client has shown a certificate that was verified."""
        return self.context.verify_mode is ssl.CERT_REQUIRED

    def allows(self, certificate: Mapping[str, Any] | None) -> bool:
        """Whether a verified client certificate, as ``getpeercert`` gives it, has one of the allowed names."""
        names = (certificate or {}).get("subjectAltName", ())
        return not self.allowed_names or any(_name(kind, name) in self.allowed_names for kind, name in names)


def open_tls(given: TlsSettings, *, folder: Path, where: str) -> Tls:
    """TLS as the settings say, with the certificates that are in their files now.

    Raises:
        InputError: one sentence that starts with ``where``; it never shows what is in a file.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_RENEGOTIATION
    if not given.prefer_server_cipher_suites:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    _set_versions(context, given, where)
    _set_suites(context, given, where)
    _load_pair(context, folder / given.cert_file, folder / given.key_file, where)
    _set_clients(context, given, folder, where)
    return Tls(context=context, allowed_names=frozenset(given.client_allowed_sans))


def _set_versions(context: ssl.SSLContext, given: TlsSettings, where: str) -> None:
    for key, version in (("min_version", given.min_version), ("max_version", given.max_version)):
        if version not in VERSIONS:
            raise InputError(f"{where}.{key}: expected TLS12 or TLS13, got {shown(version)}; older ones are not safe")
    if VERSIONS[given.min_version] > VERSIONS[given.max_version]:
        raise InputError(
            f"{where}: min_version {given.min_version} is above max_version {given.max_version}; swap them"
        )
    context.minimum_version = VERSIONS[given.min_version]
    context.maximum_version = VERSIONS[given.max_version]


def _set_suites(context: ssl.SSLContext, given: TlsSettings, where: str) -> None:
    """The suites of TLS 1.2; those of 1.3 are always all on, in Go too."""
    if not given.cipher_suites:
        return
    for name in given.cipher_suites:
        if name not in TLS12_SUITES and name not in TLS13_SUITES:
            known = ", ".join(TLS12_SUITES)
            raise InputError(f"{where}.cipher_suites: {shown(name)} is unknown or not safe; expected some of {known}")
    chosen = [TLS12_SUITES[name] for name in given.cipher_suites if name in TLS12_SUITES]
    if chosen:
        context.set_ciphers(":".join(chosen))
    elif context.maximum_version is ssl.TLSVersion.TLSv1_2:
        raise InputError(f"{where}.cipher_suites: none of them is of TLS 1.2, but max_version is TLS12; raise it")
    else:
        context.minimum_version = ssl.TLSVersion.TLSv1_3


def _load_pair(context: ssl.SSLContext, certificate: Path, key: Path, where: str) -> None:
    _check_readable(certificate, f"{where}.cert_file")
    _check_readable(key, f"{where}.key_file")
    asked: list[bool] = []

    def passphrase() -> bytes:
        asked.append(True)
        return b""

    try:
        context.load_cert_chain(certificate, key, password=passphrase)
    except ssl.SSLError as error:
        if asked:
            problem = f"key_file: {key} is encrypted; give one without, that only the agent's user can read"
        elif error.reason in ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"):
            problem = f"key_file: {key} is not that of the certificate in {certificate}; give the two made together"
        elif error.reason is not None and error.reason.startswith("EE_"):
            problem = (
                f"cert_file: {certificate} is too weak ({_reason(error)}); use RSA 2048 or P-256 and SHA-256 or better"
            )
        elif _holds_certificates(certificate):
            problem = f"key_file: {key} holds no private key that can be read; expected one as PEM"
        else:
            problem = f"cert_file: {certificate} holds no certificate that can be read; expected PEM"
        raise InputError(f"{where}.{problem}") from error


def _set_clients(context: ssl.SSLContext, given: TlsSettings, folder: Path, where: str) -> None:
    policy = given.client_auth_type
    if policy in UNVERIFIED_POLICIES:
        raise InputError(
            f"{where}.client_auth_type: {policy} takes a certificate without verifying it, which is not offered here; "
            "use RequireAndVerifyClientCert"
        )
    if policy not in CLIENT_POLICIES:
        raise InputError(f"{where}.client_auth_type: expected one of {', '.join(CLIENT_POLICIES)}, got {shown(policy)}")
    if given.client_allowed_sans and policy != "RequireAndVerifyClientCert":
        raise InputError(f"{where}.client_allowed_sans: it needs client_auth_type RequireAndVerifyClientCert")
    if given.client_ca_file is None and policy != "NoClientCert":
        raise InputError(f"{where}: client_auth_type {policy} needs a client_ca_file to verify clients with; add it")
    if given.client_ca_file is None:
        return
    if policy == "NoClientCert":
        raise InputError(f"{where}: client_ca_file is given, but no client_auth_type; add RequireAndVerifyClientCert")
    authority = folder / given.client_ca_file
    _check_readable(authority, f"{where}.client_ca_file")
    try:
        context.load_verify_locations(cafile=authority)
    except ssl.SSLError as error:
        raise InputError(
            f"{where}.client_ca_file: {authority} holds no certificate that can be read; expected PEM"
        ) from error
    context.verify_mode = CLIENT_POLICIES[policy]
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # every certificate of the file is trusted, as in Go


def _check_readable(path: Path, where: str) -> None:
    try:
        read_regular(path, max_bytes=MAX_BYTES)
    except OSError as error:
        raise InputError(f"{where}: can't read {path}: {error.strerror}; check path and permission") from error


def _holds_certificates(path: Path) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cafile=path)
    except ssl.SSLError:
        return False
    return True


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or "unknown reason").replace("_", " ").lower()


def _name(kind: str, name: str) -> str:
    return str(ip_address(name)) if kind == "IP Address" else name
