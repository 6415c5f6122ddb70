"""How often the host's out-of-memory killer ended a process of a control group.

Source: Linux, ``Documentation/admin-guide/cgroup-v2.rst`` (``memory.events``, of a group and all below it) and
``mm/memcontrol-v1.c`` (``memory.oom_control``, of the group alone).
"""

import re
from pathlib import Path

from collectors.containers import group_of
from collectors.readings import HostKills
from collectors.regular_file import read_regular

MAX_BYTES = 4096
_COUNT = re.compile(rb"^oom_kill (\d{1,15})$", re.MULTILINE)


def oom_kills(cgroups: str, *, root: Path) -> HostKills | None:
    """Of the pod, container or unit that the text of ``/proc/PID/cgroup`` names; None where its group is not seen.

    ``root`` is where control groups are mounted.
    """
    found = group_of(cgroups)
    if found is None:
        return None
    version, path = found
    folder = root / "memory" / path if version == 1 else root / path
    events = folder / ("memory.oom_control" if version == 1 else "memory.events")
    try:
        number = folder.stat().st_ino
        content = read_regular(events, max_bytes=MAX_BYTES)
    except OSError:
        return None
    count = _COUNT.search(content)
    return HostKills(group=number, count=int(count[1])) if count else None
