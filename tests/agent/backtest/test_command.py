"""``vramscope backtest DIR``."""

import json
import os
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.backtest.recordings import SUFFIX, write_recording
from agent.cli import cli
from tests.agent.memory.pool_signals import VLLM, signals
from tests.collectors.test_procfs import as_nobody


def recorded(folder: Path) -> Path:
    write_recording(folder / f"calm{SUFFIX}", "calm:1", VLLM, signals(lambda at: 0.3))
    return folder


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["backtest", *arguments])
    return done.exit_code, done.output


def test_recordings_are_scored_beside_the_baselines(tmp_path: Path) -> None:
    """A line for each forecaster."""
    code, output = run(str(recorded(tmp_path)))

    assert code == 0
    assert "1 recordings, 0.1 h: 1 episodes, 0 with an event" in output
    assert "predict_linear 5 min" in output


def test_json_is_one_document(tmp_path: Path) -> None:
    code, output = run(str(recorded(tmp_path)), "--json")
    document = json.loads(output)

    assert code == 0
    assert (document["schema"], document["recordings"], document["events"]) == ("vramscope.backtest/1", 1, 0)
    assert next(iter(document["scores"])) == "forecast"
    assert list(document["groups"]) == ["calm"]


def test_no_folder_is_said_in_a_sentence(tmp_path: Path) -> None:
    code, output = run(str(tmp_path / "none"))

    assert code == 2
    assert "expected a folder with recordings" in output


def test_an_empty_folder_is_said_in_a_sentence(tmp_path: Path) -> None:
    code, output = run(str(tmp_path))

    assert code == 2
    assert "no recording in it" in output


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up privileges")
def test_a_folder_that_may_not_be_looked_at(tmp_path: Path) -> None:
    """For want of permission, or because no system has such a name."""
    with tempfile.TemporaryDirectory() as name:
        shown = as_nobody(lambda: str(run(f"{name}/x")))

    assert shown == str((2, f"Error: {name}/x: can't be read: Permission denied; run it as a user who may\n"))
    assert "File name too long" in run("x" * 300)[1]


HEAD = '{"schema": "vramscope.signals/1", "name": "x", "facts": {"engine": "vllm"}}\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a recording of signals"),
        ('{"schema": "other/1", "name": "x", "facts": {"engine": "vllm"}}\n', "not a recording of signals"),
        (HEAD + "{}\n", "not a recording of signals"),
        (HEAD + '{"at": 2.0}\n{"at": 1.0}\n', "times go back"),
        (HEAD + f'{{"at": 1.0, "running": {10**400}}}\n', "not a recording of signals"),
        (HEAD.replace("}}", f', "max_model_len": {10**400}}}}}'), "not a recording of signals"),
    ],
)
def test_what_is_no_recording_is_said_in_a_sentence(tmp_path: Path, text: str, said: str) -> None:
    """No traceback, and the file's name."""
    (tmp_path / f"bad{SUFFIX}").write_text(text, encoding="utf-8")

    code, output = run(str(tmp_path))

    assert code == 2
    assert said in output
    assert f"bad{SUFFIX}" in output


def test_a_pipe_is_no_recording(tmp_path: Path) -> None:
    """One that nobody writes to is not waited for."""
    os.mkfifo(tmp_path / f"bad{SUFFIX}")

    code, output = run(str(tmp_path))

    assert code == 2
    assert f"bad{SUFFIX}: not a regular file" in output
