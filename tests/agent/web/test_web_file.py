"""A web config that follows its files."""

import logging
import os
import shutil
from pathlib import Path

import pytest

from agent.errors import InputError
from agent.web import web_file
from agent.web.web_config import WebConfig
from agent.web.web_file import WebFile
from tests.agent.web.configs import CERTIFICATES, HASH, SERVER, write


def settle(web: WebFile) -> WebConfig:
    """What is in force after two looks, which a change needs."""
    web.refresh()
    web.refresh()
    return web.config


def renew(folder: Path) -> None:
    """The certificate and key in a folder become others."""
    shutil.copy(CERTIFICATES / "renewed.pem", folder / "server.pem")
    shutil.copy(CERTIFICATES / "renewed.key", folder / "server.key")


def test_unchanged_files_are_not_read_again(tmp_path: Path) -> None:
    """The same object stays in force."""
    web = WebFile(write(tmp_path, tls_server_config=SERVER))
    before = web.config

    assert settle(web) is before
    assert web.scheme == "https"


def test_a_renewed_certificate_comes_into_force(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Once both files have stood still for a look; the log says so once."""
    caplog.set_level(logging.INFO)
    web = WebFile(write(tmp_path, tls_server_config=SERVER))
    before = web.config.tls
    renew(tmp_path)

    web.refresh()
    assert web.config.tls is before
    web.refresh()
    web.refresh()

    assert web.config.tls is not before
    assert web.problem is None
    assert [record.message for record in caplog.records] == [
        f"web config: {tmp_path}/web.yml or a file that it names has changed, and is in force"
    ]


def test_half_a_renewal_raises_no_alarm(tmp_path: Path) -> None:
    """A certificate whose key follows a moment later is never called wrong."""
    web = WebFile(write(tmp_path, tls_server_config=SERVER))

    shutil.copy(CERTIFICATES / "renewed.pem", tmp_path / "server.pem")
    web.refresh()
    shutil.copy(CERTIFICATES / "renewed.key", tmp_path / "server.key")
    settle(web)

    assert web.problem is None


@pytest.mark.parametrize("name", ["web.yml", "server.pem", "server.key"])
def test_a_broken_file_keeps_what_was_in_force(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    """The problem stands until the file is right again, and is logged once."""
    web = WebFile(write(tmp_path, tls_server_config=SERVER, basic_auth_users={"prometheus": HASH}))
    before = web.config
    good = (tmp_path / name).read_bytes()

    (tmp_path / name).write_text("broken: {")
    assert settle(web) is before
    settle(web)
    assert web.problem is not None
    assert len(caplog.records) == 1

    (tmp_path / name).write_bytes(good)
    assert settle(web) is not before
    assert web.problem is None


def test_a_file_that_is_named_anew_is_watched_although_it_is_missing(tmp_path: Path) -> None:
    """The config may come first and the certificate that it names later."""
    web = WebFile(write(tmp_path, basic_auth_users={"prometheus": HASH}))

    write(tmp_path, tls_server_config={"cert_file": "later.pem", "key_file": "later.key"})
    settle(web)
    assert web.problem is not None
    assert "later.pem" in web.problem
    for kind in ("pem", "key"):
        shutil.copy(CERTIFICATES / f"server.{kind}", tmp_path / f"later.{kind}")

    assert settle(web).tls is not None
    assert web.problem is None


@pytest.mark.parametrize("text", ["", "# nothing", "{}", "basic_auth_users: {}", None])
def test_what_protects_is_not_switched_off_by_a_file(
    tmp_path: Path, text: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Emptied, half written or deleted: said once and kept out, by a look and by a reload."""
    web = WebFile(write(tmp_path, tls_server_config=SERVER, basic_auth_users={"prometheus": HASH}))
    before = web.config
    path = tmp_path / "web.yml"

    path.unlink()
    if text is not None:
        path.write_text(text)

    assert settle(web) is before
    settle(web)
    assert len(caplog.records) == 1
    with pytest.raises(InputError):
        web.use(path)
    assert web.config is before


def test_an_empty_file_is_plain_http_at_the_start(tmp_path: Path) -> None:
    """As in Prometheus; it can protect later."""
    web = WebFile(write(tmp_path))
    assert not web.config.protects

    write(tmp_path, basic_auth_users={"prometheus": HASH})

    assert settle(web).protects


@pytest.mark.parametrize("name", ["a\0b", "pipe"])
def test_a_file_that_is_none_is_kept_out(tmp_path: Path, name: str) -> None:
    """Neither a path with a NUL nor a pipe ends or blocks the watch; the next good state is taken."""
    os.mkfifo(tmp_path / "pipe")
    web = WebFile(write(tmp_path, tls_server_config=SERVER))
    before = web.config

    write(tmp_path, tls_server_config={**SERVER, "cert_file": name})
    assert settle(web) is before
    assert web.problem is not None
    write(tmp_path, tls_server_config=SERVER, basic_auth_users={"prometheus": HASH})

    assert settle(web).users
    assert web.problem is None


def test_whatever_goes_wrong_the_watch_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error that nobody foresaw is said once by its name, and over once it is over."""
    web = WebFile(write(tmp_path, tls_server_config=SERVER))
    before = web.config

    def fails(path: Path) -> WebConfig:
        raise ZeroDivisionError(path)

    with monkeypatch.context() as patched:
        patched.setattr(web_file, "load_web_config", fails)
        renew(tmp_path)
        assert settle(web) is before
        settle(web)
    assert [record.message for record in caplog.records] == [
        f"web config: {tmp_path}/web.yml: it can't be used (ZeroDivisionError, a bug of vramscope); "
        "what was in force before still is"
    ]

    write(tmp_path, tls_server_config=SERVER, basic_auth_users={"prometheus": HASH})
    assert settle(web).users


def test_using_a_broken_file_changes_nothing(tmp_path: Path) -> None:
    """It raises, and the one before goes on being followed."""
    (tmp_path / "other").mkdir()
    good = write(tmp_path, tls_server_config=SERVER)
    broken = write(tmp_path / "other", basic_auth_users={"prometheus": "x"})
    web = WebFile(good)
    before = web.config

    with pytest.raises(InputError, match="bcrypt"):
        web.use(broken)

    assert web.config is before
    renew(tmp_path)
    assert settle(web) is not before


def test_without_a_file_it_is_plain_http_until_one_is_used(tmp_path: Path) -> None:
    """And back again."""
    web = WebFile()
    assert web.scheme == "http"

    web.use(write(tmp_path, tls_server_config=SERVER))
    assert web.scheme == "https"

    web.use(None)
    assert (web.scheme, settle(web).tls) == ("http", None)
