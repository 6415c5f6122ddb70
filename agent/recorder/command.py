"""``vramscope record``: have the last minutes kept, by the running agent or from what one left behind."""

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from agent.disk import translated
from agent.errors import InputError, RunError
from agent.folder_lock import FILE_MODE
from agent.recorder.records import Frozen
from agent.recorder.ring import OURS, REQUEST, Ring, bundles_in
from agent.settings import RecorderSettings
from collectors.errors import CollectorError, Refused

ANSWER_SECONDS = 10.0
LOOK_SECONDS = 0.05


def keep_recording(
    state_directory: Path,
    sizes: RecorderSettings,
    *,
    answer_seconds: float = ANSWER_SECONDS,
    wall: Callable[[], float] = time.time,
) -> Path:
    """Have what was recorded last kept as a bundle, and give its path.

    A running agent is asked by a file in its folder, which only who may write there can make; where none runs, its ring
    is on the disk, and is kept from here.

    Raises:
        InputError: the folder can't be looked at.
        RunError: one sentence: no recorder was ever here, no permission, or the agent does not answer.
    """
    ring = Ring(state_directory, minutes=sizes.minutes, max_bytes=sizes.max_bytes)
    if not _segments(ring):
        raise RunError(
            f"{ring.folder}: nothing was recorded here; name the agent's directory with --state-directory, or its "
            "settings with --config"
        )
    try:
        with translated(ring.folder, "keep a recording", ours=OURS):
            try:
                ring.hold()
            except Refused:
                return _ask(ring, answer_seconds)
            try:
                return ring.freeze(Frozen(at=0.0, wall=wall(), reason="asked"))
            finally:
                ring.close()
    except CollectorError as error:
        raise RunError(str(error)) from error


def _segments(ring: Ring) -> list[Path]:
    """Those on the disk; of a folder that may not be read it says so, and not that it is empty."""
    try:
        if os.path.lexists(ring.folder):
            os.scandir(ring.folder).close()
        return ring.segments()
    except OSError as error:
        advice = "run it as the agent's user or as root" if isinstance(error, PermissionError) else "name another"
        raise InputError(
            f"{ring.folder}: can't look for what was recorded here: {error.strerror}; {advice}, or name the agent's "
            "directory with --state-directory"
        ) from error


def _ask(ring: Ring, seconds: float) -> Path:
    """Ask the agent that has the folder."""
    before = set(bundles_in(ring.bundles))
    request = ring.folder / REQUEST
    with contextlib.suppress(FileExistsError):  # somebody else asks: the answer is for both
        os.close(os.open(request, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE))
    deadline = time.monotonic() + seconds
    while os.path.lexists(request):
        if time.monotonic() > deadline:
            with contextlib.suppress(FileNotFoundError):
                request.unlink()
            raise RunError(f"{ring.folder}: the agent that records here did not answer within {seconds:g} s")
        time.sleep(LOOK_SECONDS)
    fresh = [path for path in bundles_in(ring.bundles) if path not in before]
    if not fresh:
        raise RunError(f"{ring.folder}: the agent could not keep a recording; its log says why")
    return fresh[-1]
