"""One life of the child process that calls NVML, seen from the agent: its messages, its silence, its end."""

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

import msgspec

from collectors.nvml import faults
from collectors.nvml.step import Step
from collectors.readings import Fault, NodeReading, XidEvent

LINE_LIMIT_BYTES = 2**20
START_PATIENCE = 4  # the first opening of many GPUs without persistence mode takes this many deadlines
END_SECONDS = 0.4  # how long a signal may take to end a process that is not stuck in the driver


class _Line(msgspec.Struct, frozen=True):
    reading: NodeReading | None = None
    xid: XidEvent | None = None
    fault: Fault | None = None


class Child:
    """A running child. ``call`` and ``index`` name what it hung in: an NVML call, on which device."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        transport: asyncio.ReadTransport,
        step: Step,
        *,
        deadline_seconds: float,
    ) -> None:
        self._process = process
        self._reader = reader
        self._transport = transport
        self._step = step
        self._deadline_seconds = deadline_seconds
        self._decoder = msgspec.json.Decoder(_Line)
        self._started_at = asyncio.get_running_loop().time()
        self._due = self._started_at + deadline_seconds
        self.call = "init"
        self.index: int | None = None

    @classmethod
    async def start(
        cls, arguments: Sequence[str], *, environment: Mapping[str, str] | None, deadline_seconds: float
    ) -> "Child":
        """``deadline_seconds`` is what one call may take.

        Raises:
            OSError: the host has no room for a process.
        """
        step = Step.make()
        try:
            process = _spawn([f"--step={step.descriptor}", *arguments], environment, step.descriptor)
        except OSError:
            step.close()
            raise
        reader = asyncio.StreamReader(limit=LINE_LIMIT_BYTES)
        try:
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), process.stdout
            )
        except asyncio.CancelledError:
            process.kill()
            step.close()
            raise
        return cls(process, reader, transport, step, deadline_seconds=deadline_seconds)

    @property
    def alive(self) -> bool:
        """Also True for a killed process that the driver still holds in a call."""
        return self._process.poll() is None

    async def next(self) -> NodeReading | XidEvent | Fault:
        """The next pass, an error that the driver reported meanwhile, or why there will be no further pass.

        Raises:
            TimeoutError: the call that ``call`` and ``index`` name has not returned within its deadline.
        """
        try:
            while (line := await self._line()) is None:
                pass
            return self._message(line) if line.endswith(b"\n") else _fault(faults.CHILD_DIED, await self._end())
        except (ValueError, TypeError, RecursionError) as error:
            return _fault(faults.PROTOCOL, str(error))

    async def _line(self) -> bytes | None:
        """None: it is silent, but has not been in its step for too long.

        Raises:
            TimeoutError: a call has not returned within its deadline.
            ValueError: a line is too long, or the step makes no sense.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._due):
                return await self._complete_line()
        self._due = self._deadline()
        if self._due <= asyncio.get_running_loop().time():
            raise TimeoutError
        return None

    async def _complete_line(self) -> bytes:
        try:
            return await self._reader.readline()
        except ValueError:
            raise ValueError(f"over {LINE_LIMIT_BYTES} bytes") from None

    def _deadline(self) -> float:
        """When the step that it is in must be over; before its first, it starts."""
        words, since = self._step.read()
        self.call, argument = (words or ["init"])[0], words[1] if len(words) == 2 else None
        self.index = None
        patience = self._deadline_seconds * (START_PATIENCE if self.call == "init" else 1)
        if self.call == "rest" and argument is not None:
            patience += float(argument)
        elif argument is not None:
            self.index = int(argument.partition(":")[0])
        return (since if words else self._started_at) + patience

    async def stop(self) -> None:
        """End the process; one that the driver holds is left behind rather than waited for."""
        self._transport.close()
        self._step.close()
        self._process.kill()
        await self._gone(END_SECONDS)

    def _message(self, line: bytes) -> NodeReading | XidEvent | Fault:
        message = self._decoder.decode(line)
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


def _spawn(arguments: Sequence[str], environment: Mapping[str, str] | None, descriptor: int) -> subprocess.Popen[bytes]:
    """Start it with the signals blocked that go to a whole group: they are the parent's business."""
    command = [sys.executable, "-Im", "collectors.nvml.child", *arguments]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        return subprocess.Popen(  # noqa: S603 - this program, with its own arguments
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment, pass_fds=(descriptor,)
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _fault(code: int, detail: str) -> Fault:
    return Fault(**faults.explain(code, detail))
