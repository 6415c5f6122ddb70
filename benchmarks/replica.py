"""A vLLM server as the agent meets it, small: ``python -m benchmarks.replica CHILDREN`` replays the recorded page.

Prints its port and the pids of itself and its idle children as JSON, and ends with its standard input.
"""

import asyncio
import json
import os
import subprocess
import sys

from benchmarks.pages import page

CHILD_SECONDS = "3600"  # idle children end by themselves, should this process be killed


def answers() -> dict[bytes, bytes]:
    return {
        b"/metrics": _answer(page(1).encode(), b"text/plain; version=0.0.4"),
        b"/version": _answer(b'{"version":"0.32.0"}', b"application/json"),
        b"/v1/models": _answer(
            b'{"data":[{"id":"tiny","root":"tiny","owned_by":"vllm","max_model_len":2048}]}', b"application/json"
        ),
    }


def _answer(body: bytes, content_type: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n" % (content_type, len(body))
    return head + body


class _Connection(asyncio.Protocol):
    def __init__(self, known: dict[bytes, bytes]) -> None:
        self._known = known

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(self._known[data.split(b" ", 2)[1]])


def main() -> None:
    idle = [
        subprocess.Popen(["VLLM::EngineCore", CHILD_SECONDS], executable="/bin/sleep", stdin=subprocess.DEVNULL)
        for _ in range(int(sys.argv[1]))
    ]
    asyncio.run(serve([os.getpid(), *(child.pid for child in idle)]))
    for child in idle:
        child.kill()
        child.wait()


async def serve(pids: list[int]) -> None:
    loop = asyncio.get_running_loop()
    known = answers()
    server = await loop.create_server(lambda: _Connection(known), "127.0.0.1", 0)
    print(json.dumps({"port": server.sockets[0].getsockname()[1], "pids": pids}), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    main()
