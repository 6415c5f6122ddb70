"""Which TCP sockets a group of processes listens on, in the network namespace of the first of them.

Format: Linux, Documentation/networking/proc_net_tcp.rst. The kernel lists listening sockets before all others.
"""

import contextlib
import ipaddress
import os
import socket
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

MAX_TABLE_BYTES = 4 * 1024 * 1024
_LISTEN = b"0A"


class Listening(Struct, frozen=True, kw_only=True):
    """One listening socket. ``address`` is 0.0.0.0 or :: for all addresses of its family."""

    inode: str
    address: str
    port: int

    @property
    def family(self) -> int:
        return 6 if ":" in self.address else 4

    @property
    def is_wildcard(self) -> bool:
        return self.address in ("0.0.0.0", "::")  # noqa: S104 - read, not bound

    @property
    def url_host(self) -> str | None:
        """The host of a URL that reaches this socket from its own network; None where only an interface would."""
        if self.is_wildcard:
            return "[::1]" if self.family == 6 else "127.0.0.1"
        if self.family == 4:
            return self.address
        return None if ipaddress.ip_address(self.address).is_link_local else f"[{self.address}]"

    def rivals(self, other: "Listening") -> bool:
        """Whether a connection meant for this socket may end at the other one."""
        same_place = (self.port, self.family) == (other.port, other.family)
        return same_place and (self.address == other.address or self.is_wildcard or other.is_wildcard)


class SocketTables:
    """The listening TCP sockets of network namespaces, each read once: the kernel takes milliseconds for a table."""

    def __init__(self, *, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._read: dict[tuple[int, int], list[Listening]] = {}

    def of(self, pid: int) -> Sequence[Listening]:
        """Those in the namespace of a process. Raises: OSError."""
        namespace = (self._proc / str(pid) / "ns" / "net").stat()
        key = (namespace.st_dev, namespace.st_ino)
        if key not in self._read:
            self._read[key] = _listening(self._proc / str(pid) / "net")
        return self._read[key]


def parse_table(lines: Iterable[bytes]) -> Iterator[Listening]:
    """The listening sockets of a table without its head, up to the first socket that does not listen."""
    for line in lines:
        fields = line.split()
        if len(fields) < 10:
            continue
        if fields[3] != _LISTEN:
            return
        with contextlib.suppress(ValueError):
            address, _, port = fields[1].partition(b":")
            yield Listening(
                inode=str(int(fields[9])), address=_address(bytes.fromhex(address.decode("ascii"))), port=int(port, 16)
            )


def held_sockets(pid: int, *, proc: Path = Path("/proc")) -> set[str]:
    """Inodes of the sockets a process holds.

    Raises:
        PermissionError: we may not look.
        OSError: it has ended.
    """
    folder = f"{proc}/{pid}/fd"
    found = set()
    for name in os.listdir(folder):  # noqa: PTH208 - thousands of them: no Path for each
        with contextlib.suppress(OSError):
            target = os.readlink(f"{folder}/{name}")  # noqa: PTH115
            if target.startswith("socket:["):
                found.add(target[8:-1])
    return found


def _listening(folder: Path) -> list[Listening]:
    found = list(parse_table(_lines(folder / "tcp")))
    with contextlib.suppress(FileNotFoundError):  # a kernel without IPv6
        found += parse_table(_lines(folder / "tcp6"))
    return found


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.readline()
        left = MAX_TABLE_BYTES
        while left > 0 and (line := file.readline(left)):
            left -= len(line)
            yield line


def _address(raw: bytes) -> str:
    """An address as the kernel prints it: words of 32 bits in the order of this machine."""
    if len(raw) not in (4, 16):
        raise ValueError("expected 4 or 16 bytes")
    if sys.byteorder == "little":
        raw = b"".join(raw[start : start + 4][::-1] for start in range(0, len(raw), 4))
    if len(raw) == 16 and (mapped := ipaddress.IPv6Address(raw).ipv4_mapped):
        return str(mapped)
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)
