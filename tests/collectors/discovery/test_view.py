"""Files by the names that another process has for them: inside its root, bounded, regular."""

import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from collectors.discovery.command import ServerCommand
from collectors.discovery.model import find_model
from collectors.discovery.version import package_version
from collectors.discovery.view import ProcessView, within
from tests.collectors.discovery.table_of import ProcFolder
from tests.collectors.test_hf_cache import COMMIT, cached


@pytest.mark.parametrize(
    ("name", "inside"),
    [
        ("/plain/file", "plain/file"),
        ("/absolute", "plain/file"),
        ("/relative", "plain/file"),
        ("/chain", "plain/file"),
        ("/folder/file", "plain/file"),
        ("/up", "etc/passwd"),
        ("/../../etc/passwd", "etc/passwd"),
        ("/./plain//../plain/file", "plain/file"),
        ("/missing/deep", "missing/deep"),
        ("/", ""),
    ],
)
def test_links_are_followed_inside_the_root(tmp_path: Path, name: str, inside: str) -> None:
    """A link of a container leads where it leads for the container, never to our own files."""
    root = tmp_path / "root"
    (root / "plain").mkdir(parents=True)
    (root / "plain" / "file").write_text("x")
    (root / "absolute").symlink_to("/plain/file")
    (root / "relative").symlink_to("plain/./file")
    (root / "chain").symlink_to("absolute")
    (root / "folder").symlink_to("/plain")
    (root / "up").symlink_to("../../../../etc/passwd")

    assert within(root, name) == root / inside


def test_links_in_a_circle(tmp_path: Path) -> None:
    """An error, not an endless walk."""
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")

    with pytest.raises(OSError, match="Too many levels"):
        within(tmp_path, "/a/x")


@contextmanager
def process(folder: Path, **environment: str) -> Iterator[ProcessView]:
    """A process in a directory, with an environment."""
    code = "import os, sys; 'ROOT' in os.environ and os.chroot(os.environ['ROOT']); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as started:
        assert started.stdout is not None
        started.stdout.readline()
        yield ProcessView(started.pid)
        started.communicate()


def test_a_real_process(tmp_path: Path) -> None:
    """Its directory, the variables asked for, program, user and namespaces."""
    (tmp_path / "file").write_text("x")
    with process(tmp_path, HF_HOME="/hf", HF_TOKEN="sesame", EMPTY="") as view:
        assert view.path("file") == tmp_path / "file"
        assert view.path("/etc") == Path("/etc")
        assert view.read("file", max_bytes=1) == b"x"
        assert view.environment(("HF_HOME", "EMPTY", "OTHER")) == {"HF_HOME": "/hf"}
        assert view.program().name.startswith("python")
        assert view.owner() == os.getuid()
        assert not view.has_own("net")
        with pytest.raises(OSError, match="NUL"):
            view.path("a\0b")

    with pytest.raises(FileNotFoundError):
        view.path("file")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change its root directory")
def test_a_process_in_another_root(tmp_path: Path) -> None:
    """Its paths and links begin there, even without a namespace of its own."""
    (tmp_path / "models").mkdir()
    (tmp_path / "link").symlink_to("/models")
    with process(tmp_path, ROOT=str(tmp_path)) as view:
        assert view.path("/link/m") == tmp_path / "models" / "m"


def test_a_model_by_its_path(tmp_path: Path) -> None:
    """Absolute, or relative to the directory the server was started in; a file as well as a directory."""
    (tmp_path / "org" / "model").mkdir(parents=True)
    with process(tmp_path) as view:
        relative = find_model(ServerCommand(model="org/model"), view)
        absolute = find_model(ServerCommand(model=str(tmp_path / "org")), view)
        missing = find_model(ServerCommand(model="/no/such/model"), view)
        nothing = find_model(ServerCommand(), view)

    assert (relative.path, relative.note) == (str(tmp_path / "org" / "model"), None)
    assert absolute.path == str(tmp_path / "org")
    assert missing.note == ("no model at /no/such/model, the path it was started with: set `model` of this server")
    assert (nothing.path, nothing.note) == (None, None)


def test_a_model_by_its_name_in_the_cache_the_process_uses(tmp_path: Path) -> None:
    """By its own environment or its flag, not by ours."""
    snapshot = cached(tmp_path / "hf" / "hub")
    elsewhere = cached(tmp_path / "download", "org/other")
    with process(tmp_path, HF_HOME="hf") as view:
        by_environment = find_model(ServerCommand(model="org/model"), view)
        by_commit = find_model(ServerCommand(model="org/model", revision=COMMIT), view)
        by_flag = find_model(ServerCommand(model="org/other", download_directory=str(tmp_path / "download")), view)
        absent = find_model(ServerCommand(model="org/absent"), view)

    assert by_environment.path == by_commit.path == str(snapshot)
    assert by_flag.path == str(elsewhere)
    assert absent.note == (
        f"its model org/absent is not in the cache {tmp_path}/hf/hub: set `model` of this server for budget and weights"
    )


def test_a_model_in_the_home_of_its_user(tmp_path: Path) -> None:
    """Where the environment names none, the user database does."""
    with process(tmp_path) as view:
        found = find_model(ServerCommand(model="org/absent-as-well"), view)

    home = pwd.getpwuid(os.getuid()).pw_dir
    assert found.note is not None
    assert f"not in the cache {home}/.cache/huggingface/hub" in found.note


def test_a_process_that_has_ended_has_no_model(tmp_path: Path) -> None:
    """One sentence, and no error."""
    proc = ProcFolder(tmp_path / "proc")
    note = find_model(ServerCommand(model="m"), ProcessView(7, proc=proc.folder)).note

    assert note == "its model m can't be looked for: no such file or directory"


def installed(prefix: Path, *names: str, packages: str = "lib/python3.11/site-packages") -> None:
    for name in names:
        (prefix / packages / f"{name}.dist-info").mkdir(parents=True)


@pytest.mark.parametrize(
    "packages", ["lib/python3.11/site-packages", "lib64/python3.12/site-packages", "local/lib/python3.12/dist-packages"]
)
def test_a_version_beside_the_program(tmp_path: Path, packages: str) -> None:
    """The environment of the script it was started by; other packages with a similar name are others."""
    installed(tmp_path / "venv", "vllm-0.32.0+cpu", "vllm_cpu-1.0", "vllm-tools-2.0", "vllm-x", packages=packages)
    with process(tmp_path) as view:
        by_script = package_version("vllm", ("python", str(tmp_path / "venv/bin/vllm")), view)
        by_interpreter = package_version("vllm", (str(tmp_path / "venv/bin/python"),), view)
        by_relative = package_version("vllm", ("venv/bin/python",), view)

    assert {by_script, by_interpreter, by_relative} == {"0.32.0+cpu"}


def test_a_version_of_a_program_found_by_path(tmp_path: Path) -> None:
    """A bare name is looked up as the process's shell did."""
    installed(tmp_path / "a", "vllm-0.9.1")
    (tmp_path / "a" / "bin").mkdir()
    (tmp_path / "a" / "bin" / "python3").symlink_to(sys.executable)
    with process(tmp_path, PATH=f"{tmp_path}/none/bin:{tmp_path}/a/bin") as view:
        assert package_version("vllm", ("python3",), view) == "0.9.1"


def test_a_version_in_the_environment_that_is_active(tmp_path: Path) -> None:
    """VIRTUAL_ENV says which."""
    installed(tmp_path / "a", "vllm-0.9.2")
    with process(tmp_path, VIRTUAL_ENV=str(tmp_path / "a")) as view:
        assert package_version("vllm", (), view) == "0.9.2"


def test_no_version(tmp_path: Path) -> None:
    """Two at once, none, or no process: not known, never guessed."""
    installed(tmp_path / "two", "vllm-0.9.1", "vllm-0.9.2")
    with process(tmp_path) as view:
        assert package_version("vllm", (str(tmp_path / "two/bin/vllm"),), view) is None
        assert package_version("vllm", (str(tmp_path / "none/bin/vllm"),), view) is None
    assert package_version("vllm", (str(tmp_path / "two/bin/vllm"),), view) is None
