"""The host's memory as /proc tells it."""

from pathlib import Path

import pytest

from collectors.host_memory import read_meminfo, read_pressure

# The first lines of a DGX Spark's /proc/meminfo, and the pressure file of a kernel 6.8.
MEMINFO = """\
MemTotal:       127600748 kB
MemFree:         3511044 kB
MemAvailable:   88123400 kB
Buffers:          301148 kB
HugePages_Total:       0
"""
PRESSURE = """\
some avg10=0.00 avg60=0.17 avg300=0.09 total=4183927
full avg10=0.00 avg60=0.11 avg300=0.05 total=2500000
"""


def proc(folder: Path, *, meminfo: str | None = MEMINFO, pressure: str | None = PRESSURE) -> Path:
    if meminfo is not None:
        (folder / "meminfo").write_text(meminfo)
    if pressure is not None:
        (folder / "pressure").mkdir()
        (folder / "pressure" / "memory").write_text(pressure)
    return folder


def test_total_and_available_in_bytes(tmp_path: Path) -> None:
    """The kernel's kB are KiB; available counts what can be reclaimed."""
    assert read_meminfo(proc(tmp_path)) == (127_600_748 * 1024, 88_123_400 * 1024)


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("", "no MemAvailable and no MemTotal in kB"),
        ("MemTotal: 5 kB\n", "no MemAvailable in kB"),
        ("MemTotal: 5 MB\nMemAvailable: 5 kB\n", "no MemTotal in kB"),
        ("MemTotal:\nMemAvailable: 5 kB\n", "no MemTotal in kB"),
        ("MemTotal: x kB\nMemAvailable: 5 kB\n", "invalid literal"),
    ],
)
def test_figures_that_are_not_there(tmp_path: Path, text: str, missing: str) -> None:
    """What is missing or in another unit is no figure."""
    with pytest.raises(ValueError, match=missing):
        read_meminfo(proc(tmp_path, meminfo=text))


def test_no_file_is_an_error(tmp_path: Path) -> None:
    """Without /proc nothing is known."""
    with pytest.raises(FileNotFoundError):
        read_meminfo(tmp_path)


def test_pressure_in_seconds(tmp_path: Path) -> None:
    """The kernel counts microseconds since boot."""
    assert read_pressure(proc(tmp_path)) == {"some": 4.183927, "full": 2.5}


@pytest.mark.parametrize("text", [None, "", "\n", "some avg10=0.00\n", "some total=x\n", "cpu total=5\n"])
def test_kernel_without_pressure(tmp_path: Path, text: str | None) -> None:
    """A kernel that does not count it, or says it otherwise, gives no figure."""
    assert read_pressure(proc(tmp_path, pressure=text)) == {}
