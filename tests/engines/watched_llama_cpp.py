"""A real llama.cpp server whose slots share one cache, filled until its requests are refused."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Self

import httpx

from tests.engines.agreement import Figures, Told, log_of
from tests.engines.tiny_ggufs import llama
from tests.engines.vllm_server import ServerFailed, free_port, wait_until

CELLS, SLOTS, REQUESTS, ANSWER = 4096, 4, 6, 1500  # four answers fill the cells, two do not
_SCRIPT = Path(__file__).with_name("run_llama_server.py")
_START_SECONDS, _SECONDS = 120.0, 600.0
_STOPPED_SECONDS, _GOING_SECONDS = 0.15, 0.03
_CONTEXT = re.compile(r"llama_context: n_ctx += (\d+)$", re.M)
_REFUSED = "send_error: task id = "
_STEPS = re.compile(
    r"slot +(?P<what>launch_slot_|handle_last_|release|prompt_clear): id +(?P<slot>\d+) \| task (?P<task>-?\d+) \|"
    r" (?:processing task|slot decode token,.* n_tokens = (?P<step>\d+)|stop processing: n_tokens = (?P<kept>\d+)"
    r"|clearing prompt)"
)


class WatchedLlamaCpp:
    """Idle; with one answer's prefix kept; growing, with requests deferred; and after its cache was full."""

    engine: ClassVar[str] = "llama_cpp"
    points: ClassVar[tuple[str, ...]] = ("idle", "cached", "growing", "refused")
    moving: ClassVar[tuple[str, ...]] = ("growing",)
    bytes_per_token: ClassVar[int] = 4 * 2 * 2 * 32 * 2  # layers x (K and V) x heads x width x 2 bytes
    pool_bytes: ClassVar[int] = CELLS * bytes_per_token

    def __init__(
        self, python: Path, folder: Path, *, cells: int = CELLS, slots: int = SLOTS, verbosity: int = 5
    ) -> None:
        self.model = llama(context=2 * cells).write(folder / "tiny-llama-cpp.gguf")
        self._sizes = ("-c", cells, "-np", slots, "-lv", verbosity)
        self.log = folder / "llama_cpp.log"
        self._packages = next((python.parent.parent / "lib").glob("python3*/site-packages"))
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._client = httpx.Client(base_url=self.url, timeout=60, trust_env=False)
        self._pool = ThreadPoolExecutor(max_workers=REQUESTS)
        self._answers: list[Future[int]] = []

    def __enter__(self) -> Self:
        """Under its program's name and flags: the log has every token, and no thread waits for another."""
        words = ("-m", self.model, "--port", self._port, "-kvu", "--metrics", "-t", 1, *self._sizes)
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                ["llama-server", str(_SCRIPT), *map(str, words)],
                executable=Path(sys.executable).resolve(),
                env={**os.environ, "PYTHONPATH": str(self._packages)},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_until(self._is_ready, _START_SECONDS, what="llama.cpp")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *raised: Any) -> None:
        self._process.kill()
        self._process.wait()
        self._pool.shutdown()
        self._client.close()

    @property
    def pid(self) -> int:
        """Of the one process."""
        return self._process.pid

    @contextmanager
    def at(self, point: str) -> Iterator[None]:
        if point == "cached":
            assert self._complete(0, 100) == 200
            self._await_idle()
        if point == "refused":
            assert sorted(answer.result() for answer in self._answers) == [200] * (REQUESTS - SLOTS) + [500] * SLOTS
            self._await_idle()
        if point != "growing":
            yield
            return
        with self._slowed():
            self._answers = [self._pool.submit(self._complete, seed, ANSWER) for seed in range(REQUESTS)]
            wait_until(self._grows, _SECONDS, what="busy slots and deferred requests")
            yield

    def tell(self) -> Told:
        """Answers, and the log once its own thread has written as much."""
        pages = self._pages()
        logged = ""

        def has_caught_up() -> bool:
            nonlocal logged
            logged = log_of(self.log)
            said, log = self.of_pages(pages), self.of_log(logged)
            return said.running == log.running and _held(said) <= _held(log)

        wait_until(has_caught_up, _SECONDS, what="the log of llama.cpp")
        return Told(pages=pages, log=logged)

    def _pages(self) -> dict[str, str]:
        """Slots without their sampling parameters."""
        slots = [{**slot, "params": {}} if "params" in slot else slot for slot in self._json("/slots")]
        props = self._json("/props")
        known = ("build_info", "total_slots", "model_path", "model_alias", "default_generation_settings", "is_sleeping")
        props = {name: props[name] for name in known if name in props}
        props["default_generation_settings"] = {"n_ctx": props["default_generation_settings"]["n_ctx"]}
        metrics = self._client.get("/metrics").text
        return {"/props": json.dumps(props), "/slots": json.dumps(slots), "/metrics": metrics}

    @staticmethod
    def of_pages(pages: Mapping[str, str]) -> Figures:
        """Its slots share what each of them says that it has; an answer's tokens are counted when it ends."""
        slots = json.loads(pages["/slots"])
        used, cached = (
            sum(slot.get("n_prompt_tokens", 0) for slot in slots if slot["is_processing"] is busy)
            for busy in (True, False)
        )
        counters = _counters(pages["/metrics"])
        return Figures(
            capacity_tokens=slots[0]["n_ctx"],
            used_tokens=used,
            cached_tokens=cached,
            free_tokens=slots[0]["n_ctx"] - used - cached,
            running=counters["requests_processing"],
            waiting=counters["requests_deferred"],
            prompt_tokens=counters["prompt_tokens_total"] + counters["prompt_tokens_cached_total"],
            generation_tokens=counters["tokens_predicted_total"],
        )

    @staticmethod
    def of_log(log: str) -> Figures:
        """Each slot by its last line: busy since its launch, one token more with each step, cleared when refused."""
        busy: dict[str, bool] = {}
        held: dict[str, int] = {}
        for line in _STEPS.finditer(log):
            slot, what = line["slot"], line["what"]
            if what == "handle_last_":
                held[slot] = int(line["step"]) + 1
            elif what == "release":
                busy[slot], held[slot] = False, int(line["kept"])
            elif what == "prompt_clear":
                held[slot] = 0
            else:
                busy[slot] = True
        return Figures(
            capacity_tokens=int(_CONTEXT.findall(log)[-1]),
            used_tokens=sum(tokens for slot, tokens in held.items() if busy.get(slot)),
            cached_tokens=sum(tokens for slot, tokens in held.items() if not busy.get(slot)),
            running=sum(busy.values()),
            refusals=sum(_REFUSED in line and "Context size has been exceeded" in line for line in log.splitlines()),
        )

    @staticmethod
    def excerpt(log: str) -> str:
        """Of a part of the log: the context, what begins and ends, and of each slot the last step."""
        lines = log.splitlines()
        steps = {found["slot"]: number for number, line in enumerate(lines) if (found := _step(line))}
        kept = (
            line
            for number, line in enumerate(lines)
            if _CONTEXT.search(line)
            or _REFUSED in line
            or (_STEPS.search(line) and not _step(line))
            or number in steps.values()
        )
        return "".join(f"{line}\n" for line in kept)

    def _json(self, path: str) -> Any:
        return self._client.get(path).raise_for_status().json()

    def _complete(self, seed: int, tokens: int) -> int:
        body = {"prompt": "x" * 60, "n_predict": tokens, "ignore_eos": True, "seed": seed}
        return httpx.post(f"{self.url}/completion", json=body, timeout=_SECONDS, trust_env=False).status_code

    def _is_ready(self) -> bool:
        if self._process.poll() is not None:
            raise ServerFailed(f"llama.cpp ended with {self._process.returncode}: {self.log.read_text()[-500:]}")
        with suppress(httpx.TransportError):
            return self._client.get("/health").status_code == 200
        return False

    def _grows(self) -> bool:
        figures = self.of_pages(self._pages())
        is_loaded = (figures.running, figures.waiting) == (SLOTS, REQUESTS - SLOTS)
        return is_loaded and (figures.used_tokens or 0) > CELLS // 8

    def _await_idle(self) -> None:
        wait_until(lambda: self.of_pages(self._pages()).running == 0, _SECONDS, what="an idle llama.cpp")

    @contextmanager
    def _slowed(self) -> Iterator[None]:
        """Stopped most of the time, so that little happens between two looks: it can't answer while it stands still."""
        over = threading.Event()

        def pace() -> None:
            while not over.wait(_GOING_SECONDS):
                self._process.send_signal(signal.SIGSTOP)
                over.wait(_STOPPED_SECONDS)
                self._process.send_signal(signal.SIGCONT)

        pacer = threading.Thread(target=pace)
        pacer.start()
        try:
            yield
        finally:
            over.set()
            pacer.join()


def _held(figures: Figures) -> int:
    return (figures.used_tokens or 0) + (figures.cached_tokens or 0)


def _step(line: str) -> re.Match[str] | None:
    found = _STEPS.search(line)
    return found if found and found["what"] == "handle_last_" else None


def _counters(page: str) -> dict[str, int]:
    pairs = (line.rsplit(" ", 1) for line in page.splitlines() if line.startswith("llamacpp:"))
    return {name.removeprefix("llamacpp:"): int(float(value)) for name, value in pairs}
