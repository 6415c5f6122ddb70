"""Where a process lives and where its output goes, on hosts made of plain files."""

import json
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from collectors.engine_logs.reader import LogReader
from collectors.engine_logs.vllm import FORMAT
from collectors.home import Homes
from collectors.readings import Container, Home, HostKills, ServerProcess

ID = "0123456789abcdef" * 4
UID = "d9a2c4f6-1b3e-4c5d-8e7f-0a1b2c3d4e5f"
POD_GROUP = f"0::/kubepods/burstable/pod{UID}/{ID}\n"
PROCESS = ServerProcess(pid=7, started_at=1.0, title="vllm serve m")


class Host:
    """One process, and the files of container runtimes around it."""

    def __init__(self, folder: Path, cgroup: str) -> None:
        self.folder = folder
        self.process = folder / "proc" / "7"
        (self.process / "fd").mkdir(parents=True)
        (self.process / "cgroup").write_text(cgroup)

    def write(self, name: str, text: str = "") -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def home(self) -> Home:
        return Homes(proc=self.folder / "proc", host=self.folder).of([PROCESS])[7]


def test_output_that_goes_to_files(tmp_path: Path) -> None:
    """Through the descriptors, so that renaming does not matter; one file for both is one; others are no files."""
    host = Host(tmp_path, "0::/system.slice/vllm.service\n")
    output = host.write("vllm.log", "x")
    for number, target in ((0, "/dev/null"), (1, output), (2, output)):
        (host.process / "fd" / str(number)).symlink_to(target)

    assert host.home() == Home(container=Container(unit="vllm.service"), logs=(str(host.process / "fd" / "1"),))

    (host.process / "fd" / "2").unlink()
    (host.process / "fd" / "2").symlink_to(host.write("errors.log"))
    assert len(host.home().logs) == 2

    for number, target in ((1, "/dev/null"), (2, "pipe:[4711]")):
        (host.process / "fd" / str(number)).unlink()
        (host.process / "fd" / str(number)).symlink_to(target)
    assert host.home().logs == ()


def test_a_file_that_two_servers_write_to_is_the_log_of_neither(tmp_path: Path) -> None:
    """Nobody could say whose lines they are; a file of its own stays."""
    host = Host(tmp_path, "0::/\n")
    shared, own = host.write("all.log"), host.write("errors.log")
    (tmp_path / "proc" / "8" / "fd").mkdir(parents=True)
    for link, target in (("7/fd/1", shared), ("8/fd/1", shared), ("7/fd/2", own)):
        (tmp_path / "proc" / link).symlink_to(target)
    other = ServerProcess(pid=8, started_at=1.0, title="vllm serve n")

    homes = Homes(proc=tmp_path / "proc", host=tmp_path).of([PROCESS, other])

    assert homes == {7: Home(logs=(str(host.process / "fd" / "2"),)), 8: Home()}
    assert Homes(proc=tmp_path / "proc", host=tmp_path).of([PROCESS, PROCESS]) == {7: Home()}


def test_a_pod_by_its_folder(tmp_path: Path) -> None:
    """The newest file of its only container; other pods' folders are not looked into."""
    host = Host(tmp_path, POD_GROUP)
    host.write(f"var/log/pods/prod_other_{UID[:-1]}0/vllm/0.log")
    for number in (0, 2, 10):
        newest = host.write(f"var/log/pods/prod_llama-0_{UID}/vllm/{number}.log")
    host.write(f"var/log/pods/prod_llama-0_{UID}/vllm/11.log.20260101-000000")

    expected = Container(id=ID, pod_uid=UID, pod="llama-0", namespace="prod")
    assert host.home() == Home(container=expected, logs=(str(newest),))


def test_one_container_of_several_in_a_pod(tmp_path: Path) -> None:
    """By the file that has its id in its name; without that nobody knows which."""
    host = Host(tmp_path, POD_GROUP)
    for name in ("proxy", "vllm"):
        log = host.write(f"var/log/pods/prod_llama-0_{UID}/{name}/0.log")
    assert host.home().logs == ()

    link = tmp_path / f"var/log/containers/llama-0_prod_vllm-{ID}.log"
    link.parent.mkdir()
    link.symlink_to(log)

    expected = Container(id=ID, pod_uid=UID, pod="llama-0", namespace="prod", name="vllm")
    assert host.home() == Home(container=expected, logs=(str(log),))


def test_a_container_of_docker(tmp_path: Path) -> None:
    """Its name is decoded from a file that also holds the secrets of its environment, and nothing else of it."""
    host = Host(tmp_path, f"0::/docker/{ID}\n")
    config = {"Name": "/llama", "Config": {"Env": ["HF_TOKEN=hf_canary"]}}
    host.write(f"var/lib/docker/containers/{ID}/config.v2.json", json.dumps(config))
    log = host.write(f"var/lib/docker/containers/{ID}/{ID}-json.log")

    home = host.home()

    assert home == Home(container=Container(runtime="docker", id=ID, name="llama"), logs=(str(log),))
    assert "canary" not in repr(home)


def test_a_container_of_podman(tmp_path: Path) -> None:
    """By the list of its containers."""
    host = Host(tmp_path, f"0::/machine.slice/libpod-{ID}.scope\n")
    known = [{"id": "f" * 64, "names": ["other"]}, {"id": ID, "names": ["llama"], "metadata": "{}"}]
    host.write("var/lib/containers/storage/overlay-containers/containers.json", json.dumps(known))

    assert host.home() == Home(container=Container(runtime="podman", id=ID, name="llama"))


def test_odd_files_say_nothing(tmp_path: Path) -> None:
    """A configuration that is none, a log that is no file, a process that has ended."""
    host = Host(tmp_path, f"0::/docker/{ID}\n")
    for text in ("", "[1]", '{"Name": 3}', "[" * 100_000, "x" * 2_000_000):
        host.write(f"var/lib/docker/containers/{ID}/config.v2.json", text)
        (tmp_path / f"var/lib/docker/containers/{ID}/{ID}-json.log").mkdir(parents=True, exist_ok=True)
        assert host.home() == Home(container=Container(runtime="docker", id=ID))

    (host.process / "cgroup").unlink()
    assert host.home() == Home()


def test_a_real_process_and_the_file_it_writes_to(tmp_path: Path) -> None:
    """Through rotation: the file is the one it writes to, under whatever name."""
    path = tmp_path / "out.log"
    program = (
        "import sys\n"
        "for _ in sys.stdin: print('Model loading took', _.strip(), 'GiB memory and 1.0 seconds', flush=True)"
    )
    with path.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=output, stderr=subprocess.DEVNULL, text=True
        )
    assert process.stdin is not None
    try:
        server = ServerProcess(pid=process.pid, started_at=1.0, title="x")
        logs = [Path(name) for name in Homes().of([server])[process.pid].logs]
        assert logs == [Path(f"/proc/{process.pid}/fd/1")]
        following = LogReader(FORMAT, clock=lambda: 1.0)
        for number in (1, 2):
            print(number, file=process.stdin, flush=True)
            deadline = time.monotonic() + 20
            while not (reading := following.read(logs)) or [one.weights_bytes for one in reading.ranks] != [
                number * 2**30
            ]:
                assert time.monotonic() < deadline, reading
                time.sleep(0.02)
            path.rename(tmp_path / f"out.log.{number}")
            path = tmp_path / f"out.log.{number}"
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
    assert following.read([]) is None


def test_output_that_goes_to_the_journal_of_a_unit(tmp_path: Path) -> None:
    """By JOURNAL_STREAM, where it is a socket it writes to; a unit that two servers share is the log of neither."""
    host = Host(tmp_path, "0::/system.slice/vllm.service\n")
    with socket.socket(socket.AF_UNIX) as other, socket.socket(socket.AF_UNIX) as stream:
        for name, one in (("stream", stream), ("other", other)):
            one.bind(str(tmp_path / name))
        status = (tmp_path / "stream").stat()
        (host.process / "fd" / "1").symlink_to(tmp_path / "other")
        (host.process / "fd" / "2").symlink_to(tmp_path / "stream")
        (host.process / "environ").write_text(f"HF_TOKEN=hf_canary\0JOURNAL_STREAM={status.st_dev}:{status.st_ino}\0")

        home = host.home()
        assert home == Home(container=Container(unit="vllm.service"), logs=("journald:vllm.service",))

        shutil.copytree(host.process, tmp_path / "proc" / "8", symlinks=True)
        other_server = ServerProcess(pid=8, started_at=1.0, title="vllm serve n")
        homes = Homes(proc=tmp_path / "proc", host=tmp_path).of([PROCESS, other_server])
        assert [home.logs for home in homes.values()] == [(), ()]

        (host.process / "fd" / "2").unlink()
        assert host.home().logs == ()
        (host.process / "environ").unlink()
        assert host.home().logs == ()


@pytest.mark.parametrize(
    ("cgroup", "file", "content"),
    [
        ("0::/system.slice/vllm.service\n", "system.slice/vllm.service/memory.events", "low 0\noom 4\noom_kill 3\n"),
        (f"0::/docker/{ID}/init\n", f"docker/{ID}/memory.events", "oom_kill 3\noom_group_kill 1\n"),
        (POD_GROUP, f"kubepods/burstable/pod{UID}/memory.events", "oom_kill 3\n"),
        (
            f"5:memory:/kubepods/pod{UID}/{ID}\n0::/\n",
            f"memory/kubepods/pod{UID}/{ID}/memory.oom_control",
            "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
        ),
    ],
)
def test_kills_by_the_host(tmp_path: Path, cgroup: str, file: str, content: str) -> None:
    """Of the unit, the container, or the pod, which outlives its containers; a container alone in version 1."""
    host = Host(tmp_path, cgroup)
    events = host.write(f"sys/fs/cgroup/{file}", content)

    assert host.home().kills == HostKills(group=events.parent.stat().st_ino, count=3)

    for odd in ("", "oom_kill many\n", "oom 3\n", "x" * 5000 + "\noom_kill 3\n"):
        events.write_text(odd)
        assert host.home().kills is None
    events.unlink()
    assert host.home().kills is None


@pytest.mark.parametrize("cgroup", ["0::/\n", "0::/user.slice/user-1.slice/session-2.scope\n", f"0::/../{ID}\n", ""])
def test_kills_in_a_group_that_is_no_home_of_its_own_are_not_known(tmp_path: Path, cgroup: str) -> None:
    """They may be anybody's."""
    host = Host(tmp_path, cgroup)
    host.write("sys/fs/cgroup/memory.events", "oom_kill 3\n")
    host.write("sys/fs/cgroup/user.slice/user-1.slice/session-2.scope/memory.events", "oom_kill 3\n")

    assert host.home().kills is None


def test_kills_in_a_group_that_two_servers_share_are_of_neither(tmp_path: Path) -> None:
    """Nobody could say which of them it was."""
    host = Host(tmp_path, "0::/system.slice/ray.service\n")
    host.write("sys/fs/cgroup/system.slice/ray.service/memory.events", "oom_kill 3\n")
    shutil.copytree(host.process, tmp_path / "proc" / "8")
    other = ServerProcess(pid=8, started_at=1.0, title="vllm serve n")

    homes = Homes(proc=tmp_path / "proc", host=tmp_path).of([PROCESS, other])

    assert [home.kills for home in homes.values()] == [None, None]
