"""Listening sockets in the kernel's tables, and who holds them."""

import os
import socket
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.discovery.sockets import Listening, SocketTables, held_sockets, parse_table
from tests.collectors.discovery.table_of import ProcFolder

LINE = "   0: {address} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000     0        0 {inode} 1 0 100"


def line(address: str, *, state: str = "0A", inode: str = "77") -> bytes:
    return LINE.format(address=address, state=state, inode=inode).encode()


@pytest.mark.parametrize(
    ("address", "expected", "url_host"),
    [
        ("0100007F:1F40", "127.0.0.1", "127.0.0.1"),
        ("00000000:1F40", "0.0.0.0", "127.0.0.1"),
        ("0501A8C0:1F40", "192.168.1.5", "192.168.1.5"),
        ("00000000000000000000000000000000:1F40", "::", "[::1]"),
        ("00000000000000000000000001000000:1F40", "::1", "[::1]"),
        ("B80D0120000000000000000001000000:1F40", "2001:db8::1", "[2001:db8::1]"),
        ("0000000000000000FFFF00000100007F:1F40", "127.0.0.1", "127.0.0.1"),
        ("0000000000000000FFFF000000000000:1F40", "0.0.0.0", "127.0.0.1"),
        ("000080FE000000000000000001000000:1F40", "fe80::1", None),
    ],
)
def test_addresses(address: str, expected: str, url_host: str | None) -> None:
    """As the kernel prints them on a little-endian machine, and how each is reached from its own network."""
    [found] = parse_table([line(address)])

    assert found == Listening(inode="77", address=expected, port=8000)
    assert found.url_host == url_host


def test_only_sockets_that_listen() -> None:
    """The table is read up to the first that does not: the kernel lists those that listen first."""
    rows = [line("0100007F:0001"), line("0100007F:0002"), line("0100007F:0003", state="01"), line("0100007F:0004")]

    assert [one.port for one in parse_table(rows)] == [1, 2]


@pytest.mark.parametrize(
    "row", [b"", b"x", b"a b c 0A e f g h i", line("zz:1F40"), line("0100007F"), line("01:1"), line("0100007F:x"),
            line("0100007F:1F40", inode="x"), line("0100007F:" + "9" * 6000)]
)  # fmt: skip
def test_a_damaged_row_is_left_out(row: bytes) -> None:
    """The rows around it count."""
    good = line("0100007F:0001")

    assert [one.port for one in parse_table([good, row, good])][:1] == [1]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=80) | st.text("0123456789ABCDEF: ", max_size=120).map(str.encode), max_size=5))
def test_any_table(rows: list[bytes]) -> None:
    """Nonsense has no sockets, or odd ones, and breaks nothing."""
    for found in parse_table(rows):
        assert found.url_host is None or found.family in (4, 6)


@pytest.mark.parametrize(
    ("one", "other", "rivals"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("0.0.0.0", "127.0.0.1", True),
        ("127.0.0.1", "0.0.0.0", True),
        ("192.168.1.5", "127.0.0.1", False),
        ("::", "127.0.0.1", False),
        ("::", "::1", True),
    ],
)
def test_sockets_that_could_answer_in_place_of_another(one: str, other: str, rivals: bool) -> None:
    """The same port and family, and addresses that overlap."""
    first, second = (Listening(inode=str(n), address=address, port=8000) for n, address in enumerate((one, other)))

    assert first.rivals(second) is rivals
    assert not first.rivals(Listening(inode="9", address=other, port=8001))


def test_our_own_socket_in_the_real_table() -> None:
    """Found by address and port, and held by this process."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        [found] = [one for one in SocketTables().of(os.getpid()) if one.port == port]

        assert found.address == "127.0.0.1"
        assert found.inode in held_sockets(os.getpid())
    assert found.inode not in held_sockets(os.getpid())


def test_a_namespace_is_read_once(tmp_path: Path) -> None:
    """Processes of one namespace share its table; another namespace has its own."""
    proc = ProcFolder(tmp_path / "proc")
    for pid, network in ((7, "host"), (8, "host"), (9, "other")):
        proc.add(pid, network=network)
        proc.listening(pid, ("0100007F", pid, pid))
    tables = SocketTables(proc=proc.folder)

    assert [[one.port for one in tables.of(pid)] for pid in (7, 8, 9)] == [[7], [7], [9]]


def test_a_kernel_without_ipv6(tmp_path: Path) -> None:
    """There is no second table, and that is no failure."""
    proc = ProcFolder(tmp_path / "proc")
    proc.add(7)
    proc.listening(7, ("0100007F", 1, 1))
    (proc.folder / "7" / "net" / "tcp6").unlink()

    assert [one.port for one in SocketTables(proc=proc.folder).of(7)] == [1]
