"""A real vLLM started as people start it is found without a word of configuration: all of it, and nothing else."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engines.tiny_models import make_llama
from tests.engines.vllm_server import MAX_MODEL_LEN, SMALL_POOL, VllmServer
from tests.program import finished

pytestmark = pytest.mark.engines

WAYS: dict[str, tuple[Callable[[Path, Path], tuple[str, ...]], tuple[str, ...]]] = {
    "venv command": (lambda command, model: (str(command), "serve", str(model)), ()),
    "python -m": (
        lambda command, model: (
            *(str(command.parent / "python"), "-m", "vllm.entrypoints.openai.api_server"),
            *("--model", str(model)),
        ),
        (),
    ),
    "rewritten titles": (
        lambda command, model: (str(command), "serve", str(model)),
        ("--api-server-count", "2"),
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_real_server_is_found(way: str, vllm_command: Path, tmp_path: Path) -> None:
    """Version, arguments, model directory, port and pids by `vramscope snapshot` alone."""
    entry, more = WAYS[way]
    model = make_llama(tmp_path / "tiny-llama")
    (tmp_path / "empty.yml").touch()
    server = VllmServer(
        command=vllm_command,
        model=model.path,
        name="tiny-llama",
        log=tmp_path / "vllm.log",
        arguments=(*SMALL_POOL, *more),
        entry=entry(vllm_command, model.path),
    )
    with server:
        server.complete("warm up", max_tokens=8)
        done = finished("snapshot", "--config", str(tmp_path / "empty.yml"), "--json")
        pids = {process.pid for process in server.processes()}

    assert done.returncode == 0, done.stderr
    found = next(one for one in json.loads(done.stdout)["servers"] if one["url"] == server.url)
    assert (found["engine"], found["state"], found["configured"]) == ("vllm", "serving", False)
    assert found["version"].startswith("0.32.0")
    assert found["model_path"] == str(model.path)
    assert found["arguments"]["max_model_len"] == MAX_MODEL_LEN
    assert (found["arguments"]["max_num_seqs"], found["arguments"]["enforce_eager"]) == (8, True)
    assert set(found["pids"]) == pids
    assert found["pools"][0]["capacity_tokens"] == 3200
    assert found["pools"][0]["bytes_per_token"] == 512
