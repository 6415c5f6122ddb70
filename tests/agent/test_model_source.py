"""Where the model of a command comes from: a path, the local cache, and the hub only when asked."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from agent.budget_command import budget_command
from tests.agent.memory.models import DIRECTORY
from tests.collectors.hub_server import FakeHub, fake_hub
from tests.collectors.test_hub import shard
from tests.collectors.test_procfs import as_nobody

NAME = "acme/llama"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIG = DIRECTORY / "configs" / "llama-3.2-1b.json"
TOKEN = "hf_secret"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A Hugging Face cache that has the model at a commit, which ``main`` is."""
    folder = tmp_path / "hub" / "models--acme--llama"
    snapshot = folder / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(COMMIT, encoding="ascii")
    shutil.copy(CONFIG, snapshot / "config.json")
    return tmp_path / "hub"


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with fake_hub() as served:
        served.add(NAME, {"config.json": CONFIG.read_bytes(), "model.safetensors": shard({"w": 500})})
        yield served


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner(env={"COLUMNS": "80", **environment}).invoke(budget_command, [*arguments, "--json"])


def test_a_name_in_the_cache(cache: Path) -> None:
    """By its name, and at a revision; the budget bears the name."""
    for arguments in ((), ("--revision", COMMIT)):
        result = run(NAME, *arguments, HF_HUB_CACHE=str(cache))

        assert (result.exit_code, result.stderr) == (0, "")
        assert json.loads(result.stdout)["model"]["name"] == "llama"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up privileges")
@pytest.mark.parametrize("option", ["", "--draft-model"])
def test_a_path_that_may_not_be_looked_at(option: str) -> None:
    """A missing permission is one sentence, and no missing file."""
    with tempfile.TemporaryDirectory() as closed, tempfile.TemporaryDirectory() as open_to_all:
        Path(open_to_all).chmod(0o755)
        readable = shutil.copy(CONFIG, open_to_all)
        path = f"{closed}/model"
        config = [readable, option, path] if option else [path]
        run(readable, *config[1:])  # imports what nobody may read
        shown = as_nobody(lambda: str((result := run(*config)).exit_code) + result.stderr)

    where = f"{option}: {path}" if option else path
    assert shown == f"2Error: {where}: no permission to read it; run vramscope as a user who may\n"


def test_a_path_that_no_system_has() -> None:
    """Names of 300 letters."""
    for arguments in (("x" * 300,), (str(CONFIG), "--draft-model", "x" * 300)):
        result = run(*arguments)

        assert (result.exit_code, result.stdout) == (2, "")
        assert "x: can't be read: File name too long" in result.stderr


def test_a_name_that_is_nowhere(cache: Path) -> None:
    """The sentence says where it was looked for, and how to get it."""
    result = run("acme/other", HF_HUB_CACHE=str(cache))

    assert (result.exit_code, result.stdout) == (2, "")
    assert f"acme/other: no such file, and no model of that name in the Hugging Face cache ({cache})" in result.stderr
    assert "--from-hub" in result.stderr


def test_from_the_hub(hub: FakeHub) -> None:
    """Bytes are those of the headers there; progress is on stderr; the token is sent and not shown."""
    hub.token = TOKEN

    result = run(NAME, "--from-hub", HF_ENDPOINT=hub.url, HF_TOKEN=TOKEN)

    assert result.exit_code == 0
    assert json.loads(result.stdout)["model"]["name"] == "llama"
    assert result.stderr.splitlines() == [
        f"{NAME} from {hub.url}: config.json 1/1",
        f"{NAME} from {hub.url}: headers 1/1",
    ]
    assert TOKEN not in result.output


def test_nothing_is_downloaded_unasked(hub: FakeHub, tmp_path: Path) -> None:
    """Without the option nobody is asked."""
    result = run(NAME, HF_ENDPOINT=hub.url, HF_HUB_CACHE=str(tmp_path))

    assert result.exit_code == 2
    assert hub.requests == []


@pytest.mark.parametrize(
    ("name", "environment", "code", "said"),
    [
        ("acme/none", {}, 2, "127.0.0.1 has no acme/none with a config.json at 'main': check the name"),
        (NAME, {"HF_TOKEN": "not a token"}, 2, "HF_ENDPOINT and HF_TOKEN: the token must be printable ASCII"),
        (NAME, {"HF_ENDPOINT": "nonsense"}, 2, "HF_ENDPOINT and HF_TOKEN: 'nonsense' is not the URL of a server"),
        (NAME, {"HF_ENDPOINT": "http://127.0.0.1:9"}, 1, "no usable answer from 127.0.0.1 for config.json"),
        ("../x", {}, 2, "'../x' at 'main': expected ORGANISATION/NAME and a revision"),
    ],
)
def test_failures_of_the_hub(hub: FakeHub, name: str, environment: dict[str, str], code: int, said: str) -> None:
    """2 for what was asked wrongly, 1 for a hub that does not answer; one sentence."""
    result = run(name, "--from-hub", **({"HF_ENDPOINT": hub.url} | environment))

    assert (result.exit_code, result.stdout) == (code, "")
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_a_damaged_header_names_the_model(hub: FakeHub) -> None:
    """Not the temporary file that it was read from."""
    hub.add(NAME, {"model.safetensors": b"\x10" + bytes(7) + b"x" * 500})

    result = run(NAME, "--from-hub", HF_ENDPOINT=hub.url)

    assert result.exit_code == 2
    assert f"{NAME} on the hub: model.safetensors: expected a safetensors header in JSON" in result.stderr
    assert "vramscope-hub" not in result.stderr
