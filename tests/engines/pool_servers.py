"""Real servers with a small pool, as a load and a recording of it need them; slowed, so that it fills in minutes."""

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import psutil

from tests.engines.agreement import log_of
from tests.engines.tiny_models import make_llama
from tests.engines.vllm_server import VllmServer
from tests.engines.watched_llama_cpp import WatchedLlamaCpp
from tests.engines.watched_sglang import WatchedSglang


class Filled(Protocol):
    """A context manager; ``tokens`` is the pool's size, ``holders`` are the processes that hold memory."""

    engine: ClassVar[str]
    url: str
    model: Path
    log: Path

    @property
    def tokens(self) -> int: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *raised: Any) -> None: ...

    def holders(self) -> Sequence[int]: ...

    def question(self, prompt: str, answer_tokens: int) -> tuple[str, dict[str, object]]: ...

    def shortages(self) -> int: ...


class FilledVllm:
    """Preempts. A step of its own takes some 10 ms; it goes a quarter of the time."""

    engine: ClassVar[str] = "vllm"
    tokens = 512 * 32

    def __init__(self, command: Path, folder: Path) -> None:
        self.model = make_llama(folder / "tiny-llama").path
        self.log = folder / "server.log"
        pool = ("--num-gpu-blocks-override", str(1 + self.tokens // 32), "--block-size", "32")
        limits = ("--max-model-len", "8192", "--max-num-seqs", "32")  # the last one given counts
        self._server = VllmServer(
            command=command, model=self.model, name="tiny-llama", log=self.log, arguments=(*pool, *limits)
        )
        self.url = self._server.url
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self._server)
        self._stack.enter_context(slowed(self.holders(), going=0.02, standing=0.06))
        return self

    def __exit__(self, *raised: Any) -> None:
        self._stack.close()

    def holders(self) -> Sequence[int]:
        return self._server.engine_pids()

    def question(self, prompt: str, answer_tokens: int) -> tuple[str, dict[str, object]]:
        body = {"model": "tiny-llama", "prompt": prompt, "max_tokens": answer_tokens, "ignore_eos": True}
        return "/v1/completions", {**body, "temperature": 0}

    def shortages(self) -> int:
        return int(self._server.scrape().value("vllm:num_preemptions_total"))


class FilledSglang:
    """Retracts. It goes a quarter of the time; with kernels replaced it is slow as it is, so its pool is smaller."""

    engine: ClassVar[str] = "sglang"
    tokens = 8192

    def __init__(self, python: Path, folder: Path) -> None:
        limits = (
            "--max-total-tokens",
            str(self.tokens),
            "--context-length",
            str(self.tokens),
            "--max-running-requests",
            "32",
        )
        self._server = WatchedSglang(python, folder, arguments=limits)
        self.model, self.log, self.url = self._server.model, self._server.log, self._server.url
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self._server)
        self._stack.enter_context(slowed(self.holders(), going=0.02, standing=0.06))
        return self

    def __exit__(self, *raised: Any) -> None:
        self._stack.close()

    def holders(self) -> Sequence[int]:
        return (self._server.scheduler.pid,)

    def question(self, prompt: str, answer_tokens: int) -> tuple[str, dict[str, object]]:
        body = {"model": "default", "prompt": prompt, "max_tokens": answer_tokens, "logit_bias": {"2": -100}}
        return "/v1/completions", {**body, "temperature": 0}

    def shortages(self) -> int:
        return self._server.of_pages(self._server.tell().pages).preemptions or 0


class FilledLlamaCpp:
    """Fails all that run. It goes a quarter of the time; while it stands still it does not answer the agent either."""

    engine: ClassVar[str] = "llama_cpp"
    tokens = 16384

    def __init__(self, python: Path, folder: Path) -> None:
        self._server = WatchedLlamaCpp(python, folder, cells=self.tokens, slots=24, verbosity=4)
        self.model, self.log, self.url = self._server.model, self._server.log, self._server.url
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self._server)
        self._stack.enter_context(slowed(self.holders(), going=0.03, standing=0.09))
        return self

    def __exit__(self, *raised: Any) -> None:
        self._stack.close()

    def holders(self) -> Sequence[int]:
        return (self._server.pid,)

    def question(self, prompt: str, answer_tokens: int) -> tuple[str, dict[str, object]]:
        return "/completion", {"prompt": prompt, "n_predict": answer_tokens, "ignore_eos": True, "cache_prompt": False}

    def shortages(self) -> int:
        return len(re.findall("send_error: .*Context size has been exceeded", log_of(self.log)))


@contextmanager
def slowed(pids: Sequence[int], *, going: float, standing: float) -> Iterator[None]:
    """Processes that stand still for a part of each moment, as a smaller machine would compute less."""
    processes, over = [psutil.Process(pid) for pid in pids], threading.Event()

    def pace() -> None:
        while not over.wait(going):
            _each(processes, lambda one: one.suspend())
            over.wait(standing)
            _each(processes, lambda one: one.resume())

    pacer = threading.Thread(target=pace)
    pacer.start()
    try:
        yield
    finally:
        over.set()
        pacer.join()


def _each(processes: Sequence[psutil.Process], do: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            do(process)
