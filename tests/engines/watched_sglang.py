"""A real SGLang (kernels replaced) that is overfilled until requests are retracted."""

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Self

import httpx
import psutil

from tests.engines.agreement import Figures, Told, disagreements, log_of
from tests.engines.scrape import Scrape
from tests.engines.standing import standing_still
from tests.engines.tiny_models import make_llama
from tests.engines.vllm_server import Load, ServerFailed, free_port, wait_until

SLOTS, REQUESTS, ANSWER = 1200, 4, 450
_START_SECONDS, _SECONDS = 600.0, 600.0
_FLAGS = (
    *("--device", "cpu", "--load-format", "dummy", "--enable-metrics", "--host", "127.0.0.1"),
    *("--attention-backend", "torch_native", "--sampling-backend", "pytorch", "--disable-cuda-graph"),
    *("--max-running-requests", "8", "--skip-server-warmup", "--schedule-conservativeness", "0.05"),
    *("--max-total-tokens", str(SLOTS), "--context-length", "1024"),
)
_CAPACITY = re.compile(r" max_total_num_tokens=(\d+),")
_BATCH = re.compile(r"(?P<kind>Decode|Prefill) batch.*?#running-req: (?P<running>\d+)(?:, #token: (?P<used>\d+))?")
_QUEUED = re.compile(r"#queue-req: (\d+)")
_ENDED = '"POST /v1/completions'
_RETRACTED = re.compile(r"KV cache pool is full\. Retract requests\. #retracted_reqs: (\d+)")


class WatchedSglang:
    """Idle, growing, with retracted requests, and with nothing but prefixes left."""

    engine: ClassVar[str] = "sglang"
    points: ClassVar[tuple[str, ...]] = ("idle", "growing", "retracted", "after")
    moving: ClassVar[tuple[str, ...]] = ()
    bytes_per_token: ClassVar[int] = 2 * 2 * 2 * 32 * 2  # layers x (K and V) x heads x width x 2 bytes
    pool_bytes: ClassVar[int] = (SLOTS + 1) * bytes_per_token  # one slot is the engine's own

    def __init__(
        self,
        python: Path,
        folder: Path,
        *,
        variables: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        self.model = make_llama(folder / "tiny-sglang").path
        self.log = folder / "sglang.log"
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        start = ("-m", "sglang.launch_server", "--model-path", str(self.model), "--port", str(port))
        self._command = [str(python), *start, *_FLAGS, *arguments]
        self._variables = dict(variables or {})
        self._load = ExitStack()

    def __enter__(self) -> Self:
        environment = os.environ | {"SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1", "NO_PROXY": "127.0.0.1"}
        environment |= self._variables
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                self._command, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )
        try:
            wait_until(self._is_ready, _START_SECONDS, what="SGLang", every=1.0)
            self.complete("warm up", max_tokens=8)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *raised: Any) -> None:
        self._end()
        self._load.__exit__(*raised)

    @property
    def pid(self) -> int:
        """Of the process that listens."""
        return self._process.pid

    @property
    def scheduler(self) -> psutil.Process:
        """It holds the memory."""
        (found,) = (
            process
            for process in psutil.Process(self._process.pid).children(recursive=True)
            if "scheduler" in " ".join(process.cmdline())
        )
        return found

    def complete(self, prompt: str, *, max_tokens: int) -> int:
        """One answer that does not end by itself. (Told to ignore its end, it would not be admitted beside others.)"""
        body = {"model": "default", "prompt": prompt, "max_tokens": max_tokens, "logit_bias": {"2": -100}}
        answer = httpx.post(f"{self.url}/v1/completions", json=body, timeout=_SECONDS, trust_env=False)
        return int(answer.raise_for_status().json()["usage"]["completion_tokens"])

    @contextmanager
    def at(self, point: str) -> Iterator[None]:
        if point == "growing":
            self._load.enter_context(Load(self, clients=REQUESTS, max_tokens=ANSWER, until_left=True))
        if point == "after":
            self._load.close()
        with self._held(_WANTED[point]):
            yield

    def tell(self) -> Told:
        return Told(pages=self._pages(), log=log_of(self.log))

    def _pages(self) -> dict[str, str]:
        return {"/metrics": httpx.get(f"{self.url}/metrics", timeout=60, trust_env=False).raise_for_status().text}

    @staticmethod
    def of_pages(pages: Mapping[str, str]) -> Figures:
        """The counter of retractions is there from the first on."""
        page = Scrape(pages["/metrics"])

        def value(name: str, **labels: str) -> int | None:
            found = page.all(f"sglang:{name}", **labels)
            return int(found[0][1]) if found else None

        computed, hit = (value("realtime_tokens_total", mode=f"prefill_{kind}") for kind in ("compute", "cache"))
        return Figures(
            capacity_tokens=value("max_total_num_tokens"),
            used_tokens=value("kv_used_tokens"),
            cached_tokens=value("kv_evictable_tokens"),
            free_tokens=value("kv_available_tokens"),
            running=value("num_running_reqs"),
            waiting=value("num_queue_reqs"),
            preemptions=value("num_retracted_requests_total"),
            prompt_tokens=None if computed is None else computed + (hit or 0),
            generation_tokens=value("realtime_tokens_total", mode="decode"),
            first_tokens=value("time_to_first_token_seconds_count"),
        )

    @staticmethod
    def of_log(log: str) -> Figures:
        """The last batch, if it decoded (of others the log has no tokens) and nothing of it has ended since."""
        last = next(iter(reversed(list(_BATCH.finditer(log)))), None)
        retracted = sum(map(int, _RETRACTED.findall(log)))
        figures = Figures(capacity_tokens=int(_CAPACITY.findall(log)[-1]), preemptions=retracted or None)
        if last is None or last["used"] is None or _ENDED in log[last.end() :]:
            return figures
        return Figures(
            capacity_tokens=figures.capacity_tokens,
            preemptions=figures.preemptions,
            used_tokens=int(last["used"]),
            running=int(last["running"]),
            waiting=int(_QUEUED.findall(log)[-1]),
        )

    @staticmethod
    def excerpt(log: str) -> str:
        """Of a part of the log: the capacity, retractions, and the last batch."""
        lines = log.splitlines()
        batch = max((number for number, line in enumerate(lines) if _BATCH.search(line)), default=-1)
        kept = (
            line
            for number, line in enumerate(lines)
            if number == batch
            or _CAPACITY.search(line)
            or _RETRACTED.search(line)
            or (number > batch and _ENDED in line)
        )
        return "".join(f"{line}\n" for line in kept)

    def _end(self) -> None:
        """All of its processes: they are one session."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)

    def _is_ready(self) -> bool:
        if self._process.poll() is not None:
            raise ServerFailed(f"SGLang ended with {self._process.returncode}: {self.log.read_text()[-2000:]}")
        with suppress(httpx.HTTPError):
            return "sglang:max_total_num_tokens" in self._pages()["/metrics"]
        return False

    @contextmanager
    def _held(self, wanted: Callable[[Figures], bool]) -> Iterator[None]:
        """The scheduler stands still after a batch of which the log has the tokens, and the gauges are of the same."""

        def is_wanted(page: Scrape) -> bool:
            said = self.of_pages({"/metrics": page.text})
            logged = self.of_log(log_of(self.log))
            has_batch = logged.used_tokens is not None or not said.running
            return wanted(said) and has_batch and not disagreements(said, logged, logged)

        with standing_still([self.scheduler], lambda: Scrape(self._pages()["/metrics"]), is_wanted, seconds=_SECONDS):
            yield


def _is_idle(said: Figures) -> bool:
    return said.running == said.used_tokens == 0


_WANTED: dict[str, Callable[[Figures], bool]] = {
    "idle": _is_idle,
    "growing": lambda said: bool(said.running and said.used_tokens),
    "retracted": lambda said: bool(said.running and said.preemptions),
    "after": lambda said: _is_idle(said) and bool(said.cached_tokens),
}
