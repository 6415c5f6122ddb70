"""Where a server's process lives and where its output goes, from ``/proc`` and the folders of container runtimes.

All names may be another user's: what is read is small, bounded and decoded into the one field that is wanted, and a log
is only ever named here when it is a regular file, or the journal of the process's own unit. A process's own output is
opened through its descriptor, so it is the file it writes to whatever that is called by now.
"""

import contextlib
import functools
import os
import stat
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from collectors.containers import MAX_CGROUP_BYTES, container_of, container_of_log, named, pod_of_folder
from collectors.discovery.view import ProcessView
from collectors.engine_logs.journal import PREFIX
from collectors.oom_kills import oom_kills
from collectors.readings import Container, Home, ServerProcess
from collectors.regular_file import read_regular

MAX_CONFIG_BYTES = 1024 * 1024
MAX_ENTRIES = 4096
MEMORABLE = 4096  # letters of a process's control groups that are kept for the next look


class _DockerConfig(Struct, frozen=True):
    Name: str = ""


class _PodmanContainer(Struct, frozen=True):
    id: str
    names: tuple[str, ...] = ()


class Homes:
    """Looks processes up; ``host`` is where the host's files are. Blocks for about a millisecond for each."""

    def __init__(self, *, proc: Path = Path("/proc"), host: Path = Path("/")) -> None:
        self._proc = proc
        self._docker = host / "var/lib/docker/containers"
        self._podman = host / "var/lib/containers/storage/overlay-containers/containers.json"
        self._pods = host / "var/log/pods"
        self._containers = host / "var/log/containers"
        self._groups = host / "sys/fs/cgroup"

    def of(self, processes: Iterable[ServerProcess]) -> dict[int, Home]:
        """What can be seen of the first processes of servers, by pid; never raises.

        What two servers write to is not taken for the log of either, also where they share the process; nor is a kill
        in a control group that they share counted for either.
        """
        servers = [process.pid for process in processes]
        outputs = {pid: self._outputs(pid) for pid in servers}
        writers = Counter(file for pid in servers for file in outputs[pid])
        homes = {
            pid: self._home(pid, tuple(path for file, path in files.items() if writers[file] == 1))
            for pid, files in outputs.items()
        }
        found = [homes[pid] for pid in servers]
        logs = Counter(log for home in found for log in home.logs)
        groups = Counter(home.kills.group for home in found if home.kills)
        return {
            pid: replace(
                home,
                logs=tuple(log for log in home.logs if logs[log] == 1),
                kills=home.kills if home.kills and groups[home.kills.group] == 1 else None,
            )
            for pid, home in homes.items()
        }

    def _home(self, pid: int, logs: tuple[str, ...]) -> Home:
        cgroups = self._cgroups(pid)
        container = _container(cgroups) if len(cgroups) <= MEMORABLE else container_of(cgroups)
        if container is None:
            return Home(logs=logs)
        kills = oom_kills(cgroups, root=self._groups)
        pod_log = self._pod_log(container)
        if container.pod_uid is not None:
            container = self._pod_names(container)
        elif container.id is not None:
            container = replace(container, name=self._own_name(container))
        if not logs:
            found = pod_log or self._docker_log(container)
            logs = (str(found),) if found else self._journal(pid, container)
        return Home(container=container, logs=logs, kills=kills)

    def _cgroups(self, pid: int) -> str:
        try:
            with open(f"{self._proc}/{pid}/cgroup", "rb") as file:  # noqa: PTH123 - a Path is slow to make, for each
                return file.read(MAX_CGROUP_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""

    def _journal(self, pid: int, container: Container) -> tuple[str, ...]:
        """The unit's journal where systemd connected an output to it, which JOURNAL_STREAM says by device and inode."""
        with contextlib.suppress(OSError):
            stream = ProcessView(pid, proc=self._proc).environment(["JOURNAL_STREAM"]).get("JOURNAL_STREAM")
            for number in (1, 2) if stream and container.unit else ():
                status = (self._proc / str(pid) / "fd" / str(number)).stat()
                if f"{status.st_dev}:{status.st_ino}" == stream:
                    return (f"{PREFIX}{container.unit}",)
        return ()

    def _outputs(self, pid: int) -> dict[tuple[int, int], str]:
        """Standard output and error as far as they are regular files, by device and inode."""
        found: dict[tuple[int, int], str] = {}
        for number in (1, 2):
            path = f"{self._proc}/{pid}/fd/{number}"
            with contextlib.suppress(OSError):
                status = os.stat(path)  # noqa: PTH116 - as above
                if stat.S_ISREG(status.st_mode):
                    found.setdefault((status.st_dev, status.st_ino), path)
        return found

    def _pod_names(self, container: Container) -> Container:
        """By the container's own log file, else by the folder of its pod."""
        for name in _entries(self._containers):
            found = container_of_log(name)
            if found is not None and found.id == container.id:
                return named(container, found)
        folder = self._pod_folder(container)
        found = pod_of_folder(folder.name) if folder else None
        return named(container, found) if found else container

    def _pod_folder(self, container: Container) -> Path | None:
        uid = (container.pod_uid or "").replace("-", "")
        for name in _entries(self._pods):
            found = pod_of_folder(name)
            if found is not None and uid and (found.pod_uid or "").replace("-", "") == uid:
                return self._pods / name
        return None

    def _pod_log(self, container: Container) -> Path | None:
        """The newest ``N.log`` of the container; without its name, of the only container of its pod."""
        folder = self._pod_folder(container) if container.pod_uid else None
        if folder is None:
            return None
        name = self._pod_names(container).name
        names = [name] if name else _entries(folder)
        if len(names) != 1:
            return None
        numbers = [one.removesuffix(".log") for one in _entries(folder / names[0]) if one.endswith(".log")]
        newest = max((int(one) for one in numbers if one.isdecimal() and len(one) < 10), default=None)
        return None if newest is None else _regular(folder / names[0] / f"{newest}.log")

    def _docker_log(self, container: Container) -> Path | None:
        return _regular(self._docker / container.id / f"{container.id}-json.log") if container.id else None

    def _own_name(self, container: Container) -> str | None:
        """The name its runtime gave it; of the runtime's files nothing else is decoded."""
        with contextlib.suppress(OSError, msgspec.DecodeError, RecursionError):
            if container.runtime == "podman":
                content = read_regular(self._podman, max_bytes=MAX_CONFIG_BYTES)
                known = msgspec.json.decode(content, type=tuple[_PodmanContainer, ...])
                return next((one.names[0][:256] for one in known if one.id == container.id and one.names), None)
            path = self._docker / str(container.id) / "config.v2.json"
            config = msgspec.json.decode(read_regular(path, max_bytes=MAX_CONFIG_BYTES), type=_DockerConfig)
            return config.Name.strip("/")[:256] or None
        return None


@functools.lru_cache(maxsize=512)
def _container(cgroups: str) -> Container | None:
    """As looks before had it: control groups hardly ever change in a process's life."""
    return container_of(cgroups)


def _entries(folder: Path) -> list[str]:
    """Names in a folder, at most so many; none where there is no such folder or it is not ours to see."""
    try:
        return [entry.name for entry, _ in zip(folder.iterdir(), range(MAX_ENTRIES), strict=False)]
    except OSError:
        return []


def _regular(path: Path) -> Path | None:
    try:
        return path if stat.S_ISREG(path.stat().st_mode) else None
    except OSError:
        return None
