"""Names of containers, pods and units in the paths that carry them: control groups and the folders of pods' logs.

Shapes by runtime and cgroup driver: moby/moby, containerd/containerd, cri-o/cri-o, containers/podman,
kubernetes/kubernetes ``pkg/kubelet/cm``, ``pkg/kubelet/kuberuntime/legacy.go``, systemd ``CGROUP_DELEGATION``.
"""

import re
from collections.abc import Iterator

from msgspec.structs import replace

from collectors.readings import Container

MAX_CGROUP_BYTES = 64 * 1024
_RUNTIMES = {
    "docker": "docker",
    "cri-containerd": "containerd",
    "nerdctl": "containerd",
    "containerd": "containerd",
    "crio": "cri-o",
    "libpod": "podman",
    "libpod-payload": "podman",
}
_CONTAINER = re.compile(
    r"(?:.{0,300}:(?=[a-z-]{1,20}:))?(?:(?P<runtime>[a-z][a-z-]{2,15})[-:])?(?P<id>[0-9a-f]{64}|[0-9a-f]{32}-\d{4,12})(?:\.scope)?"
)
_POD = re.compile(r"(?:^|-)pod(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?=\.slice|$)")
_NAME = r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}"
_POD_FOLDER = re.compile(rf"(?P<namespace>{_NAME})_(?P<pod>{_NAME})_(?P<uid>[0-9a-f-]{{32,36}})")
_CONTAINER_LOG = re.compile(rf"(?P<pod>{_NAME})_(?P<namespace>{_NAME})_(?P<name>{_NAME})-(?P<id>[0-9a-f]{{64}})\.log")


def container_of(cgroups: str) -> Container | None:
    """What the text of ``/proc/PID/cgroup`` says (v1 and v2); None where a process is in no container and no unit."""
    found = [container for path in _paths(cgroups) if (container := _of_path(path)) is not None]
    return next((one for one in found if one.id), found[0] if found else None)


def group_of(cgroups: str) -> tuple[int, str] | None:
    """Version and path, without the first slash, of the group that limits the memory of a pod, container or unit.

    In version 1 that of the container, also in a pod: only its own events are counted there.
    """
    lines = [line.split(":", 2) for line in cgroups.splitlines() if line.count(":") >= 2]
    for version, controller in ((1, "memory"), (2, "")):
        for _, names, path in lines:
            if controller in names.split(","):
                parts = _home_parts([part for part in path.split("/") if part], pods=version == 2)
                return (version, "/".join(parts)) if parts and ".." not in parts else None
    return None


def _home_parts(parts: list[str], *, pods: bool) -> list[str]:
    """A path up to the innermost pod, else container, else unit; nothing where it leads to none."""
    for is_home in (_is_pod if pods else _is_container, _is_container, _is_unit):
        ends = [number for number, part in enumerate(parts, 1) if is_home(part)]
        if ends:
            return parts[: ends[-1]]
    return []


def _is_pod(part: str) -> bool:
    return _POD.search(part.partition(":")[0]) is not None


def _is_container(part: str) -> bool:
    found = _CONTAINER.fullmatch(part)
    return found is not None and not (found["runtime"] or "").endswith("conmon")


def _is_unit(part: str) -> bool:
    return part.endswith(".service") and not part.startswith("user@")


def pod_of_folder(name: str) -> Container | None:
    """Namespace, pod and uid of a folder in ``/var/log/pods``."""
    found = _POD_FOLDER.fullmatch(name)
    return Container(namespace=found["namespace"], pod=found["pod"], pod_uid=found["uid"]) if found else None


def container_of_log(name: str) -> Container | None:
    """Names and id of a file in ``/var/log/containers``."""
    found = _CONTAINER_LOG.fullmatch(name)
    if found is None:
        return None
    return Container(namespace=found["namespace"], pod=found["pod"], name=found["name"], id=found["id"])


def _paths(cgroups: str) -> Iterator[str]:
    """``hierarchy:controllers:path`` lines, the unified and systemd's own hierarchy first."""
    lines = [line.split(":", 2) for line in cgroups.splitlines() if line.count(":") >= 2]
    yield from (path for _, names, path in sorted(lines, key=lambda line: line[1] not in ("", "name=systemd")))


def _of_path(path: str) -> Container | None:
    """The innermost container of a path: one may hold another."""
    parts = [part for part in path.split("/") if part]
    pods = [found["uid"].replace("_", "-") for part in parts for found in _POD.finditer(part.partition(":")[0])]
    for number in range(len(parts) - 1, -1, -1):
        found = _CONTAINER.fullmatch(parts[number])
        if found is not None and _is_container(parts[number]):
            runtime = _RUNTIMES.get(found["runtime"] or "") or _of_parents(parts[:number])
            return Container(runtime=runtime, id=found["id"], pod_uid=pods[-1] if pods else None)
    if pods:
        return Container(pod_uid=pods[-1])
    units = [part for part in parts if _is_unit(part)]
    return Container(unit=units[-1][:256]) if units else None


def _of_parents(parts: list[str]) -> str | None:
    """The runtime where only the folders above the id tell it."""
    known = {"docker": "docker", "ecs": "docker", "libpod_parent": "podman", "actions_job": "docker"}
    return next((known[part] for part in reversed(parts) if part in known), None)


def named(container: Container, other: Container) -> Container:
    """A container with the names that another source knows of it."""
    names = ("name", "pod", "namespace")
    return replace(container, **{name: getattr(container, name) or getattr(other, name) for name in names})
