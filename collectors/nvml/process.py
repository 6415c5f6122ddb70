"""One life of the child process that calls NVML, seen from the agent: its messages, its silence, its end."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

import msgspec

from collectors.nvml import faults
from collectors.readings import Fault, NodeReading, XidEvent

LINE_LIMIT_BYTES = 2**20
START_PATIENCE = 4  # the first opening of many GPUs without persistence mode takes this many deadlines
END_SECONDS = 0.4  # how long a signal may take to end a process that is not stuck in the driver


class _Line(msgspec.Struct, frozen=True):
    reading: NodeReading | None = None
    xid: XidEvent | None = None
    fault: Fault | None = None


class Child:
    """A running child. ``call`` and ``index`` name what it is in: an NVML call, on which device; or its rest."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        transport: asyncio.ReadTransport,
        *,
        deadline_seconds: float,
    ) -> None:
        self._process = process
        self._reader = reader
        self._transport = transport
        self._deadline_seconds = deadline_seconds
        self._decoder = msgspec.json.Decoder(_Line)
        self.call = "init"
        self.index: int | None = None
        self._wait(deadline_seconds * START_PATIENCE)

    @classmethod
    async def start(
        cls, arguments: Sequence[str], *, environment: Mapping[str, str] | None, deadline_seconds: float
    ) -> "Child":
        """``deadline_seconds`` is what one call may take.

        Raises:
            OSError: the host has no room for a process.
        """
        process = _spawn(arguments, environment)
        reader = asyncio.StreamReader(limit=LINE_LIMIT_BYTES)
        try:
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), process.stdout
            )
        except asyncio.CancelledError:
            process.kill()
            raise
        return cls(process, reader, transport, deadline_seconds=deadline_seconds)

    @property
    def alive(self) -> bool:
        """Also True for a killed process that the driver still holds in a call."""
        return self._process.poll() is None

    async def next(self) -> NodeReading | XidEvent | Fault:
        """The next pass, an error that the driver reported meanwhile, or why there will be no further pass.

        Raises:
            TimeoutError: the call that ``call`` and ``index`` name has not returned within its deadline.
        """
        while True:
            try:
                async with asyncio.timeout_at(self._due):
                    line = await self._reader.readline()
            except ValueError:
                return _fault(faults.PROTOCOL, f"over {LINE_LIMIT_BYTES} bytes")
            if not line.endswith(b"\n"):
                return _fault(faults.CHILD_DIED, await self._end())
            try:
                if not line.startswith(b"@"):
                    return self._message(line)
                self._enter(*line[1:].decode("ascii").split())
            except (ValueError, TypeError, RecursionError) as error:
                return _fault(faults.PROTOCOL, str(error))

    async def stop(self) -> None:
        """End the process, with force if needed; one that the driver holds is left behind rather than waited for."""
        self._transport.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.alive:
                self._process.send_signal(number)
                await self._gone(END_SECONDS)

    def _enter(self, call: str, argument: str | None = None) -> None:
        self.call, self.index = call, None
        patience = self._deadline_seconds * (START_PATIENCE if call == "init" else 1)
        if call == "rest" and argument is not None:
            patience += float(argument)
        elif argument is not None:
            self.index = int(argument.partition(":")[0])
        self._wait(patience)

    def _wait(self, seconds: float) -> None:
        """From now. Errors that the driver reports from another thread do not prolong it."""
        self._due = asyncio.get_running_loop().time() + seconds

    def _message(self, line: bytes) -> NodeReading | XidEvent | Fault:
        message = self._decoder.decode(line)
        if message.reading is not None:
            self._wait(self._deadline_seconds)
        return (
            message.reading
            or message.xid
            or message.fault
            or _fault(faults.PROTOCOL, "neither reading, error nor fault")
        )

    async def _end(self) -> str:
        await self._gone(END_SECONDS)
        status = self._process.returncode
        if status is None:
            return "it closed its output"
        return f"exit code {status}" if status >= 0 else f"signal {-status}"

    async def _gone(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.01)):
            if self.alive:
                await asyncio.sleep(0.01)


def _spawn(arguments: Sequence[str], environment: Mapping[str, str] | None) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-Im", "collectors.nvml.child", *arguments]
    return subprocess.Popen(  # noqa: S603 - this program, with its own arguments
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment
    )


def _fault(code: int, detail: str) -> Fault:
    return Fault(**faults.explain(code, detail))
