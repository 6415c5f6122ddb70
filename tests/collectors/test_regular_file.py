"""Files that may be anything are read as regular files, or not at all."""

import os
from pathlib import Path

import pytest

from collectors.regular_file import read_regular


def test_a_regular_file_is_read_whole(tmp_path: Path) -> None:
    """Up to the bound, through links."""
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")

    assert read_regular(tmp_path / "link", max_bytes=5) == b"12345"
    with pytest.raises(OSError, match="more than 4 bytes"):
        read_regular(tmp_path / "link", max_bytes=4)


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_what_is_no_regular_file_is_not_read(tmp_path: Path, kind: str) -> None:
    """A pipe that nobody writes to does not hold us up."""
    path = tmp_path / "x"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "device":
            path.symlink_to("/dev/zero")

    with pytest.raises(OSError, match=r"not a regular file|Is a directory"):
        read_regular(path, max_bytes=10)


def test_a_path_with_a_nul_is_none() -> None:
    """Said like any other file that can't be opened."""
    with pytest.raises(OSError, match="NUL"):
        read_regular(Path("a\0b"), max_bytes=10)
