"""Files of probes: which is believed, and that a hostile one can only take its own server's figures away."""

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.errors import Unreadable
from collectors.probe_files import MAX_FILES, Place, ProbeFiles, ProbePass
from collectors.probe_layout import FIELDS, HEADER, MAX_FIGURE, RECORD, parse
from collectors.readings import ServerProcess
from tests import probe_file
from tests.probe_file import Proc, file, record

GIB = 2**30
UUID = "0123456789abcdef" * 2
PID, TICKS, NOW = 41, 500, 9000.0
HELD = record(
    0,
    UUID,
    allocated=20 * GIB,
    active=21 * GIB,
    active_peak=24 * GIB,
    reserved=25 * GIB,
    reserved_peak=26 * GIB,
    ooms=2,
)


class Bench:
    """One process with a probe's file, and a reader of such files; the clock since boot stands at ``NOW``."""

    def __init__(self, folder: Path, **process: object) -> None:
        self.proc = Proc(folder)
        self.root = self.proc.process(PID, **process)  # type: ignore[arg-type] # as the tests give them
        self.reader = ProbeFiles(proc=self.proc.folder, clock=lambda: 100.0, boot_clock=lambda: NOW)
        self.folder = self.root / "dev" / "shm" / f"vramscope-{os.geteuid()}"
        self.folder.mkdir(parents=True)

    @property
    def path(self) -> Path:
        return self.folder / f"{self.proc.inode()}-{PID}"

    def write(self, *records: bytes, **header: object) -> None:
        known = {"pid": PID, "namespace": self.proc.inode(), "ticks": TICKS, "written": NOW - 0.5}
        self.path.write_bytes(file(*(records or (HELD,)), **known | header))  # type: ignore[arg-type] # likewise
        self.path.chmod(0o640)

    def places(self) -> tuple[Place, ...]:
        return self.reader.find([process()])

    def read(self) -> ProbePass:
        return self.reader.read(self.places())

    def reason(self) -> str:
        """Why the file is not used, with a sentence that names it."""
        found = self.read()
        fault = found.faults[PID]
        assert not found.readings
        assert f"{self.folder.name}/{self.path.name}" in fault.message
        assert fault.message.isprintable()
        return fault.reason


def process(pid: int = PID, title: str = "vllm serve") -> ServerProcess:
    return ServerProcess(pid=pid, started_at=1.0, title=title)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_file_is_read_with_its_age(bench: Bench) -> None:
    """What stands in it, by name; it was written half a second ago on the clock of readings."""
    bench.write()

    found = bench.read()

    (one,) = found.readings
    assert (one.pid, one.at, one.lasts_seconds, one.file) == (
        PID,
        99.5,
        5.0,
        str(bench.proc.folder / "41/root" / bench.path.relative_to(bench.root)),
    )
    assert (one.uuid_digits, one.number, one.torch_version, one.backend) == (UUID, 0, "2.9.0", "native")
    assert (one.active_bytes, one.reserved_bytes, one.active_peak_bytes, one.ooms) == (21 * GIB, 25 * GIB, 24 * GIB, 2)
    assert one.expandable_segments is False
    assert (one.requested_bytes, one.alloc_retries) == (None, None)
    assert (found.seen, found.faults) == (frozenset({PID}), {})


def test_without_a_probe_nothing_is_found(bench: Bench) -> None:
    """No file: no place to read each second, no reading, no fault."""
    assert bench.places() == ()
    assert bench.read() == ProbePass()


def test_a_file_that_went_away_is_no_fault(bench: Bench) -> None:
    """Its process ended between two looks."""
    bench.write()
    places = bench.places()
    bench.path.unlink()

    assert bench.reader.read(places) == ProbePass()


def test_a_waiting_probe_has_nothing_to_say(bench: Bench) -> None:
    """CUDA is not in use yet; its file is written once, however long ago, and is a success."""
    bench.write(state=probe_file.WAITING, written=NOW - 5000)
    bench.path.write_bytes(
        file(pid=PID, namespace=bench.proc.inode(), ticks=TICKS, written=1.0, state=probe_file.WAITING)
    )

    assert bench.read() == ProbePass(seen=frozenset({PID}))


@pytest.mark.parametrize("cut", [0, 7, 100, HEADER.size, HEADER.size + RECORD.size, HEADER.size + RECORD.size + 3])
def test_a_torn_file(bench: Bench, cut: int) -> None:
    """Cut off anywhere: not used, and said so."""
    bench.write()
    bench.path.write_bytes(bench.path.read_bytes()[:cut])

    assert bench.reason() in ("malformed", "torn")


def test_a_changed_byte(bench: Bench) -> None:
    """The checksum covers all of it."""
    bench.write()
    content = bytearray(bench.path.read_bytes())
    content[HEADER.size + 60] ^= 1
    bench.path.write_bytes(content)

    assert bench.reason() == "torn"


def test_the_old_file_of_a_dead_process(bench: Bench) -> None:
    """Nobody asks for it: only places of processes that live are read."""
    bench.write()
    dead = bench.folder / f"{bench.proc.inode()}-999"
    bench.path.rename(dead)

    assert bench.read() == ProbePass()


def test_a_reused_pid(bench: Bench) -> None:
    """Another start time: the file is of the process that had the pid before, which is no fault of this one."""
    bench.write(ticks=TICKS - 1)

    assert bench.read() == ProbePass()


def test_a_pid_that_is_used_again_after_it_was_looked_up(bench: Bench, tmp_path: Path) -> None:
    """What was looked up is of the old process; the file of the new one does not pass for it."""
    bench.write()
    places = bench.places()
    bench.write(ticks=TICKS + 70)

    assert bench.reader.read(places) == ProbePass()


def test_a_process_of_a_container(tmp_path: Path) -> None:
    """It is pid 1 there, in another namespace, with another root and another user: 0 inside is ours outside."""
    uid = os.geteuid()
    bench = Bench(tmp_path, namespace="pod", inside=1, root="container", uid_map=f"0 {uid} 65536")
    folder = bench.root / "dev/shm/vramscope-0"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{bench.proc.inode('pod')}-1"
    path.write_bytes(file(HELD, pid=1, namespace=bench.proc.inode("pod"), ticks=TICKS, written=NOW))
    path.chmod(0o640)

    (one,) = bench.read().readings

    assert (one.pid, one.reserved_bytes) == (PID, 25 * GIB)


def test_the_same_pid_in_another_container(tmp_path: Path) -> None:
    """A file of pid 1 of another namespace is not this one's."""
    bench = Bench(tmp_path, namespace="pod", inside=PID)
    bench.write(namespace=bench.proc.inode("other"))
    bench.path.rename(bench.folder / f"{bench.proc.inode('pod')}-{PID}")

    assert bench.read() == ProbePass()


def test_the_directory_of_its_environment(tmp_path: Path) -> None:
    """Where the engine was told to write."""
    bench = Bench(tmp_path, environment="A=1\0VRAMSCOPE_PROBE_DIRECTORY=/run/probes\0")
    bench.write()
    (bench.root / "run").mkdir()
    bench.folder.rename(bench.root / "run/probes")

    assert [one.file.endswith(f"/41/root/run/probes/{bench.path.name}") for one in bench.read().readings] == [True]


@pytest.mark.parametrize(("namespace", "found"), [("host", 1), ("shell", 0)])
def test_the_directory_of_an_ancestors_environment(tmp_path: Path, namespace: str, found: int) -> None:
    """Of a worker whose title has overwritten its own, within its pid namespace."""
    bench = Bench(tmp_path, environment="itle of a worker\0", parent=31)
    bench.proc.process(31, environment="", parent=21)
    bench.proc.process(21, environment="VRAMSCOPE_PROBE_DIRECTORY=/run/probes\0", namespace=namespace)
    bench.write()
    (bench.root / "run").mkdir()
    bench.folder.rename(bench.root / "run/probes")

    assert len(bench.read().readings) == found


@pytest.mark.parametrize("named", ["relative", "/run/../etc", "/nul\udcff"])
def test_a_directory_that_leads_elsewhere_is_not_gone_to(tmp_path: Path, named: str) -> None:
    """Relative ones and those with .. are not looked for."""
    bench = Bench(tmp_path, environment="")
    environ = bench.proc.folder / str(PID) / "environ"
    environ.write_bytes(b"VRAMSCOPE_PROBE_DIRECTORY=" + os.fsencode(named) + b"\0")

    assert bench.read() == ProbePass()


def test_the_wrong_owner(tmp_path: Path) -> None:
    """A file of another user than the process's is not its word."""
    other = 12345
    bench = Bench(tmp_path, uid=other)
    bench.folder.rename(bench.root / f"dev/shm/vramscope-{other}")
    bench.folder = bench.root / f"dev/shm/vramscope-{other}"
    bench.write()
    if os.geteuid() == 0:
        os.chown(bench.path, other + 1, 0)

    assert bench.reason() == "owner"


@pytest.mark.parametrize("mode", [0o660, 0o642])
def test_a_file_that_others_can_write(bench: Bench, mode: int) -> None:
    """Then anybody could speak for the engine."""
    bench.write()
    bench.path.chmod(mode)

    assert bench.reason() == "writable"


def test_a_symbolic_link(bench: Bench, tmp_path: Path) -> None:
    """It is not followed, wherever it leads, and also not in the way there."""
    bench.write()
    real = tmp_path / "real"
    bench.path.rename(real)
    bench.path.symlink_to(real)

    assert bench.reason() == "link"


def test_a_directory_that_is_a_symbolic_link(bench: Bench, tmp_path: Path) -> None:
    """A link of the container would lead into the agent's own root."""
    bench.write()
    bench.folder.rename(tmp_path / "elsewhere")
    bench.folder.symlink_to(tmp_path / "elsewhere")

    assert bench.reason() == "link"


def test_a_pipe(bench: Bench) -> None:
    """Nobody waits for what it might say."""
    os.mkfifo(bench.path)

    assert bench.reason() == "not_regular"


def test_a_folder_in_its_place(bench: Bench) -> None:
    """Nor is a folder read."""
    bench.path.mkdir()

    assert bench.reason() == "not_regular"


def test_a_file_of_a_gigabyte(bench: Bench) -> None:
    """It is not even opened for reading."""
    bench.write()
    os.truncate(bench.path, 1 << 30)

    assert bench.reason() == "too_large"


def test_a_layout_of_the_future(bench: Bench) -> None:
    """The sentence says what to do."""
    bench.write(layout=2)

    found = bench.read()

    assert found.faults[PID].reason == "layout"
    assert "layout 2, and this version of vramscope reads layout 1: install" in found.faults[PID].message


def test_the_wall_clock_does_not_matter(bench: Bench) -> None:
    """The age is by the clock since boot; what the file system thinks of the date is not looked at."""
    bench.write()
    for date in (0, 4_000_000_000):
        os.utime(bench.path, (date, date))

        assert [one.at for one in bench.read().readings] == [99.5]


def test_a_file_from_the_future(bench: Bench) -> None:
    """Written after now on the host's own clock: somebody made it up."""
    bench.write(written=NOW + 60)

    assert bench.reason() == "clock"


@pytest.mark.parametrize(("interval", "age", "fresh"), [(1.0, 4.9, True), (1.0, 5.1, False), (10.0, 31.0, True)])
def test_an_old_file_is_not_passed_on(bench: Bench, interval: float, age: float, fresh: bool) -> None:
    """Three intervals and two seconds; an interval of a year does not make it last longer than three minutes."""
    bench.write(interval=interval, written=NOW - age)

    found = bench.read()

    assert [one.reserved_bytes for one in found.readings] == [25 * GIB] * fresh
    assert [fault.reason for fault in found.faults.values()] == ["stale"] * (not fresh)


def test_a_long_interval_is_cut() -> None:
    """The probe itself never waits for longer than a minute."""
    assert parse(file(pid=1, namespace=1, ticks=1, written=1.0, interval=4_000_000.0)).interval_seconds == 60.0


def test_a_directory_that_cannot_be_written(bench: Bench) -> None:
    """The agent only reads."""
    bench.write()
    bench.folder.chmod(0o550)

    assert len(bench.read().readings) == 1

    bench.folder.chmod(0o750)


BOUNDS = {
    "active above reserved": ({"active": 9, "reserved": 8}, {"reserved_bytes": 8}),
    "allocated above active": ({"allocated": 7, "active": 6, "reserved": 8}, {"active_bytes": 6, "reserved_bytes": 8}),
    "a peak below what is there": (
        {"active": 6, "active_peak": 5, "reserved": 8},
        {"active_bytes": 6, "reserved_bytes": 8},
    ),
    "graphs above reserved": ({"reserved": 8, "private_pools": 9}, {"reserved_bytes": 8}),
    "negative": ({"reserved": -1, "active": 3}, {"active_bytes": 3}),
    "absurd": ({"reserved": MAX_FIGURE + 1}, {}),
    "all of it": ({"allocated": 1, "active": 2, "reserved": 3, "active_peak": 3, "reserved_peak": 4}, None),
}


@pytest.mark.parametrize(("told", "kept"), BOUNDS.values(), ids=BOUNDS)
def test_figures_out_of_bounds_are_absent(bench: Bench, told: dict[str, int], kept: dict[str, int] | None) -> None:
    """Only the figure that can't be goes; the others stay."""
    bench.write(record(0, UUID, **told))

    (one,) = bench.read().readings

    found = {f"{name}_bytes": value for name, value in told.items()} if kept is None else kept
    values = {name: getattr(one, name) for name in one.__struct_fields__ if name.endswith("_bytes")}
    assert {name: value for name, value in values.items() if value is not None} == found


@given(st.binary(max_size=2000), st.booleans())
def test_garbage_never_breaks_the_parser(noise: bytes, wrapped: bool) -> None:
    """Whatever bytes: a fault, or figures within their bounds (also those of a NaN's pattern)."""
    records = noise[: len(noise) // RECORD.size * RECORD.size]
    content = noise
    if wrapped:
        chunks = [records[at : at + RECORD.size] for at in range(0, len(records), RECORD.size)]
        content = file(*chunks, pid=1, namespace=1, ticks=1, written=1.0, reason=noise[:160])
    try:
        found = parse(content)
    except Unreadable:
        return

    assert all(0 <= value <= MAX_FIGURE for one in found.records for value in one.figures.values())
    assert found.reason.isprintable()


def test_the_bits_of_a_nan_are_a_number_out_of_bounds() -> None:
    """0x7ff8... as an integer is absurd, so it is absent."""
    (nan,) = struct.unpack("<q", struct.pack("<d", float("nan")))
    content = file(record(0, UUID, reserved=nan), pid=1, namespace=1, ticks=1, written=1.0)

    assert parse(content).records[0].figures == {}


def test_a_thousand_files_are_bounded(tmp_path: Path) -> None:
    """Of a shared directory so many are looked at and no more; names that are none of a probe's never."""
    bench = Bench(tmp_path)
    shared = tmp_path / "shared"
    shared.mkdir()
    for number in range(1000):
        (shared / f"4026-{number}").touch()
    reader = ProbeFiles(directory=shared, proc=bench.proc.folder, clock=lambda: 0.0, boot_clock=lambda: NOW)

    assert len(reader.find([])) == MAX_FILES


def test_a_silent_probe_says_why(bench: Bench) -> None:
    """Its reason is shown, as far as it can be printed, on one line."""
    bench.write(state=probe_file.SILENT, reason="OSError: /x is no\ndirectory\x1b[31m \u202e!".encode())

    found = bench.read()

    assert (found.faults[PID].reason, found.readings) == ("silent", ())
    assert found.faults[PID].message == "the probe of pid 41 is silent: OSError: /x is no directory [31m  !"


def test_a_volume_for_processes_that_are_not_seen(tmp_path: Path) -> None:
    """Files of nobody keep their device; one that a dead process left is old and is left out."""
    bench = Bench(tmp_path)
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o750)
    for pid, written in ((7, NOW), (8, NOW - 100)):
        path = shared / f"4026-{pid}"
        path.write_bytes(file(HELD, pid=pid, namespace=4026, ticks=1, written=written))
        path.chmod(0o640)
    (shared / ".4026-7").write_bytes(b"half")
    reader = ProbeFiles(directory=shared, proc=bench.proc.folder, clock=lambda: 100.0, boot_clock=lambda: NOW)

    found = reader.read(reader.find([process()]))

    assert [(one.pid, one.uuid_digits) for one in found.readings] == [(None, UUID)]
    assert (found.faults, found.unmatched) == ({}, None)


def test_a_volume_for_a_process_that_is_seen(tmp_path: Path) -> None:
    """By namespace, pid in it and start time it is that process's."""
    bench = Bench(tmp_path, namespace="pod", inside=1, root="container")
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o750)
    path = shared / f"{bench.proc.inode('pod')}-1"
    path.write_bytes(file(HELD, pid=1, namespace=bench.proc.inode("pod"), ticks=TICKS, written=NOW))
    path.chmod(0o640)
    reader = ProbeFiles(directory=shared, proc=bench.proc.folder, clock=lambda: 100.0, boot_clock=lambda: NOW)

    assert [one.pid for one in reader.read(reader.find([process()])).readings] == [PID]


def test_our_layout_is_that_of_the_description() -> None:
    """A header of 248 bytes, a record of 168, as the probe's own description says."""
    assert (HEADER.size, RECORD.size, len(FIELDS)) == (248, 168, 16)
    assert tuple(probe_file.FIELDS) == FIELDS
