"""The web config as Prometheus' exporters read it: what is taken, and one sentence per mistake that shows no secret."""

import re
import ssl
from pathlib import Path
from typing import Any

import pytest

from agent.errors import InputError
from agent.web.web_config import WebConfig, load_web_config
from tests.agent.web.configs import HASH, MUTUAL, PASSWORD, SERVER, hash_of, write
from tests.promtool import promtool


def refusal(path: Path) -> str:
    """The one sentence, without the path that it starts with."""
    with pytest.raises(InputError) as caught:
        load_web_config(path)
    assert "\n" not in caught.value.message
    return caught.value.message.replace(f"{path.parent}/", "").removeprefix(f"{path.name}: ")


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "basic_auth_users:\nhttp_server_config:\n"])
def test_an_empty_file_is_plain_http_for_everybody(tmp_path: Path, text: str) -> None:
    """As without a file."""
    path = tmp_path / "web.yml"
    path.write_text(text)

    config = load_web_config(path)

    assert (config.tls, config.users, config.headers, config.proves_clients) == (None, {}, {}, False)


def full(folder: Path) -> Path:
    """A config with something of everything."""
    return write(
        folder,
        tls_server_config={
            **MUTUAL,
            "min_version": "TLS12",
            "max_version": "TLS13",
            "prefer_server_cipher_suites": False,
            "cipher_suites": ["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"],
        },
        http_server_config={
            "http2": False,
            "headers": {"Strict-Transport-Security": "max-age=31536000", "X-Frame-Options": "deny"},
        },
        basic_auth_users={"prometheus": HASH, "grafana": hash_of("another").replace("$2b$", "$2y$")},
    )


def test_everything_that_is_taken(tmp_path: Path) -> None:
    """TLS, client certificates, headers and users."""
    config = load_web_config(full(tmp_path))

    assert config.tls is not None
    suites = {cipher["name"] for cipher in config.tls.context.get_ciphers() if cipher["protocol"] != "TLSv1.3"}
    assert suites == {"ECDHE-ECDSA-AES128-GCM-SHA256"}
    assert config.tls.context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert config.tls.context.verify_mode is ssl.CERT_REQUIRED
    assert not config.tls.context.options & ssl.OP_CIPHER_SERVER_PREFERENCE
    assert config.headers == {"strict-transport-security": "max-age=31536000", "x-frame-options": "deny"}
    assert set(config.users) == {"prometheus", "grafana"}


def test_prometheus_takes_the_same_file(tmp_path: Path) -> None:
    """Its own checker has nothing to say about a config with something of everything."""
    promtool("check", "web-config", full(tmp_path))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"cert_file": "nowhere.pem"},
            "tls_server_config.cert_file: can't read nowhere.pem: No such file or directory; check path and permission",
        ),
        (
            {"key_file": "nowhere.key"},
            "tls_server_config.key_file: can't read nowhere.key: No such file or directory; check path and permission",
        ),
        (
            {"key_file": "renewed.key"},
            "tls_server_config.key_file: renewed.key is not that of the certificate in server.pem; give the two made "
            "together",
        ),
        (
            {"key_file": "encrypted.key"},
            "tls_server_config.key_file: encrypted.key is encrypted; give one without, that only the agent's user "
            "can read",
        ),
        (
            {"key_file": "README.md"},
            "tls_server_config.key_file: README.md holds no private key that can be read; expected one as PEM",
        ),
        (
            {"cert_file": "README.md"},
            "tls_server_config.cert_file: README.md holds no certificate that can be read; expected PEM",
        ),
        (
            {"client_ca_file": "server.key"},
            "tls_server_config.client_ca_file: server.key holds no certificate that can be read; expected PEM",
        ),
        (
            {"client_ca_file": "nowhere.pem"},
            "tls_server_config.client_ca_file: can't read nowhere.pem: No such file or directory; check path and "
            "permission",
        ),
        (
            {"client_ca_file": None},
            "tls_server_config: client_auth_type RequireAndVerifyClientCert needs a client_ca_file to verify clients "
            "with; add it",
        ),
        (
            {"client_auth_type": "NoClientCert"},
            "tls_server_config: client_ca_file is given, but no client_auth_type; add RequireAndVerifyClientCert",
        ),
        (
            {"client_auth_type": "RequireAnyClientCert"},
            "tls_server_config.client_auth_type: RequireAnyClientCert takes a certificate without verifying it, which "
            "is not offered here; use RequireAndVerifyClientCert",
        ),
        (
            {"client_auth_type": "Sometimes"},
            "tls_server_config.client_auth_type: expected one of NoClientCert, VerifyClientCertIfGiven, "
            "RequireAndVerifyClientCert, got 'Sometimes'",
        ),
        (
            {"client_auth_type": "VerifyClientCertIfGiven", "client_allowed_sans": ["a"]},
            "tls_server_config.client_allowed_sans: it needs client_auth_type RequireAndVerifyClientCert",
        ),
        (
            {"min_version": "TLS10"},
            "tls_server_config.min_version: expected TLS12 or TLS13, got 'TLS10'; older ones are not safe",
        ),
        (
            {"min_version": "TLS13", "max_version": "TLS12"},
            "tls_server_config: min_version TLS13 is above max_version TLS12; swap them",
        ),
        (
            {"max_version": "TLS12", "cipher_suites": ["TLS_AES_128_GCM_SHA256"]},
            "tls_server_config.cipher_suites: none of them is of TLS 1.2, but max_version is TLS12; raise it",
        ),
        ({"certfile": "x"}, "tls_server_config: key 'certfile' is not taken here; did you mean cert_file?"),
        (
            {"key": "-----BEGIN"},
            "tls_server_config: key 'key' is not taken here; write the key to a file and name it in key_file",
        ),
        (
            {"curve_preferences": ["X25519"]},
            "tls_server_config: key 'curve_preferences' is not taken here; leave it out, the curves are those of "
            "OpenSSL",
        ),
        ({"cert_file": 5}, "tls_server_config.cert_file: expected str, got int; put it right"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_a_mistake_in_tls_is_one_sentence(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    """What, where, what to do."""
    assert refusal(write(tmp_path, tls_server_config={**MUTUAL, **changes})) == sentence


def test_an_unsafe_suite_is_refused(tmp_path: Path) -> None:
    """Only what Go's crypto/tls holds secure, by its names."""
    path = write(tmp_path, tls_server_config={**SERVER, "cipher_suites": ["TLS_RSA_WITH_RC4_128_SHA"]})

    assert refusal(path).startswith(
        "tls_server_config.cipher_suites: 'TLS_RSA_WITH_RC4_128_SHA' is unknown or not safe; expected some of TLS_"
    )


def test_suites_of_tls_1_3_alone_mean_tls_1_3(tmp_path: Path) -> None:
    """As in Go, where no suite of TLS 1.2 is left then."""
    config = load_web_config(write(tmp_path, tls_server_config={**SERVER, "cipher_suites": ["TLS_AES_128_GCM_SHA256"]}))

    assert config.tls is not None
    assert config.tls.context.minimum_version is ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (
            {"basic_auth_users": {"prometheus": PASSWORD}},
            "basic_auth_users: user 'prometheus': expected a bcrypt hash of the password; make one with: "
            "htpasswd -nBC 10 NAME",
        ),
        (
            {"basic_auth_users": {"prometheus": HASH.replace("$04$", "$31$")}},
            "basic_auth_users: user 'prometheus': expected a bcrypt cost of 4 to 14, got 31; 10 is usual",
        ),
        (
            {"basic_auth_users": {"a:b": HASH}},
            "basic_auth_users: user 'a:b': expected a name without colon or control characters",
        ),
        ({"basic_auth_users": {"prometheus": 12345}}, "basic_auth_users[...]: expected str, got int; put it right"),
        ({"basic_auth_users": [HASH]}, "basic_auth_users: expected a mapping, got a list; put it right"),
        (
            {"http_server_config": {"headers": {"Server": "x"}}},
            "http_server_config.headers: 'Server' can't be set; expected some of content-security-policy, "
            "strict-transport-security, x-content-type-options, x-frame-options, x-xss-protection",
        ),
        (
            {"http_server_config": {"headers": {"X-Frame-Options": "maybe"}}},
            "http_server_config.headers: X-Frame-Options can only be deny or sameorigin",
        ),
        (
            {"http_server_config": {"headers": {"X-XSS-Protection": "1\r\nSet-Cookie: a=b"}}},
            "http_server_config.headers: X-XSS-Protection: expected one line of ASCII text",
        ),
        (
            {"rate_limit": {"burst": 1}},
            "key 'rate_limit' is not taken here; leave it out, what a client can cost is bounded already",
        ),
        (
            {"users": {}},
            "key 'users' is not taken here; expected one of tls_server_config, http_server_config, basic_auth_users",
        ),
        ({"tls_server_config": {"cert_file": "server.pem"}}, "tls_server_config: key 'key_file' is missing; add it"),
    ],
)
def test_another_mistake_is_one_sentence(tmp_path: Path, config: dict[str, Any], sentence: str) -> None:
    """What, where, what to do."""
    assert refusal(write(tmp_path, **config)) == sentence


@pytest.mark.parametrize(
    "text",
    [
        "basic_auth_users: {prometheus: *hunter2}",
        "basic_auth_users: {prometheus: !hunter2 x}",
        "basic_auth_users:\n  prometheus: 'hunter2\n",
        "basic_auth_users: {prometheus: hunter2}",
        "basic_auth_users: {prometheus: [hunter2]}",
        "basic_auth_users: hunter2",
        "hunter2",
        "tls_server_config: {cert_file: a, key_file: b, key: hunter2}",
    ],
)
def test_no_message_shows_a_value(tmp_path: Path, text: str) -> None:
    """A password written where a hash belongs stays unseen, also when the YAML around it is broken."""
    path = tmp_path / "web.yml"
    path.write_text(text)

    assert "hunter2" not in refusal(path)


def test_a_config_shows_no_hash_of_itself() -> None:
    """Neither whole nor in part."""
    config = WebConfig(users={"prometheus": HASH.encode()})

    assert HASH[7:] not in repr(config)
    assert not re.search(r"\$2", str(config))


def test_a_file_that_is_not_there_or_too_long_is_one_sentence(tmp_path: Path) -> None:
    """Nothing is read beyond 1 MiB."""
    path = tmp_path / "web.yml"
    assert refusal(path) == "can't read the web config: No such file or directory; check web_config_file"

    path.write_bytes(b"#" * (1 << 20) + b"#")
    assert refusal(path) == "can't read the web config: it has more than 1048576 bytes; check web_config_file"
