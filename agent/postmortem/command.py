"""``vramscope postmortem``: play a recording to its end, and gather what it shows."""

import contextlib
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
    """Write a file that a person named.

    Raises:
        RunError: one sentence.
    """
    try:
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise RunError(f"{path}: can't write it: {error.strerror}") from error
