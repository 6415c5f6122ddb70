"""Servers that gave memory back and do not say so: known by what their processes still hold. Pure.

An engine may release its KV pool, its weights or both on request and tell nobody: SGLang's memory saver, vLLM's
release of the pool while the scheduler is paused, and a wake-up in part before vLLM 0.32. Its figures then still speak
of weights and pool that no device holds. What its processes hold is measured, and is less than these.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from agent.memory.units import size_text
from agent.named import named_parts
from agent.seating import Seat, ServerView
from collectors.readings import NodeReading


def awake_or_not(node: NodeReading, server: ServerView, seated: Sequence[Seat]) -> ServerView:
    """The server as it is; as sleeping, where on a device its processes hold less than its weights and pool.

    Only of one that may have released memory: of another the figures are wrong, which the breakdown shows as cut.
    """
    reading = server.reading
    if reading is None or server.state != "serving" or not reading.may_be_released:
        return server
    used = {
        (device.uuid, process.pid): process.used_bytes
        for device in node.devices
        if device.processes
        for process in device.processes.processes
    }
    for seat in seated:
        if seat.server == server.name and seat.pids:
            sizes = [used.get((seat.uuid, pid)) for pid in seat.pids]
            held = sum(size for size in sizes if size is not None)
            named = sum(part.bytes for part in named_parts(server, seat))
            if None not in sizes and held < named:
                return _asleep(server, held, named)
    return server


def _asleep(server: ServerView, held: int, named: int) -> ServerView:
    note = (
        f"it has released memory, which it does not say itself: its processes hold {size_text(held)} where weights and "
        f"pool need {size_text(named)}; which of these are gone is not told, so all of it is its runtime"
    )
    reading = replace(server.reading, pools=()) if server.reading else None
    return replace(server, state="sleeping", reading=reading, notes=(*server.notes, note))
