"""Connections into the network namespace of another process: sockets are made there, everything else stays here.

A socket belongs to the namespace of the thread that makes it, so a thread of its own enters the namespace, makes the
socket and ends. That needs CAP_SYS_ADMIN. Source: Linux, setns(2), network_namespaces(7).
"""

import asyncio
import contextlib
import ctypes
import errno
import ipaddress
import os
import socket
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from collectors.discovery.table import started_ticks
from collectors.http_streams import Connect, connected, new_socket

CLONE_NEWNET = 0x40000000
T = TypeVar("T")


def can_enter(pid: int, *, proc: Path = Path("/proc")) -> bool:
    """Whether we may enter the network namespace of a process; tried, since only the kernel knows."""
    try:
        return in_network_of(pid, lambda: True, proc=proc)
    except OSError:
        return False


def in_network_of(pid: int, act: Callable[[], T], *, proc: Path = Path("/proc"), started: int | None = None) -> T:
    """What ``act`` gives in a thread that lives in the network namespace of a process; it must not take long.

    ``started``: the process must be the one that started at those ticks after boot.

    Raises:
        PermissionError: we may not enter it.
        OSError: the process has ended, or what ``act`` raises.
    """
    namespace = os.open(proc / str(pid) / "ns" / "net", os.O_RDONLY | os.O_CLOEXEC)
    results: list[T] = []
    errors: list[OSError] = []

    def work() -> None:
        try:
            _enter(namespace)
            results.append(act())
        except OSError as exc:
            errors.append(exc)

    try:
        if started is not None and started_ticks(pid, proc=proc) != started:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH), str(pid))
        thread = threading.Thread(target=work, name="vramscope-netns", daemon=True)
        thread.start()
        thread.join()
    finally:
        os.close(namespace)
    for error in errors:
        raise error
    return results[0]


def connect_in_network_of(pid: int, *, proc: Path = Path("/proc")) -> Connect:
    """Connects to addresses as a process sees them, names are not looked up; once it has ended, every try fails."""
    started = -1
    with contextlib.suppress(OSError):
        started = started_ticks(pid, proc=proc)

    async def connect(host: str, port: int) -> socket.socket:
        family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
        make = partial(in_network_of, pid, partial(new_socket, family), proc=proc, started=started)
        return await connected(await asyncio.get_running_loop().run_in_executor(None, make), (host, port))

    return connect


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
