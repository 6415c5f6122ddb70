"""The driver of this host, where there is one."""

import asyncio
from contextlib import suppress

import pytest

from collectors.nvml.source import NvmlSource
from collectors.readings import Fault, NodeReading


@pytest.mark.gpu
def test_real_driver() -> None:
    """Every device gives its name and figures that hold together; the memory its processes hold is on the device."""
    reading = asyncio.run(_first())
    if isinstance(reading, Fault):
        pytest.skip(f"no NVIDIA GPU: {reading.message}")

    assert reading.driver_version
    assert reading.devices
    for device in reading.devices:
        assert device.uuid
        assert device.name
        assert device.memory is not None, device.memory_fault
        assert device.memory.reserved_bytes is not None, "this driver has no v2 call"
        assert 0 <= device.memory.free_bytes + device.memory.reserved_bytes <= device.memory.total_bytes
        assert device.processes is not None, device.processes_fault


async def _first() -> NodeReading | Fault:
    first: asyncio.Queue[NodeReading | Fault] = asyncio.Queue()
    source = NvmlSource(on_reading=first.put_nowait, on_fault=first.put_nowait)
    task = asyncio.create_task(source.run())
    try:
        return await first.get()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
