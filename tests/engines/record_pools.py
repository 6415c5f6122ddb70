"""Record real servers whose pools run out, or nearly: ``python -m tests.engines.record_pools FOLDER [WORD ...]``.

The words are engines and stories, all of them by default.

A server, an agent that watches it with its recorder on, the driver double as the GPU that holds the server's processes,
and a seeded load. What the agent's ``record`` keeps is written without this machine's paths, a minute to a chunk. An
engine's stories are played one behind another, the engines beside each other: some half an hour.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from agent.recorder.chunks import RecordingFile, pack
from agent.recorder.records import Record, Start
from collectors.simulated.state import GpuProcess, NodeState, write_state
from tests.double.build import build, environment
from tests.engines import install_llama_cpp, install_sglang, install_vllm
from tests.engines.pool_load import STORIES, Story, play
from tests.engines.pool_servers import Filled, FilledLlamaCpp, FilledSglang, FilledVllm
from tests.node import GIB, H100
from tests.program import Program, finished, running

NAME = "chat"
BUILD = next(iter(install_llama_cpp.BUILDS))
VERSIONS = {"vllm": install_vllm.VERSION, "llama_cpp": BUILD, "sglang": install_sglang.VERSION}
PROJECT = Path(__file__).parents[2]
READ_SECONDS = 60.0

_RECORDS = tuple[Record, ...]
Say = Callable[[str], None]


def make(engine: str, folder: Path) -> Filled:
    """The server, installed where it is not."""
    if engine == "vllm":
        return FilledVllm(install_vllm.install(install_vllm.environment_directory()), folder)
    if engine == "sglang":
        return FilledSglang(install_sglang.install(), folder)
    return FilledLlamaCpp(install_llama_cpp.install(BUILD), folder)


@contextmanager
def watching(server: Filled, folder: Path) -> Iterator[Program]:
    """An agent that records the server, once it shows its pool."""
    library, state = build(folder), folder / "node.state"
    held = [GpuProcess(index=0, pid=pid, used_bytes=GIB) for pid in server.holders()]
    device = replace(H100, allocated_bytes=GIB * len(held))
    write_state(state, NodeState(devices=(device,), gpu_processes=tuple(held)))
    files = {"model": str(server.model), "log": str(server.log)}
    entry = {"url": server.url, "engine": server.engine, "name": NAME, "arguments": server.arguments, **files}
    config = folder / "vramscope.yml"
    settings = {"discovery": False, "state_directory": str(folder / "state"), "servers": [entry]}
    config.write_text(json.dumps(settings))
    start = ("run", "--config", str(config), "--listen", "127.0.0.1:0")
    with running(*start, environment=environment(library, state)) as program:
        program.until(lambda: any(one["pools"] for one in program.snapshot()["servers"]), seconds=READ_SECONDS)
        yield program


def record(server: Filled, story: Story, folder: Path, say: Say) -> Path:
    """Play a story beside an agent; the bundle that it kept."""
    folder.mkdir()
    with watching(server, folder):
        asyncio.run(play(server, story, say))
        done = finished("record", "--state-directory", str(folder / "state"))
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def rewritten(path: Path, names: Mapping[str, str]) -> bytes:
    """The same records with other names for parts of texts, those of a segment in one chunk."""
    chunks: list[list[Record]] = []
    for one in RecordingFile(path).records():
        if isinstance(one, Start) or not chunks:
            chunks.append([])
        chunks[-1].append(one)
    written = b""
    for records in chunks:
        content = msgspec.msgpack.decode(msgspec.msgpack.encode(records))
        known = msgspec.convert(_renamed(content, names), type=_RECORDS)
        packed, lost = pack(known)
        assert lost == 0
        written += packed
    return written


def texts(path: Path) -> set[str]:
    """Every text in a recording."""
    return {text for one in RecordingFile(path).records() for text in _texts(msgspec.to_builtins(one))}


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        for old, new in names.items():
            value = value.replace(old, new)
        return value
    if isinstance(value, list):
        return [_renamed(one, names) for one in value]
    if isinstance(value, dict):
        return {_renamed(key, names): _renamed(one, names) for key, one in value.items()}
    return value


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _texts(key)
            yield from _texts(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)


def record_engine(engine: str, stories: Sequence[Story], target: Path, workplace: Path) -> None:
    """All stories on one server, each beside an agent of its own."""
    cache, virtual = install_vllm.environment_directory().parent, Path(sys.executable).parent.parent
    names = {str(cache): "/opt/engines", str(virtual): "/opt/vramscope/.venv", str(PROJECT): "/opt/vramscope"}
    place, folder = workplace / engine, target / f"{engine}-{VERSIONS[engine]}"
    place.mkdir()
    folder.mkdir(parents=True, exist_ok=True)
    with make(engine, place) as server:
        for story in stories:
            bundle = record(server, story, place / story.name, lambda line: _say(f"{engine} {line}"))
            content = rewritten(bundle, {str(place): "/srv/node", **names})
            (folder / f"{story.name}.vramscope").write_bytes(content)
            _say(f"{engine} {story.name}: {len(content)} bytes")


def _say(line: str) -> None:
    print(time.strftime("%X"), line, flush=True)


def main(arguments: Sequence[str]) -> int:
    target, words = Path(arguments[0]), set(arguments[1:])
    engines = [one for one in VERSIONS if one in words] or list(VERSIONS)
    stories = [one for one in STORIES if one.name in words] or list(STORIES)
    with tempfile.TemporaryDirectory() as workplace, ThreadPoolExecutor(max_workers=len(engines)) as pool:
        jobs = [pool.submit(record_engine, one, stories, target, Path(workplace)) for one in engines]
        for job in jobs:
            job.result()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
