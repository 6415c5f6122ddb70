"""The literal map of engines: one entry each, nothing registers itself."""

from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import Struct

from collectors.bounds import bounded
from collectors.discovery.command import ReadCommand, Value
from collectors.discovery.flags import FlagTable
from collectors.dynamo_trtllm import command as dynamo_trtllm_command
from collectors.dynamo_trtllm import reader as dynamo_trtllm
from collectors.engine_logs import lmdeploy as lmdeploy_log
from collectors.engine_logs import sglang as sglang_log
from collectors.engine_logs import tensorrt_llm as tensorrt_llm_log
from collectors.engine_logs import tgi as tgi_log
from collectors.engine_logs import vllm as vllm_log
from collectors.engine_logs.llama_cpp import LLAMA_CPP, OLLAMA
from collectors.engine_logs.shapes import LogFormat
from collectors.engine_search import (
    METRICS,
    MODELS,
    UNDRAINED,
    EngineSearch,
    Sign,
    Signs,
    any_series,
    lines_of,
    object_with,
)
from collectors.http_text import Endpoint
from collectors.lightllm import command as lightllm_command
from collectors.lightllm import reader as lightllm
from collectors.llama_cpp import command as llama_cpp_command
from collectors.llama_cpp import reader as llama_cpp
from collectors.lmdeploy import command as lmdeploy_command
from collectors.lmdeploy import reader as lmdeploy
from collectors.nim import command as nim_command
from collectors.nim import reader as nim
from collectors.ollama import command as ollama_command
from collectors.ollama import reader as ollama
from collectors.readings import RankTitle, ServerReading
from collectors.sglang import command as sglang_command
from collectors.sglang import reader as sglang
from collectors.sglang.titles import rank_of as sglang_rank_of
from collectors.support import Told
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
    """Makes the reader of an engine's server, as ``Engine.open`` asks for it."""

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


class Bounded:
    """A reader whose readings hold nothing that can't be."""

    def __init__(self, reader: EngineReader) -> None:
        self._reader = reader

    async def read(self) -> ServerReading:
        """The server now, as the engine's reader has it. Raises: CollectorError."""
        return bounded(await self._reader.read())


class Engine(Struct, frozen=True, kw_only=True):
    """How one engine is read.

    ``paths``: the only ones ever requested; ``rank_of``: the rank a process title names; ``command``: how its servers
    are told among all processes; ``signs``: by what they answer; ``log``: what its log says. ``is_one_process``: one
    process holds all devices of a server, with a part of the model on each. ``flags``: of an engine without a planner,
    those it is started with. ``holds_checkpoint``: what is given as its model is what it loads; ``holds_engine``: only
    where it was built for it. ``title``, ``versions``, ``tells`` and ``limits`` are for people.
    """

    name: str
    title: str
    versions: str
    tells: frozenset[Told]
    limits: str = ""
    paths: frozenset[str]
    make: Opener
    rank_of: Callable[[str], RankTitle | None]
    command: ReadCommand
    signs: Signs
    log: LogFormat | None = None
    flags: FlagTable = FlagTable()
    is_one_process: bool = False
    holds_checkpoint: bool = True
    holds_engine: bool = False

    def open(
        self, endpoint: Endpoint, *, clock: Callable[[], float], flags: Mapping[str, Value] | None = None
    ) -> EngineReader:
        """The reader of a server; ``flags`` are those it was started with, None where nobody knows them."""
        return Bounded(self.make(endpoint, clock=clock, flags=flags))


def no_rank(title: str) -> RankTitle | None:
    """For an engine whose processes name no ranks."""
    return None


ENGINES: dict[str, Engine] = {
    "vllm": Engine(
        name="vllm",
        title="vLLM",
        versions="0.6 to 0.33",
        tells=frozenset(
            {
                "capacity",
                "used",
                "requests",
                "preemptions",
                "tokens",
                "prefix hits",
                "first token",
                "KV elsewhere",
                "adapters",
            }
        ),
        limits=(
            "Cached blocks count as available. Also by Ray Serve (`ray_vllm:`, `ray_vllm_`) and in a Dynamo worker."
        ),
        paths=vllm.PATHS,
        make=vllm.VllmReader,
        rank_of=vllm_rank_of,
        command=vllm_command.COMMAND,
        signs=Signs(pages=(Sign(METRICS, lines_of("vllm:", "ray_vllm:", "ray_vllm_")),), owner="vllm"),
        log=vllm_log.FORMAT,
    ),
    "sglang": Engine(
        name="sglang",
        title="SGLang",
        versions="0.4.6 to 0.5.23",
        tells=frozenset(
            {
                "capacity",
                "used",
                "cached",
                "requests",
                "preemptions",
                "tokens",
                "prefix hits",
                "first token",
                "KV elsewhere",
                "adapters",
            }
        ),
        limits=(
            "Needs `--enable-metrics`; without it only capacity, used and requests (since 0.5.8). Cached since 0.5.12, "
            "preemptions (retractions) from the first on. "
            "Also in a Dynamo worker."
        ),
        paths=sglang.PATHS,
        make=plain(sglang.SglangReader),
        rank_of=sglang_rank_of,
        command=sglang_command.COMMAND,
        signs=Signs(
            pages=(Sign(METRICS, lines_of("sglang:")), Sign(sglang.LOADS, object_with("loads"))), owner="sglang"
        ),
        log=sglang_log.FORMAT,
    ),
    "llama_cpp": Engine(
        name="llama_cpp",
        title="llama.cpp server",
        versions="2025 to b11549",
        tells=frozenset({"capacity", "used", "cached", "requests", "tokens", "prefix hits"}),
        limits=("Needs `--metrics` for counters. Requests are refused when its cache is full, which is counted."),
        paths=llama_cpp.PATHS,
        make=llama_cpp.LlamaCppReader,
        rank_of=no_rank,
        command=llama_cpp_command.COMMAND,
        signs=Signs(
            pages=(
                Sign(METRICS, lines_of("llamacpp:")),
                Sign("/props", object_with("build_info", "total_slots", "role")),
            ),
            owner="llamacpp",
        ),
        log=LLAMA_CPP,
        is_one_process=True,
    ),
    "ollama": Engine(
        name="ollama",
        title="Ollama",
        versions="0.9 to 0.33",
        tells=frozenset({"capacity"}),
        limits="Tells which models are loaded, and nothing of requests.",
        paths=ollama.PATHS,
        make=ollama.OllamaReader,
        rank_of=no_rank,
        command=ollama_command.COMMAND,
        signs=Signs(pages=(Sign("/api/ps", object_with("models")),)),
        log=OLLAMA,
        is_one_process=True,
    ),
    "tensorrt_llm": Engine(
        name="tensorrt_llm",
        title="TensorRT-LLM (`trtllm-serve`)",
        versions="1.1 to 1.3",
        tells=frozenset({"capacity", "used", "requests", "tokens", "prefix hits", "first token", "KV elsewhere"}),
        limits=(
            "Needs `return_perf_metrics` and `enable_iter_perf_stats`. Renewed when a request ends: what "
            "is older than 10 s is left out. Its `/metrics` drains and is never asked. Before 1.3 only "
            "times to the first token."
        ),
        paths=tensorrt_llm.PATHS,
        make=plain(tensorrt_llm.TensorRtLlmReader),
        rank_of=no_rank,
        command=tensorrt_llm_command.COMMAND,
        signs=Signs(pages=(Sign(UNDRAINED, any_series),), owner="tensorrt_llm"),
        flags=tensorrt_llm_command.FLAGS,
        log=tensorrt_llm_log.FORMAT,
    ),
    "triton": Engine(
        name="triton",
        title="Triton with TensorRT-LLM",
        versions="2025",
        tells=frozenset({"capacity", "used", "requests", "first token"}),
        limits="By the URL of its metrics port.",
        paths=triton.PATHS,
        make=plain(triton.TritonReader),
        rank_of=no_rank,
        command=triton_command.COMMAND,
        signs=Signs(pages=(Sign(METRICS, lines_of("nv_trt_llm_", "nv_inference_")),)),
        log=tensorrt_llm_log.TRITON,
        flags=triton_command.FLAGS,
        holds_checkpoint=False,
        holds_engine=True,
    ),
    "tgi": Engine(
        name="tgi",
        title="TGI",
        versions="2.2 to 3.3.7",
        tells=frozenset({"capacity", "reserved", "requests", "tokens"}),
        limits="Requests reserve the longest they may become; what is used is not told.",
        paths=tgi.PATHS,
        make=plain(tgi.TgiReader),
        rank_of=no_rank,
        command=tgi_command.COMMAND,
        signs=Signs(pages=(Sign(METRICS, lines_of("tgi_")),)),
        log=tgi_log.FORMAT,
        flags=tgi_command.FLAGS,
    ),
    "lmdeploy": Engine(
        name="lmdeploy",
        title="LMDeploy",
        versions="0.9.2 to 0.14",
        tells=frozenset({"used", "requests", "tokens", "prefix hits", "first token"}),
        limits="A ratio, renewed every 10 s. Prefix hits since 0.14.",
        paths=lmdeploy.PATHS,
        make=plain(lmdeploy.LmdeployReader),
        rank_of=no_rank,
        command=lmdeploy_command.COMMAND,
        signs=Signs(pages=(Sign(METRICS, lines_of("lmdeploy:")),)),
        log=lmdeploy_log.FORMAT,
        flags=lmdeploy_command.FLAGS,
        is_one_process=True,
    ),
    "lightllm": Engine(
        name="lightllm",
        title="LightLLM",
        versions="1.0 to 1.1",
        tells=frozenset({"capacity", "used", "requests", "tokens", "prefix hits", "first token"}),
        limits="A ratio unless it is started with `--max_total_token_num`. Cached tokens count as available.",
        paths=lightllm.PATHS,
        make=lightllm.LightLlmReader,
        rank_of=no_rank,
        command=lightllm_command.COMMAND,
        signs=Signs(pages=(Sign(METRICS, lines_of("lightllm_")),)),
        flags=lightllm_command.FLAGS,
    ),
    "nim": Engine(
        name="nim",
        title="NVIDIA NIM for LLMs",
        versions="1.x to 2.1",
        tells=frozenset(
            {"capacity", "used", "cached", "requests", "preemptions", "tokens", "prefix hits", "first token"}
        ),
        limits=(
            "As the engine inside (vLLM, SGLang, TensorRT-LLM) where its names are there; those of 1.x tell a ratio, "
            "requests, tokens and the first token. From 2.0 on the engine inside is found, so no settings are needed."
        ),
        paths=nim.PATHS,
        make=plain(nim.NimReader),
        rank_of=lambda title: vllm_rank_of(title) or sglang_rank_of(title),
        command=nim_command.COMMAND,
        signs=Signs(pages=(Sign(nim.METRICS, any_series),)),
        flags=nim_command.FLAGS,
        holds_checkpoint=False,
    ),
    "dynamo_trtllm": Engine(
        name="dynamo_trtllm",
        title="TensorRT-LLM in NVIDIA Dynamo",
        versions="0.x to 1.6",
        tells=frozenset({"capacity", "used", "requests", "tokens", "prefix hits", "first token", "KV elsewhere"}),
        limits="Needs `DYN_SYSTEM_PORT`. As TensorRT-LLM.",
        paths=dynamo_trtllm.PATHS,
        make=plain(dynamo_trtllm.DynamoTrtLlmReader),
        rank_of=no_rank,
        command=dynamo_trtllm_command.COMMAND,
        signs=Signs(pages=(Sign(METRICS, lines_of("trtllm_", "dynamo_component_")),)),
        flags=dynamo_trtllm_command.FLAGS,
        log=tensorrt_llm_log.FORMAT,
    ),
}

_SIGNS = {name: engine.signs for name, engine in ENGINES.items()}


def _search(endpoint: Endpoint, *, clock: Callable[[], float]) -> EngineReader:
    return EngineSearch(endpoint, clock=clock, signs=_SIGNS)


UNKNOWN = Engine(
    name="",
    title="not known yet",
    versions="",
    tells=frozenset(),
    paths=frozenset({MODELS}).union(*(signs.paths for signs in _SIGNS.values())),
    make=plain(_search),
    rank_of=no_rank,
    command=ReadCommand(marks=(), read=lambda words, read: None, package=""),
    signs=Signs(pages=()),
    holds_checkpoint=False,
)
"""That of a server of which nobody has said yet which it is: it is asked until that is known."""


def engine_of(name: str | None) -> Engine:
    """The engine of this name; None: not known."""
    return UNKNOWN if name is None else ENGINES[name]
