"""Real servers with a small pool, as a load and a recording of it need them; slowed, so that it fills in minutes."""

import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import psutil

from tests.engines.agreement import log_of
from tests.engines.tiny_models import make_llama
from tests.engines.vllm_server import VllmServer
from tests.engines.watched_llama_cpp import WatchedLlamaCpp
from tests.engines.watched_sglang import WatchedSglang

_PACE_SECONDS, _MOST_CREDIT_SECONDS = 0.02, 0.1


class Filled(Protocol):
    """A context manager; ``tokens`` is the pool's size, ``holders`` are the processes that hold memory."""

    engine: ClassVar[str]
    url: str
    model: Path
    log: Path
    arguments: dict[str, int | bool]

    @property
    def tokens(self) -> int: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *raised: Any) -> None: ...

    def holders(self) -> Sequence[int]: ...

    def question(self, prompt: str, answer_tokens: int) -> tuple[str, dict[str, object]]: ...

    def shortages(self) -> int: ...


class _Slowed(ABC):
    """A server that gets a part of a core while it is entered."""

    cores: ClassVar[float]
    _server: AbstractContextManager[object]

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        self._stack.enter_context(self._server)
        self._stack.enter_context(slowed(self.holders(), cores=self.cores))
        return self

    def __exit__(self, *raised: Any) -> None:
        self._stack.close()

    @abstractmethod
    def holders(self) -> Sequence[int]: ...


class FilledVllm(_Slowed):
    """Preempts. It gets a third of a core."""

    engine: ClassVar[str] = "vllm"
    cores: ClassVar[float] = 0.35
    tokens = 512 * 32

    def __init__(self, command: Path, folder: Path) -> None:
        self.model = make_llama(folder / "tiny-llama").path
        self.log = folder / "server.log"
        pool: dict[str, int | bool] = {"num-gpu-blocks-override": 1 + self.tokens // 32, "block-size": 32}
        self.arguments = {**pool, "max-model-len": 8192, "max-num-seqs": 32}
        flags = _flags(self.arguments)  # the last one given counts
        self._server: VllmServer = VllmServer(
            command=command, model=self.model, name="tiny-llama", log=self.log, arguments=flags
        )
        self.url = self._server.url

    def holders(self) -> Sequence[int]:
        return self._server.engine_pids()

    def question(self, prompt: str, answer_tokens: int) -> tuple[str, dict[str, object]]:
        body = {"model": "tiny-llama", "prompt": prompt, "max_tokens": answer_tokens, "ignore_eos": True}
        return "/v1/completions", {**body, "temperature": 0}

    def shortages(self) -> int:
        return int(self._server.scrape().value("vllm:num_preemptions_total"))


class FilledSglang(_Slowed):
    """Retracts. It gets a third of a core; with kernels replaced it is slow as it is, so its pool is small.

    Its gauges are renewed every other step: as often as those of a server that makes its usual 40 in a second.
    """

    engine: ClassVar[str] = "sglang"
    cores: ClassVar[float] = 0.35
    tokens = 2048

    def __init__(self, python: Path, folder: Path) -> None:
        sizes: dict[str, int | bool] = {"max-total-tokens": self.tokens, "context-length": self.tokens}
        self.arguments = {**sizes, "max-running-requests": 32}
        flags = _flags({**self.arguments, "decode-log-interval": 2})
        self._server: WatchedSglang = WatchedSglang(python, folder, arguments=flags)
        self.model, self.log, self.url = self._server.model, self._server.log, self._server.url

    def holders(self) -> Sequence[int]:
        return (self._server.scheduler.pid,)

    def question(self, prompt: str, answer_tokens: int) -> tuple[str, dict[str, object]]:
        body = {"model": "default", "prompt": prompt, "max_tokens": answer_tokens, "logit_bias": {"2": -100}}
        return "/v1/completions", {**body, "temperature": 0}

    def shortages(self) -> int:
        return self._server.of_pages(self._server.tell().pages).preemptions or 0


class FilledLlamaCpp(_Slowed):
    """Fails all that run. It gets a quarter of a core; while it stands still it does not answer the agent either."""

    engine: ClassVar[str] = "llama_cpp"
    cores: ClassVar[float] = 0.25
    tokens = 8192

    def __init__(self, python: Path, folder: Path) -> None:
        self.arguments: dict[str, int | bool] = {"ctx-size": self.tokens, "parallel": 24, "kv-unified": True}
        self._server: WatchedLlamaCpp = WatchedLlamaCpp(python, folder, cells=self.tokens, slots=24, verbosity=4)
        self.model, self.log, self.url = self._server.model, self._server.log, self._server.url

    def holders(self) -> Sequence[int]:
        return (self._server.pid,)

    def question(self, prompt: str, answer_tokens: int) -> tuple[str, dict[str, object]]:
        return "/completion", {"prompt": prompt, "n_predict": answer_tokens, "ignore_eos": True, "cache_prompt": False}

    def shortages(self) -> int:
        return len(re.findall("send_error: .*Context size has been exceeded", log_of(self.log)))


def _flags(arguments: Mapping[str, int | bool]) -> tuple[str, ...]:
    return tuple(word for name, value in arguments.items() for word in (f"--{name}", str(value)))


@contextmanager
def slowed(pids: Sequence[int], *, cores: float) -> Iterator[None]:
    """Processes that together get no more than a part of a core: they stand still when they had it."""
    processes, over = [psutil.Process(pid) for pid in pids], threading.Event()

    def pace() -> None:
        credit, last, used = 0.0, time.monotonic(), _cpu_seconds(processes)
        while not over.wait(_PACE_SECONDS):
            now, spent = time.monotonic(), _cpu_seconds(processes)
            credit = min(_MOST_CREDIT_SECONDS, credit + cores * (now - last) - (spent - used))
            last, used = now, spent
            _let_go(processes, credit >= 0)
        _let_go(processes, True)

    pacer = threading.Thread(target=pace)
    pacer.start()
    try:
        yield
    finally:
        over.set()
        pacer.join()


def _cpu_seconds(processes: Sequence[psutil.Process]) -> float:
    total = 0.0
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def _let_go(processes: Sequence[psutil.Process], goes: bool) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.resume() if goes else process.suspend()
