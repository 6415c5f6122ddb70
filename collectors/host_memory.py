"""The host's own memory, from the files of /proc. Standard library only: the process that calls NVML imports it.

Formats: Linux, Documentation/filesystems/proc.rst (meminfo, kB) and Documentation/accounting/psi.rst (pressure, us).
"""

from pathlib import Path

KINDS = ("some", "full")


def read_meminfo(proc: Path) -> tuple[int, int]:
    """MemTotal and MemAvailable in bytes. What can be reclaimed (page cache) counts as available.

    Raises:
        OSError: the file can't be read.
        ValueError: it lacks one of the two.
    """
    fields: dict[str, int] = {}
    for line in (proc / "meminfo").read_text(encoding="ascii", errors="replace").splitlines():
        name, _, rest = line.partition(":")
        if name in ("MemTotal", "MemAvailable") and rest.split()[1:] == ["kB"]:
            fields[name] = int(rest.split()[0]) * 1024
    if missing := {"MemTotal", "MemAvailable"} - fields.keys():
        raise ValueError(f"no {' and no '.join(sorted(missing))} in kB")
    return fields["MemTotal"], fields["MemAvailable"]


def read_pressure(proc: Path) -> dict[str, float]:
    """Seconds since boot in which some or all tasks waited for memory; empty where the kernel does not count them."""
    try:
        lines = (proc / "pressure" / "memory").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return {}
    waited: dict[str, float] = {}
    for line in lines:
        kind, _, rest = line.partition(" ")
        total = dict(field.partition("=")[::2] for field in rest.split()).get("total", "")
        if kind in KINDS and total.isdecimal():
            waited[kind] = int(total) / 1e6
    return waited
