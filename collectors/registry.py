"""The literal map of engines: one entry each, nothing registers itself."""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from collectors.discovery.command import ReadCommand
from collectors.engine_logs import sglang as sglang_log
from collectors.engine_logs import vllm as vllm_log
from collectors.engine_logs.shapes import LogFormat
from collectors.http_text import Endpoint
from collectors.readings import RankTitle, ServerReading
from collectors.sglang import command as sglang_command
from collectors.sglang import reader as sglang
from collectors.sglang.titles import rank_of as sglang_rank_of
from collectors.vllm import command as vllm_command
from collectors.vllm import reader as vllm
from collectors.vllm.titles import rank_of as vllm_rank_of


class EngineReader(Protocol):
    """Reads one server of an engine."""

    async def read(self) -> ServerReading:
        """The server now. Raises: CollectorError."""


class Opener(Protocol):
    def __call__(self, endpoint: Endpoint, *, clock: Callable[[], float]) -> EngineReader: ...


class Engine(Struct, frozen=True, kw_only=True):
    """How one engine is read.

    ``paths``: the only ones ever requested; ``rank_of``: the rank a process title names; ``command``: how its servers
    are told among all processes; ``log``: what its log says.
    """

    name: str
    paths: frozenset[str]
    open: Opener
    rank_of: Callable[[str], RankTitle | None]
    command: ReadCommand
    log: LogFormat | None = None


ENGINES: dict[str, Engine] = {
    "vllm": Engine(
        name="vllm",
        paths=vllm.PATHS,
        open=vllm.VllmReader,
        rank_of=vllm_rank_of,
        command=vllm_command.COMMAND,
        log=vllm_log.FORMAT,
    ),
    "sglang": Engine(
        name="sglang",
        paths=sglang.PATHS,
        open=sglang.SglangReader,
        rank_of=sglang_rank_of,
        command=sglang_command.COMMAND,
        log=sglang_log.FORMAT,
    ),
}
