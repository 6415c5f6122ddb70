"""Asking a running agent: with basic auth and TLS, and one sentence where that fails."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.cli import run
from agent.web.web_file import WebFile
from tests.agent.web.configs import CERTIFICATES, HASH, PASSWORD, SERVER, write
from tests.agent.web.sample import node
from tests.agent.web.serve import FakeLatest, serving_on_loopback

CA = str(CERTIFICATES / "ca.pem")


def _asked(folder: Path, *options: str, **config: Any) -> int:
    """The exit code of ``vramscope snapshot`` at an agent with this web config."""
    latest = FakeLatest()
    latest.snapshot_json = msgspec.json.encode(node(0))
    web = WebFile(write(folder, **config)) if config else None
    with serving_on_loopback(latest, web=web) as base:
        return run(["snapshot", "--json", "--url", base, *options])


@pytest.fixture
def password_file(tmp_path: Path) -> str:
    path = tmp_path / "password"
    path.write_text(f"{PASSWORD}\n")
    return str(path)


def test_a_protected_agent_is_asked(tmp_path: Path, password_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With the authority that vouches for it, a name, and the password from a file."""
    options = ("--ca-file", CA, "--user", "prometheus", "--password-file", password_file)
    code = _asked(tmp_path, *options, tls_server_config=SERVER, basic_auth_users={"prometheus": HASH})

    assert code == 0
    assert msgspec.json.decode(capsys.readouterr().out)["schema"] == "vramscope.snapshot/1"


def test_wrong_credentials_are_said(tmp_path: Path, password_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1; the password is in no message."""
    users = {"prometheus": HASH}
    Path(password_file).write_text("wrong-horse")

    assert _asked(tmp_path, basic_auth_users=users) == 1
    assert _asked(tmp_path, "--user", "prometheus", "--password-file", password_file, basic_auth_users=users) == 1
    captured = capsys.readouterr()
    assert captured.err.count("answered 401; give the right --user and --password-file") == 2
    assert "wrong-horse" not in captured.err + captured.out


def test_an_unknown_authority_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the option that names it."""
    assert _asked(tmp_path, tls_server_config=SERVER) == 1
    assert "is not vouched for; give the authority's with --ca-file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--url", "a:b@h:1"), "--url carries a user name or password; give --user and --password-file instead"),
        (
            ("--url", "http://h/?key=b"),
            "--url: the server's URL has a query or fragment; expected the form http://HOST:PORT",
        ),
        (("--url", "http://a:b@h"), "--url carries a user name or password; give --user and --password-file instead"),
        (("--url", "http://h", "--user", "a"), "--user and --password-file belong together; give both"),
        (("--user", "a"), "--user, --password-file and --ca-file are of the agent at --url; give that too"),
        (("--url", "https://h", "--ca-file", "/nowhere"), "--ca-file /nowhere: expected certificates as PEM: No such"),
        (("--url", "https://h", "--ca-file", __file__), f"--ca-file {__file__}: expected certificates as PEM: "),
        (
            ("--url", "http://h", "--user", "a", "--password-file", "/nowhere"),
            "--password-file /nowhere: can't read it: No such file or directory",
        ),
    ],
)
def test_a_wrong_option_is_one_sentence(
    options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and no secret."""
    assert run(["snapshot", *options]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"vramscope: {message}")
    assert error.count("\n") == 1
    assert "a:b" not in error


def test_an_answer_without_a_bottom_is_no_snapshot(capsys: pytest.CaptureFixture[str]) -> None:
    """Arrays in arrays, deeper than anything reads."""
    latest = FakeLatest()
    latest.snapshot_json = b'{"x":' + b"[" * 100_000
    with serving_on_loopback(latest) as base:
        assert run(["snapshot", "--url", base]) == 1

    assert "answered something that is no vramscope.snapshot/1" in capsys.readouterr().err
