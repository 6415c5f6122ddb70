"""The literal map of engines: one entry each, nothing registers itself."""

from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import Struct

from collectors.discovery.command import ReadCommand, Value
from collectors.engine_logs import sglang as sglang_log
from collectors.engine_logs import tensorrt_llm as tensorrt_llm_log
from collectors.engine_logs import vllm as vllm_log
from collectors.engine_logs.llama_cpp import LLAMA_CPP, OLLAMA
from collectors.engine_logs.shapes import LogFormat
from collectors.http_text import Endpoint
from collectors.llama_cpp import command as llama_cpp_command
from collectors.llama_cpp import reader as llama_cpp
from collectors.lmdeploy import command as lmdeploy_command
from collectors.lmdeploy import reader as lmdeploy
from collectors.ollama import command as ollama_command
from collectors.ollama import reader as ollama
from collectors.readings import RankTitle, ServerReading
from collectors.sglang import command as sglang_command
from collectors.sglang import reader as sglang
from collectors.sglang.titles import rank_of as sglang_rank_of
from collectors.tensorrt_llm import command as tensorrt_llm_command
from collectors.tensorrt_llm import reader as tensorrt_llm
from collectors.tgi import command as tgi_command
from collectors.tgi import reader as tgi
from collectors.triton import command as triton_command
from collectors.triton import reader as triton
from collectors.vllm import command as vllm_command
from collectors.vllm import reader as vllm
from collectors.vllm.titles import rank_of as vllm_rank_of


class EngineReader(Protocol):
    """Reads one server of an engine."""

    async def read(self) -> ServerReading:
        """The server now. Raises: CollectorError."""


class Opener(Protocol):
    """Makes the reader of a server; ``flags`` are those it was started with, None where nobody knows them."""

    def __call__(
        self, endpoint: Endpoint, *, clock: Callable[[], float], flags: Mapping[str, Value] | None = None
    ) -> EngineReader: ...


class _Plain(Protocol):
    def __call__(self, endpoint: Endpoint, *, clock: Callable[[], float]) -> EngineReader: ...


def plain(make: _Plain) -> Opener:
    """For an engine whose endpoints say all that its reader has to know."""

    def make_without(
        endpoint: Endpoint, *, clock: Callable[[], float], flags: Mapping[str, Value] | None = None
    ) -> EngineReader:
        return make(endpoint, clock=clock)

    return make_without


class Engine(Struct, frozen=True, kw_only=True):
    """How one engine is read.

    ``paths``: the only ones ever requested; ``rank_of``: the rank a process title names; ``command``: how its servers
    are told among all processes; ``log``: what its log says. ``is_one_process``: one process holds all devices of a
    server, with a part of the model on each.
    """

    name: str
    paths: frozenset[str]
    open: Opener
    rank_of: Callable[[str], RankTitle | None]
    command: ReadCommand
    log: LogFormat | None = None
    is_one_process: bool = False


def no_rank(title: str) -> RankTitle | None:
    """For an engine whose processes name no ranks."""
    return None


ENGINES: dict[str, Engine] = {
    "vllm": Engine(
        name="vllm",
        paths=vllm.PATHS,
        open=plain(vllm.VllmReader),
        rank_of=vllm_rank_of,
        command=vllm_command.COMMAND,
        log=vllm_log.FORMAT,
    ),
    "sglang": Engine(
        name="sglang",
        paths=sglang.PATHS,
        open=plain(sglang.SglangReader),
        rank_of=sglang_rank_of,
        command=sglang_command.COMMAND,
        log=sglang_log.FORMAT,
    ),
    "llama_cpp": Engine(
        name="llama_cpp",
        paths=llama_cpp.PATHS,
        open=llama_cpp.LlamaCppReader,
        rank_of=no_rank,
        command=llama_cpp_command.COMMAND,
        log=LLAMA_CPP,
        is_one_process=True,
    ),
    "ollama": Engine(
        name="ollama",
        paths=ollama.PATHS,
        open=ollama.OllamaReader,
        rank_of=no_rank,
        command=ollama_command.COMMAND,
        log=OLLAMA,
        is_one_process=True,
    ),
    "tensorrt_llm": Engine(
        name="tensorrt_llm",
        paths=tensorrt_llm.PATHS,
        open=plain(tensorrt_llm.TensorRtLlmReader),
        rank_of=no_rank,
        command=tensorrt_llm_command.COMMAND,
        log=tensorrt_llm_log.FORMAT,
    ),
    "triton": Engine(
        name="triton",
        paths=triton.PATHS,
        open=plain(triton.TritonReader),
        rank_of=no_rank,
        command=triton_command.COMMAND,
    ),
    "tgi": Engine(
        name="tgi",
        paths=tgi.PATHS,
        open=plain(tgi.TgiReader),
        rank_of=no_rank,
        command=tgi_command.COMMAND,
    ),
    "lmdeploy": Engine(
        name="lmdeploy",
        paths=lmdeploy.PATHS,
        open=plain(lmdeploy.LmdeployReader),
        rank_of=no_rank,
        command=lmdeploy_command.COMMAND,
        is_one_process=True,
    ),
}
