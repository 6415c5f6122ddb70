"""``vramscope postmortem``: play a recording to its end, and gather what it shows."""

import contextlib
import os
import tempfile
from pathlib import Path

from agent.errors import RunError
from agent.postmortem.findings import Findings
from agent.postmortem.report import Postmortem
from agent.recorder.chunks import RecordingError
from agent.recorder.player import Player


def look_into(player: Player) -> Postmortem:
    """What happened in a recording.

    Raises:
        RecordingError: it can't be read, or is no recording.
    """
    findings = Findings()
    try:
        for published in player.ticks():
            findings.take(published.snapshot)
        kept_for = player.frozen[-1] if player.frozen else None
        return findings.report(file=player.file.name, kept_for=kept_for, problem=player.file.problem)
    except ValueError as error:
        raise RecordingError(f"{player.file.path}: {error}") from error


def is_same(one: Path, other: Path) -> bool:
    """Whether both name the same file."""
    with contextlib.suppress(OSError):
        return one.samefile(other)
    return False


def write_out(path: Path, text: str) -> None:
    """Write a file that a person named; one that is there is replaced as a whole, or stays as it was.

    Raises:
        RunError: one sentence.
    """
    content = text.encode("utf-8", errors="replace")
    try:
        path = path.resolve()
        if path.exists() and not path.is_file():
            path.write_bytes(content)  # a pipe or a terminal
        else:
            _replace(path, content)
    except OSError as error:
        raise RunError(f"{path}: can't write it: {error.strerror}") from error


def _replace(path: Path, content: bytes) -> None:
    """By a file beside it that takes its place, with its mode."""
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:50]}-", dir=path.parent)
    new = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            new.unlink()
        raise
