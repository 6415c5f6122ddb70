"""What the process that calls NVML writes: whatever stands on its pipe, it is readings, a fault, or its end."""

import asyncio
import subprocess
from typing import cast

import msgspec
from hypothesis import strategies as st

from collectors.nvml.process import Child
from collectors.nvml.step import Step
from collectors.readings import (
    DeviceReading,
    Fault,
    MemoryReading,
    NodeReading,
    ProcessesReading,
    ProcessMemory,
)
from tests.fuzz.mutations import damaged_bytes, damaged_json
from tests.fuzz.trying import tried

DEVICE = DeviceReading(
    index=0,
    uuid="GPU-a",
    memory=MemoryReading(at=1.0, total_bytes=100, free_bytes=40, reserved_bytes=10),
    processes=ProcessesReading(at=1.0, processes=(ProcessMemory(pid=7, used_bytes=50),)),
    processes_fault=Fault(reason="timeout", message="slow"),
)
READING = msgspec.json.encode({"reading": NodeReading(at=1.0, driver_version="590", devices=(DEVICE,))}) + b"\n"
FAULT = b'{"fault":{"reason":"gpu_lost","message":"gone"}}\n'
WALK = READING + b'{"xid":{"uuid":"GPU-a","xid":48}}\n' + READING
DEEP = b"[" * 100_000 + b"\n"


class Ended:
    """A process that is over, as ``subprocess`` shows it."""

    returncode = -9

    def poll(self) -> int:
        return self.returncode


async def heard(content: bytes) -> list[object]:
    """Everything a child with this output is taken to say."""
    reader = asyncio.StreamReader(limit=2**20)
    reader.feed_data(content)
    reader.feed_eof()
    process, transport = cast("subprocess.Popen[bytes]", Ended()), cast(asyncio.ReadTransport, None)
    step = Step.make()
    child = Child(process, reader, transport, step, deadline_seconds=10.0)
    messages: list[object] = []
    while not messages or not isinstance(messages[-1], Fault):
        messages.append(await child.next())
    step.close()
    return messages


@tried(
    damaged_bytes([WALK, FAULT, WALK + FAULT])
    | damaged_json([msgspec.json.decode(READING)]).map(lambda message: msgspec.json.encode(message) + b"\n")
    | st.sampled_from([DEEP, b"x" * 2**21])
    | st.binary(max_size=100),
    briefly=80,
)
def test_whatever_the_child_writes_ends_in_a_fault(content: bytes) -> None:
    """And until then gives readings only; nothing it writes is raised."""
    *readings, last = asyncio.run(heard(content))

    assert isinstance(last, Fault)
    assert "\n" not in last.message
    assert all(isinstance(reading, NodeReading | msgspec.Struct) for reading in readings)
