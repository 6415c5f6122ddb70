"""A ``/proc`` of plain files: as many processes as a test likes, changed as it likes."""

from pathlib import Path

SELF = 1000000


class ProcFolder:
    """Laid out like ``/proc``; all processes share one namespace of each kind unless a test says otherwise."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "namespaces").mkdir(parents=True)
        (folder / "stat").write_text("cpu 1 2 3\nbtime 1700000000\n")
        (folder / "self").symlink_to(str(SELF))
        self.add(SELF, b"vramscope\0")

    def add(
        self,
        pid: int,
        command: bytes = b"",
        *,
        parent: int = 1,
        started: int = 1000,
        name: str = "python",
        program: int = 4096,
        arguments: int = 8192,
        state: str = "S",
        flags: int = 0,
        network: str = "host",
    ) -> None:
        """A process, or what it has become."""
        folder = self.folder / str(pid)
        (folder / "ns").mkdir(parents=True, exist_ok=True)
        (folder / "fd").mkdir(exist_ok=True)
        (folder / "net").mkdir(exist_ok=True)
        numbers = [0] * 49
        numbers[3], numbers[18], numbers[22], numbers[44] = 0, started, program, arguments
        numbers[0], numbers[5] = parent, flags
        (folder / "stat").write_bytes(f"{pid} ({name}) {state} {' '.join(map(str, numbers))}\n".encode())
        (folder / "cmdline").write_bytes(command)
        (folder / "environ").write_bytes(b"HOME=/nowhere\0")
        for link, target in (("cwd", "/"), ("root", "/"), ("exe", "/usr/bin/python3")):
            (folder / link).unlink(missing_ok=True)
            (folder / link).symlink_to(target)
        for kind, namespace in (("net", network), ("mnt", "host"), ("pid", "host")):
            self._namespace(folder / "ns" / kind, f"{kind}-{namespace}")
        self.listening(pid)

    def listening(self, pid: int, *sockets: tuple[str, int, int]) -> None:
        """The namespace of ``pid`` has these listening sockets (hexadecimal address, port, inode)."""
        head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        tables = {"tcp": head, "tcp6": head}
        for address, port, inode in sockets:
            rest = f"{'0' * len(address)}:0000 0A 00000000:00000000 00:00000000 00000000 0 0 {inode} 1 0 100 0 0 10 0"
            tables["tcp" if len(address) == 8 else "tcp6"] += f"   0: {address}:{port:04X} {rest}\n"
        for name, text in tables.items():
            (self.folder / str(pid) / "net" / name).write_text(text)

    def holds(self, pid: int, *inodes: int) -> None:
        """The descriptors of a process are these sockets."""
        for number, inode in enumerate(inodes, 3):
            (self.folder / str(pid) / "fd" / str(number)).symlink_to(f"socket:[{inode}]")

    def remove(self, pid: int) -> None:
        folder = self.folder / str(pid)
        folder.rename(self.folder / f"gone-{pid}-{len(list(self.folder.iterdir()))}")

    def _namespace(self, place: Path, name: str) -> None:
        shared = self.folder / "namespaces" / name
        shared.touch()
        place.unlink(missing_ok=True)
        place.hardlink_to(shared)
