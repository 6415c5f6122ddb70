"""A real vLLM that two clients at a time overfill: one of both is preempted, so its log can be counted."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

from tests.engines.agreement import Figures, Told, log_of
from tests.engines.scrape import Scrape
from tests.engines.tiny_models import make_llama
from tests.engines.vllm_server import Load, VllmServer, wait_until

BLOCKS, BLOCK_SIZE = 66, 32  # a whole request has 49 blocks
_SECONDS = 300.0
_ITERATION = re.compile(
    r"Iteration\(\d+\): (\d+) context requests, \d+ context tokens, (\d+) generation requests, (\d+) generation tokens,"
    r".* KV cache usage: ([\d.]+)%"
)
_SIZE = re.compile(r"KV cache size: ([\d,]+) tokens")


class WatchedVllm:
    """Idle, growing, preempted (and computed again, so that nobody waits), and after it all."""

    engine: ClassVar[str] = "vllm"
    points: ClassVar[tuple[str, ...]] = ("idle", "growing", "preempted", "after")
    moving: ClassVar[tuple[str, ...]] = ()
    bytes_per_token: ClassVar[int] = 2 * 2 * 2 * 32 * 2  # layers x (K and V) x heads x width x 2 bytes
    pool_bytes: ClassVar[int] = BLOCKS * BLOCK_SIZE * bytes_per_token

    def __init__(self, command: Path, folder: Path) -> None:
        self.model = make_llama(folder / "tiny-vllm").path
        self.log = folder / "vllm.log"
        self._server = VllmServer(
            command=command,
            model=self.model,
            name="tiny-vllm",
            log=self.log,
            arguments=(
                *("--num-gpu-blocks-override", str(BLOCKS), "--block-size", str(BLOCK_SIZE)),
                *("--enable-logging-iteration-details", "--no-enable-prefix-caching"),
            ),
        )
        self.url = self._server.url
        self._load = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._server.start()
            self._server.complete("warm up", max_tokens=8)
        except BaseException:
            self._server.kill()
            raise
        return self

    def __exit__(self, *raised: Any) -> None:
        self._server.kill()
        self._load.__exit__(*raised)

    @contextmanager
    def at(self, point: str) -> Iterator[None]:
        if point == "growing":
            self._load.enter_context(Load(self._server, clients=2, until_left=True))
        if point == "after":
            self._load.close()
            wait_until(lambda: _is_idle(self._server.scrape()), _SECONDS, what="an idle vLLM", every=1.0)
        with self._server.held(_WANTED[point], seconds=_SECONDS):
            yield

    def tell(self) -> Told:
        return Told(pages={"/metrics": self._server.get("/metrics")}, log=log_of(self.log))

    @staticmethod
    def of_pages(pages: Mapping[str, str]) -> Figures:
        """One block is the engine's own; the ratio is of the others."""
        page = Scrape(pages["/metrics"])
        config = page.labels("vllm:cache_config_info")
        return Figures(
            capacity_tokens=int(config["kv_cache_size_tokens"]),
            used_tokens=_tokens(page.value("vllm:kv_cache_usage_perc"), int(config["num_gpu_blocks"])),
            running=int(page.value("vllm:num_requests_running")),
            waiting=int(page.value("vllm:num_requests_waiting")),
            preemptions=int(page.value("vllm:num_preemptions_total")),
            prompt_tokens=int(page.value("vllm:prompt_tokens_total")),
            generation_tokens=int(page.value("vllm:generation_tokens_total")),
            first_tokens=int(page.value("vllm:time_to_first_token_seconds_count")),
        )

    @staticmethod
    def of_log(log: str) -> Figures:
        """A request that decodes computes one token; one that computes more was preempted and goes on.

        Where nobody waits, so many were preempted. (The line of statistics forgets its preemptions before it is
        written.) The last iteration has the use of the pool, to a tenth of a percent: less than half a block.
        """
        steps = _ITERATION.findall(log)
        (size,) = _SIZE.findall(log)
        again = sum(int(tokens) > int(requests) for _, requests, tokens, _ in steps)
        return Figures(
            capacity_tokens=int(size.replace(",", "")),
            used_tokens=_tokens(float(steps[-1][3]) / 100, BLOCKS),
            preemptions=again,
        )

    @staticmethod
    def excerpt(log: str) -> str:
        """Of a part of the log: the size, the requests that went on, and the last iteration."""
        lines = log.splitlines()
        steps = [line for line in lines if _ITERATION.search(line)]
        kept = [line for line in steps[:-1] if int((found := _ITERATION.search(line) or [""] * 5)[3]) > int(found[2])]
        return "".join(f"{line}\n" for line in [*filter(_SIZE.search, lines), *kept, *steps[-1:]])


def _tokens(ratio: float, blocks: int) -> int:
    return round(ratio * (blocks - 1)) * BLOCK_SIZE


def _is_idle(page: Scrape) -> bool:
    return page.value("vllm:num_requests_running") == page.value("vllm:num_requests_waiting") == 0


def _grows(page: Scrape) -> bool:
    return 0.1 <= page.value("vllm:kv_cache_usage_perc") <= 0.9 and _nobody_waits(page)


def _was_preempted(page: Scrape) -> bool:
    return page.value("vllm:num_preemptions_total") > 0 and _nobody_waits(page)


def _nobody_waits(page: Scrape) -> bool:
    return (page.value("vllm:num_requests_running"), page.value("vllm:num_requests_waiting")) == (2, 0)


_WANTED: dict[str, Callable[[Scrape], bool]] = {
    "idle": _is_idle,
    "growing": _grows,
    "preempted": _was_preempted,
    "after": _is_idle,
}
