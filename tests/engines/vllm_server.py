"""A real ``vllm serve`` on a loopback port: started, waited for, asked, killed and cleaned up, with its log kept."""

import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import httpx
import psutil
from msgspec import Struct

from tests.engines.scrape import Scrape
from tests.engines.standing import standing_still

BLOCKS = 100
BLOCK_SIZE = 32
MAX_MODEL_LEN = 2048
SMALL_POOL = ("--num-gpu-blocks-override", str(BLOCKS), "--block-size", str(BLOCK_SIZE))
CACHE_BYTES = 2**30  # VLLM_CPU_KVCACHE_SPACE is in GiB
FP8_REFUSED = "FP8 KV cache on CPU requires x86 with AVX-512 or AMX"
READY_SECONDS = 300.0
STOP_SECONDS = 30.0


class ServerFailed(Exception):
    """The server ended or did not get ready in time; the message has the first error of its log."""


class Planned(Struct, frozen=True, kw_only=True):
    """What the engine planned, from its log."""

    tokens: int
    concurrency: float


class VllmServer:
    """A context manager; ``start`` may be called again after ``kill`` (same port, as a supervisor would).

    ``entry`` is how it is called, with its model, where that is not ``vllm serve MODEL``. ``variables`` are added to
    its environment.
    """

    def __init__(
        self,
        *,
        command: Path,
        model: Path,
        name: str,
        log: Path,
        arguments: Sequence[str] = (),
        entry: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.name = name
        self.log = log
        self.command_line = [
            *("nice", "-n", "10"),
            *(entry or (str(command), "serve", str(model))),
            *("--served-model-name", name),
            *("--host", "127.0.0.1", "--port", str(self.port), "--max-model-len", str(MAX_MODEL_LEN)),
            *("--max-num-seqs", "8", "--enforce-eager", *arguments),
        ]
        self._variables = dict(variables or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._seen: dict[int, psutil.Process] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start and wait until it serves.

        Raises:
            ServerFailed: it ended, or was not ready within ``READY_SECONDS``.
        """
        environment = os.environ | {
            "VLLM_CPU_KVCACHE_SPACE": str(CACHE_BYTES // 2**30),
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            "NO_PROXY": "127.0.0.1",
            **self._variables,
        }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command_line, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )
        try:
            wait_until(self._ready, READY_SECONDS, what="a ready server")
        except (TimeoutError, ServerFailed) as exc:
            self.kill()
            raise ServerFailed(f"{exc}: {self._first_error()} ({self.log})") from exc
        self._leave_a_core_to_answers()

    def stop(self) -> None:
        """Ask it to end, then end whatever is left of it."""
        if self._process is not None and self._process.poll() is None:
            self._remember()
            self._process.terminate()
            self._wait_gone(STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        """SIGKILL to all its processes at once; returns when none is left."""
        if self._process is None:
            return
        self._remember()
        for process in self._seen.values():
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self._process.wait()
        self._wait_gone(STOP_SECONDS)
        self._process = None
        self._seen.clear()

    def processes(self) -> list[psutil.Process]:
        """The process that listens, then all its descendants."""
        if self._process is None:
            return []
        main = psutil.Process(self._process.pid)
        return [main, *main.children(recursive=True)]

    def engine_pids(self) -> tuple[int, int]:
        """The engine core, and the worker that holds weights and KV cache."""
        titles = {process.cmdline()[0]: process.pid for process in self.processes()}
        return titles["VLLM::EngineCore"], titles["VLLM::Worker"]

    @contextmanager
    def held(self, wanted: Callable[[Scrape], bool], *, seconds: float = 90.0) -> Iterator[Scrape]:
        """Stop the engine at a moment that is wanted, and let it go on after: what it exposes stands still meanwhile.

        The API server goes on answering.

        Raises:
            TimeoutError: there was no such moment.
        """
        engine = [psutil.Process(pid) for pid in self.engine_pids()]
        with standing_still(engine, self.scrape, wanted, seconds=seconds) as scrape:
            yield scrape

    def scrape(self) -> Scrape:
        return Scrape(self.get("/metrics"))

    def get(self, path: str) -> str:
        return httpx.get(self.url + path, timeout=10, trust_env=False).raise_for_status().text

    def complete(self, prompt: str, *, max_tokens: int) -> int:
        """One completion of exactly so many tokens; returns how many came."""
        body = {"model": self.name, "prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True, "temperature": 0}
        url = self.url + "/v1/completions"
        answer = httpx.post(url, json=body, timeout=600, trust_env=False).raise_for_status().json()
        return int(answer["usage"]["completion_tokens"])

    def planned(self) -> Planned:
        line = r"KV cache size: ([\d,]+) tokens, Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x"
        found = re.search(line, self.log_text())
        assert found is not None, self.log
        return Planned(tokens=int(found[1].replace(",", "")), concurrency=float(found[2]))

    def log_text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def _ready(self) -> bool:
        if self._process is not None and self._process.poll() is not None:
            raise ServerFailed(f"vllm serve ended with {self._process.returncode} before it was ready")
        try:
            return httpx.get(self.url + "/health", timeout=5, trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    def _first_error(self) -> str:
        lines = [line for line in self.log_text().splitlines() if " WARNING " not in line]
        errors = (found[0] for line in lines if (found := re.search(r"\w+Error: .+", line)))
        return next(errors, "no error in its log")

    def _leave_a_core_to_answers(self) -> None:
        """The engine gets one core: a tiny model makes so many steps that ``/metrics`` had no turn for 40 s."""
        core = min(os.sched_getaffinity(0))
        for process in self.processes()[1:]:
            for thread in process.threads():
                with suppress(ProcessLookupError):
                    os.sched_setaffinity(thread.id, {core})

    def _remember(self) -> None:
        """Descendants are listed before the parent ends: an orphan could not be found from it any more."""
        try:
            self._seen |= {process.pid: process for process in self.processes()}
        except psutil.NoSuchProcess:
            return

    def _wait_gone(self, seconds: float) -> None:
        if self._process is not None:
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
        psutil.wait_procs(list(self._seen.values()), timeout=seconds)


class Completes(Protocol):
    """A server that is asked for completions; returns how many tokens came."""

    def complete(self, prompt: str, *, max_tokens: int) -> int: ...


class Load:
    """Completions, each to its full length, begun a second apart; leaving waits for all and fails if one failed.

    Without ``until_left`` each client asks once, else again and again until the block is left, also after an answer
    that was cut or refused. As they are by default they outgrow the small pool.
    """

    def __init__(
        self, server: Completes, *, clients: int = 6, max_tokens: int = 1500, until_left: bool = False
    ) -> None:
        self._server = server
        self._max_tokens = max_tokens
        self._last_round = threading.Event()
        if not until_left:
            self._last_round.set()
        self._pool = ThreadPoolExecutor(max_workers=clients)
        self._futures: list[Future[int]] = [self._pool.submit(self._ask, number) for number in range(clients)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._last_round.set()
        self._pool.shutdown(wait=True)
        if value is not None:
            value.add_note(f"load: {[future.exception() or future.result() for future in self._futures]}")
        else:
            assert {future.result() for future in self._futures} == {self._max_tokens}

    def running(self) -> bool:
        """Whether a client has not ended; fails if one failed."""
        done = [future.result() for future in self._futures if future.done()]
        return len(done) < len(self._futures)

    def _ask(self, number: int) -> int:
        """The tokens of the last answer."""
        time.sleep(float(number))
        prompt = f"{number} " * 32  # 64 bytes = 64 tokens; all different, so that no prefix is shared
        while True:
            try:
                tokens = self._server.complete(prompt, max_tokens=self._max_tokens)
            except httpx.HTTPStatusError:
                if self._last_round.is_set():
                    raise
                time.sleep(1.0)
                continue
            if self._last_round.is_set():
                return tokens


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_until(condition: Callable[[], bool], seconds: float, *, what: str, every: float = 0.25) -> None:
    """Poll until true.

    Raises:
        TimeoutError: it was not within that time.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:.0f} s for {what} in vain")
        time.sleep(every)
