"""Reading a whole Ollama server over HTTP, and the models it keeps."""

import asyncio
from pathlib import Path

import pytest

from collectors.discovery.command import Value
from collectors.errors import CollectorError
from collectors.http_text import Endpoint
from collectors.model_files import read_model
from collectors.ollama.manifests import blob_of
from collectors.ollama.reader import PATHS, OllamaReader
from collectors.readings import PoolReading, ServerReading
from tests.collectors.gguf_files import write_gguf
from tests.collectors.replay import FIXTURES, Script, replaying, reply

OLLAMA = FIXTURES / "ollama"
JSON = "application/json"


def server_of(name: str) -> dict[str, bytes | Script]:
    return {
        "/api/ps": reply((OLLAMA / name).read_bytes(), content_type=JSON),
        "/api/version": reply((OLLAMA / "version.json").read_bytes(), content_type=JSON),
    }


def read(
    answers: dict[str, bytes | Script], *, flags: dict[str, Value] | None = None, times: int = 1
) -> tuple[ServerReading, list[str]]:
    """The last of several readings, and all paths that were asked for."""

    async def run() -> tuple[ServerReading, list[str]]:
        async with replaying(answers) as server:
            endpoint = Endpoint(server.url, paths=PATHS, deadline_seconds=5.0)
            reader = OllamaReader(endpoint, clock=lambda: 1000.0, flags=flags)
            try:
                for _ in range(times):
                    reading = await reader.read()
            finally:
                await endpoint.aclose()
            return reading, server.paths

    return asyncio.run(run())


def test_a_loaded_model_is_named_with_its_context() -> None:
    """Its cache has room for the context of each request at a time; what it holds Ollama does not tell."""
    reading, _ = read(server_of("ps_one.json"), flags={"num-parallel": 2})

    assert (reading.engine, reading.state, reading.version, reading.model) == (
        "ollama",
        "serving",
        "0.33.0",
        "llama3:8b",
    )
    assert reading.arguments == {"max_model_len": 8192}
    assert reading.pools == (PoolReading(replica="0", capacity_tokens=16384, blocks=16384, block_size_tokens=1),)
    assert reading.replicas[0].running_requests is None
    assert reading.layers_on_devices is None
    assert reading.notes == ()


@pytest.mark.parametrize(("name", "flags"), [("ps_one.json", None), ("ps_0.9.json", {})])
def test_a_capacity_that_is_not_known_is_left_out(name: str, flags: dict[str, Value] | None) -> None:
    """Without its environment, or before it told the context."""
    assert read(server_of(name), flags=flags)[0].pools == ()


def test_no_model_loaded_is_no_failure() -> None:
    """It serves, and holds nothing."""
    reading, _ = read(server_of("ps_none.json"), flags={})

    assert (reading.state, reading.model, reading.pools) == ("serving", None, ())
    assert "no model is loaded" in reading.notes[0]


def test_of_several_models_nothing_is_told_apart() -> None:
    """Which lie partly on the host is said."""
    reading, _ = read(server_of("ps_two.json"), flags={})

    assert (reading.model, reading.pools, reading.arguments) == (None, (), {})
    assert "2 models are loaded" in reading.notes[0]
    assert reading.notes[1] == "in host memory, by its own estimate: 25% of 'qwen3:32b'"


def test_a_model_partly_on_the_host_is_not_wholly_on_a_device() -> None:
    """What of it is where, is not known."""
    one = reply('{"models":[{"name":"m","size":100,"size_vram":60,"context_length":4096}]}', content_type=JSON)

    assert read({**server_of("ps_one.json"), "/api/ps": one})[0].layers_on_devices == 0


def test_only_safe_paths_are_requested() -> None:
    """The version once in ten minutes; never one that loads or pulls."""
    _, paths = read(server_of("ps_one.json"), times=5)

    assert paths.count("/api/ps") == 5
    assert paths.count("/api/version") == 1
    assert set(paths) == PATHS


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (reply("Ollama is running"), "malformed"),
        (reply('{"models":[{"size":-1}]}', content_type=JSON), "malformed"),
        (reply("x", status=404), "http_404"),
    ],
)
def test_what_can_go_wrong_is_said(answer: bytes, reason: str) -> None:
    """One reason each."""
    with pytest.raises(CollectorError) as caught:
        read({"/api/ps": answer})

    assert caught.value.reason == reason


def test_a_manifest_leads_to_the_blob_of_its_model(tmp_path: Path) -> None:
    """A blob has no suffix: it is known by how it begins."""
    manifest = tmp_path / "models" / "manifests" / "registry.ollama.ai" / "library" / "llama3" / "8b"
    blob = tmp_path / "models" / "blobs" / ("sha256-" + "b" * 64)
    for path in (manifest, blob):
        path.parent.mkdir(parents=True)
    manifest.write_bytes((OLLAMA / "manifest.json").read_bytes())
    write_gguf(blob, {"general.architecture": "llama", "llama.block_count": 1}, {"output.weight": ("F32", (4, 8))})

    assert blob_of(manifest) == blob
    assert read_model(manifest).tensor_bytes == read_model(blob).tensor_bytes == 4 * 8 * 4


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"layers":[{"mediaType":"application/vnd.ollama.image.model","digest":"sha256:../../etc/passwd"}]}',
    ],
)
def test_a_manifest_that_names_no_blob(tmp_path: Path, text: str) -> None:
    """A digest is nothing but a digest."""
    manifest = tmp_path / "manifests" / "m"
    manifest.parent.mkdir()
    manifest.write_text(text)

    assert blob_of(manifest) is None
