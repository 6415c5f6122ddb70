"""Where a found server answers: only ever at a socket that one of its own processes listens on."""

from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from collectors.discovery import sockets
from collectors.discovery.command import ServerCommand
from collectors.discovery.sockets import Listening, SocketTables
from collectors.discovery.view import ProcessView

_HIDDEN = (
    "on which socket it listens is hidden from us, so its metrics are not read: run vramscope as root or as the"
    " server's user, or with CAP_SYS_PTRACE"
)
_ELSEWHERE = (
    "it is in a network namespace of its own: run vramscope with CAP_SYS_ADMIN to read its metrics there, or configure"
    " a URL that reaches it"
)


class Place(Struct, frozen=True, kw_only=True):
    """``network_pid`` is set where the addresses are those of another network namespace than ours."""

    listening: bool = False
    host: str | None = None
    port: int | None = None
    url: str | None = None
    network_pid: int | None = None
    notes: tuple[str, ...] = ()


def find_place(
    command: ServerCommand,
    pids: Sequence[int],
    *,
    tables: SocketTables,
    proc: Path,
    may_enter: Callable[[int], bool],
) -> Place:
    """Where the server with these processes, its first one in front, listens now."""
    expected = Place(host=command.host, port=command.port if command.has_endpoint else None)
    if not command.has_endpoint:
        return expected
    root = pids[0]
    try:
        network_pid = root if ProcessView(root, proc=proc).has_own("net") else None
        everyone = tables.of(root)
        wanted = [one for one in everyone if command.port in (None, one.port)]
        held = _held(pids if command.port else pids[:1], wanted, proc=proc) if wanted else set()
    except PermissionError:
        return _noted(expected, _HIDDEN)
    except OSError:  # it ended just now
        return expected
    own = [one for one in wanted if one.inode in held]
    strangers = [one for one in everyone if one.inode not in held]
    if len({one.port for one in own}) > 1:
        ports = ", ".join(str(port) for port in sorted({one.port for one in own}))
        return _noted(expected, f"it listens on the ports {ports}; which of them has its metrics is not known")
    if not own:
        taken = f"another process listens on port {command.port}, its own: nothing is read from there"
        return _noted(expected, taken) if wanted and command.port else expected
    return _reached(own, strangers, network_pid=network_pid, tls=command.tls, may_enter=may_enter)


def _held(pids: Sequence[int], wanted: Sequence[Listening], *, proc: Path) -> set[str]:
    """Which of the wanted sockets these processes hold.

    Raises:
        PermissionError: one of them may, but we may not look.
    """
    inodes = {one.inode for one in wanted}
    held: set[str] = set()
    hidden: PermissionError | None = None
    for pid in pids:
        try:
            held |= inodes & sockets.held_sockets(pid, proc=proc)
        except PermissionError as exc:
            hidden = exc
        except OSError:
            continue
        if held == inodes:
            break
    if hidden is not None and not held:
        raise hidden
    return held


def _reached(
    own: Sequence[Listening],
    strangers: Sequence[Listening],
    *,
    network_pid: int | None,
    tls: bool,
    may_enter: Callable[[int], bool],
) -> Place:
    """The first of its sockets that a connection is sure to reach."""
    by_family = sorted(own, key=lambda one: one.family)
    first = by_family[0]
    place = Place(listening=True, host=first.address, port=first.port, network_pid=network_pid)
    if network_pid is not None and not may_enter(network_pid):
        return _noted(place, _ELSEWHERE)
    for one in by_family:
        if one.url_host is None or any(one.rivals(stranger) for stranger in strangers):
            continue
        url = f"{'https' if tls else 'http'}://{one.url_host}:{one.port}"
        return Place(listening=True, host=one.address, port=one.port, url=url, network_pid=network_pid)
    if first.url_host is None:
        return _noted(place, f"it listens on the link-local address {first.address} alone: configure its URL")
    return _noted(
        place,
        f"another process listens on port {first.port} too, and the kernel decides who answers: nothing is read from"
        " there",
    )


def _noted(place: Place, note: str) -> Place:
    return Place(
        listening=place.listening, host=place.host, port=place.port, network_pid=place.network_pid, notes=(note,)
    )
