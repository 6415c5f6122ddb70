"""Recorded vLLM servers for the whole program: some in a thread of this process, some in processes of their own."""

import asyncio
import contextlib
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

from tests.collectors.replay import FIXTURES, Replay, Script, replaying, reply

RECORDED = (FIXTURES / "vllm" / "0.32.0" / "metrics_growing.txt").read_text(encoding="utf-8")
START = re.compile(r"^process_start_time_seconds .*$", re.M)
ROOT = Path(__file__).parent.parent


def answers(page: str = RECORDED) -> dict[str, bytes | Script]:
    """What a healthy server with this metrics page says."""
    models = '{"data":[{"id":"tiny-llama","owned_by":"vllm","max_model_len":2048}]}'
    return {
        "/metrics": reply(page),
        "/version": reply('{"version":"0.32.0"}', content_type="application/json"),
        "/v1/models": reply(models, content_type="application/json"),
    }


@contextlib.contextmanager
def served(servers: Mapping[str, Mapping[str, bytes | Script]]) -> Iterator[dict[str, Replay]]:
    """Servers by name, all in one thread; their answers may be changed while inside."""
    ready = threading.Event()
    replays: dict[str, Replay] = {}
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with contextlib.AsyncExitStack() as stack:
            for name, answer in servers.items():
                replays[name] = await stack.enter_async_context(replaying(answer))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(10)
        yield replays
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


class ServerProcess:
    """A server in a process of its own, which can be stopped, killed and started again on its port."""

    def __init__(self) -> None:
        self.port = 0
        self._age_seconds = 3600  # of the first run, so that one started anew has another start time, however soon

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self) -> None:
        """Start it, on the port that it had before, and wait until it listens."""
        command = [sys.executable, "-m", "tests.served", str(self.port), str(time.time() - self._age_seconds)]
        self._age_seconds = 0
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it at once, whatever state it is in."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


async def _serve(port: int, started_at: float) -> None:
    page = START.sub(f"process_start_time_seconds {started_at}", RECORDED)
    async with replaying(answers(page), port=port) as replay:
        print(replay.url.rpartition(":")[2], flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    asyncio.run(_serve(int(sys.argv[1]), float(sys.argv[2])))
