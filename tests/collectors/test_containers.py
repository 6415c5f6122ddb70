"""Names of containers, pods and units in control groups, as every runtime and cgroup driver writes them."""

import pytest

from collectors.containers import container_of, container_of_log, pod_of_folder
from collectors.readings import Container

ID = "0123456789abcdef" * 4
OTHER = "fedcba9876543210" * 4
UID = "d9a2c4f6-1b3e-4c5d-8e7f-0a1b2c3d4e5f"
SLICE = f"kubepods-burstable-pod{UID.replace('-', '_')}.slice"
POD = f"/kubepods.slice/kubepods-burstable.slice/{SLICE}"

GROUPS = {
    "docker, v2, systemd": (f"0::/system.slice/docker-{ID}.scope", Container(runtime="docker", id=ID)),
    "docker, v2, cgroupfs": (f"0::/docker/{ID}", Container(runtime="docker", id=ID)),
    "docker, v1": (
        f"12:memory:/docker/{ID}\n3:cpu,cpuacct:/docker/{ID}\n1:name=systemd:/docker/{ID}\n0::/",
        Container(runtime="docker", id=ID),
    ),
    "docker seen from another cgroup namespace": (f"0::/../../docker-{ID}.scope", Container(runtime="docker", id=ID)),
    "docker of a user": (
        f"0::/user.slice/user-1000.slice/user@1000.service/app.slice/docker-{ID}.scope",
        Container(runtime="docker", id=ID),
    ),
    "ECS": (
        "0::/ecs/0af1b2/" + "0123456789abcdef" * 2 + "-1234567890",
        Container(runtime="docker", id="0123456789abcdef" * 2 + "-1234567890"),
    ),
    "containerd, systemd": (
        f"0::{POD}/cri-containerd-{ID}.scope",
        Container(runtime="containerd", id=ID, pod_uid=UID),
    ),
    "containerd, a guaranteed pod": (
        f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{ID}.scope",
        Container(runtime="containerd", id=ID, pod_uid=UID),
    ),
    "containerd with colons": (
        f"0::/system.slice/containerd.service/{SLICE}:cri-containerd:{ID}",
        Container(runtime="containerd", id=ID, pod_uid=UID),
    ),
    "Kubernetes, v1, cgroupfs": (
        f"11:memory:/kubepods/besteffort/pod{UID}/{ID}\n1:name=systemd:/kubepods/besteffort/pod{UID}/{ID}",
        Container(id=ID, pod_uid=UID),
    ),
    "static pod": (
        f"0::/kubepods/burstable/pod{'0123456789abcdef' * 2}/{ID}",
        Container(id=ID, pod_uid="0123456789abcdef" * 2),
    ),
    "cri-o": (f"0::{POD}/crio-{ID}.scope", Container(runtime="cri-o", id=ID, pod_uid=UID)),
    "cri-o with a group within": (
        f"0::{POD}/crio-{ID}.scope/container",
        Container(runtime="cri-o", id=ID, pod_uid=UID),
    ),
    "the monitor of cri-o": (f"0::{POD}/crio-conmon-{ID}.scope", Container(pod_uid=UID)),
    "podman": (f"0::/machine.slice/libpod-{ID}.scope/container", Container(runtime="podman", id=ID)),
    "podman, payload": (f"0::/machine.slice/libpod-payload-{ID}", Container(runtime="podman", id=ID)),
    "podman of a user": (
        f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope",
        Container(runtime="podman", id=ID),
    ),
    "podman, cgroupfs": (f"0::/libpod_parent/libpod-{ID}", Container(runtime="podman", id=ID)),
    "nerdctl": (f"0::/system.slice/nerdctl-{ID}.scope", Container(runtime="containerd", id=ID)),
    "a cluster within a container": (
        f"0::/docker/{OTHER}/kubelet.slice/kubelet-kubepods.slice/kubelet-{SLICE}/cri-containerd-{ID}.scope",
        Container(runtime="containerd", id=ID, pod_uid=UID),
    ),
    "unit": ("0::/system.slice/vllm.service", Container(unit="vllm.service")),
    "unit of a template": (
        "0::/system.slice/system-vllm.slice/vllm@llama-8b.service",
        Container(unit="vllm@llama-8b.service"),
    ),
    "unit of a user": (
        "0::/user.slice/user-1000.slice/user@1000.service/app.slice/ollama.service",
        Container(unit="ollama.service"),
    ),
    "unit, v1": (
        "5:memory:/\n1:name=systemd:/system.slice/vllm.service\n0::/system.slice/vllm.service",
        Container(unit="vllm.service"),
    ),
    "a terminal": ("0::/user.slice/user-1000.slice/session-3.scope", None),
    "the root": ("0::/", None),
    "nothing": ("", None),
    "not a control group": ("a\nb:c\n\0:::", None),
    "an id that is too short": (f"0::/docker/{ID[:-1]}", None),
}


@pytest.mark.parametrize(("text", "expected"), GROUPS.values(), ids=GROUPS.keys())
def test_every_shape_of_a_control_group(text: str, expected: Container | None) -> None:
    """The innermost container of all hierarchies; without one the unit."""
    assert container_of(text) == expected


def test_names_in_the_folders_of_pods_logs() -> None:
    """As kubelet composes them."""
    assert pod_of_folder(f"prod_llama-0_{UID}") == Container(namespace="prod", pod="llama-0", pod_uid=UID)
    assert container_of_log(f"llama-0_prod_vllm-openai-{ID}.log") == Container(
        namespace="prod", pod="llama-0", name="vllm-openai", id=ID
    )
    for name in ("", "prod_llama-0", f"prod_llama-0_{UID}.tmp", f"a_b_c_{UID}", "llama-0_prod_vllm.log"):
        assert pod_of_folder(name) is None
        assert container_of_log(name) is None
