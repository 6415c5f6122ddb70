"""``/proc`` as somebody else's processes can make it look: no command line or table leads to an error."""

import socket
import tempfile
from pathlib import Path

from hypothesis import strategies as st

from collectors.discovery.host import HostDiscovery
from collectors.discovery.sockets import parse_table
from collectors.procfs import HostProcesses, redact
from collectors.registry import ENGINES
from tests.collectors.discovery.table_of import ProcFolder
from tests.fuzz.mutations import damaged_bytes
from tests.fuzz.trying import tried

COMMANDS = (
    b"/usr/bin/python3\0/usr/local/bin/vllm\0serve\0meta-llama/Llama\0--port\x008000\0-tp=2\0",
    b"python\0-m\0vllm.entrypoints.openai.api_server\0--model\0/models/m\0--config\0/etc/vllm.yaml\0",
    b"VLLM::APIServer_DP1" + b"\0" * 40,
    b'vllm\0serve\0--api-key\0sk-secret12345\0--compilation-config\0{"level": 3, "api_key": "x"}\0',
)
STAT = (
    b"4242 (python (x) y) S 1 0 0 0 0 0 0 0" + b" 0" * 6 + b" 20 0 1 0 1000 0 0 0 4096" + b" 0" * 18 + b" 0 0 0 8192 0"
)
TABLE = (
    b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    b"   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 99 1 0 100 0 0 10 0\n"
    b"   1: 0000000000000000FFFF00000100007F:1F41 0:0000 0A 0:0 00:0 0     0        0 98 1 0 100 0 0 10 0\n"
    b"   2: 0100007F:1F42 0100007F:CAFE 01 00000000:00000000 00:00000000 00000000     0        0 97 1 0 100 0 0 10 0\n"
)
ENGINE_COMMANDS = {name: engine.command for name, engine in ENGINES.items()}


@tried(
    damaged_bytes(COMMANDS) | st.sampled_from(COMMANDS),
    damaged_bytes([STAT]) | st.just(STAT),
    damaged_bytes([TABLE]) | st.just(TABLE),
    briefly=50,
)
def test_no_process_stops_discovery(command: bytes, stat: bytes, table: bytes) -> None:
    """A scan finds servers or none, and nothing of a command line that is a key."""
    with tempfile.TemporaryDirectory() as folder:
        node = ProcFolder(Path(folder) / "proc")
        node.add(4242, command)
        (node.folder / "4242" / "stat").write_bytes(stat)
        (node.folder / "4242" / "net" / "tcp").write_bytes(table)
        node.holds(4242, 99)
        discovery = HostDiscovery(ENGINE_COMMANDS, proc=node.folder, may_enter=lambda _: False)
        found = [*discovery.scan(), *discovery.scan()]

    assert "sk-secret12345" not in repr(found)


@tried(damaged_bytes([TABLE]) | st.binary(max_size=200), briefly=80)
def test_any_socket_table_is_sockets_or_none(table: bytes) -> None:
    """Addresses are addresses, ports are ports."""
    for one in parse_table(table.splitlines(keepends=True)):
        assert socket.inet_pton(socket.AF_INET6 if one.family == 6 else socket.AF_INET, one.address)
        assert one.inode.isdecimal()


@tried(damaged_bytes([TABLE]) | st.just(b""), briefly=30, at_length=1000)
def test_no_socket_table_stops_the_search_for_a_listener(table: bytes) -> None:
    """The port that nobody of this host listens on."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "net").mkdir()
        (Path(folder) / "net" / "tcp").write_bytes(table)

        assert HostProcesses(proc=Path(folder)).tree(1) is None


@tried(
    st.lists(st.text(max_size=30), max_size=8)
    | damaged_bytes(COMMANDS).map(lambda line: line.decode("utf-8", "replace").split("\0")),
    briefly=80,
)
def test_any_command_line_has_a_bounded_title(argv: list[str]) -> None:
    """One that can be shown."""
    assert len(redact(argv)) <= 4096
