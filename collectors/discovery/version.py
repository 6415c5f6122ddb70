"""The version of an engine, from the metadata of the Python package that its process was started from."""

import contextlib
import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path, PurePosixPath

from collectors.discovery.view import ProcessView

MAX_ENTRIES = 20_000
MAX_PATH_ENTRIES = 32
_LIBRARIES = ("lib", "lib64", "local/lib")
_PACKAGES = ("site-packages", "dist-packages")


def package_version(package: str, programs: tuple[str, ...], view: ProcessView) -> str | None:
    """The version in ``PACKAGE-VERSION.dist-info`` beside the programs a process was started by.

    None: nothing such there, several of them, or hidden from us.
    """
    with contextlib.suppress(OSError):
        for prefix in _prefixes(programs, view):
            versions = {found for folder in _package_folders(prefix) if (found := _version(package, folder))}
            if versions:
                return versions.pop() if len(versions) == 1 else None
    return None


def _prefixes(programs: tuple[str, ...], view: ProcessView) -> Iterator[Path]:
    """Where environments begin: two levels above each program; a bare name is looked up in PATH."""
    environment = view.environment(("PATH", "VIRTUAL_ENV"))
    folders = [folder for folder in environment.get("PATH", "").split(":") if folder][:MAX_PATH_ENTRIES]
    for program in reversed(programs):
        if "/" in program:
            yield view.path(str(PurePosixPath(program).parent.parent))
        else:
            places = (folder for folder in folders if os.path.lexists(view.path(f"{folder}/{program}")))
            yield from (view.path(str(PurePosixPath(folder).parent)) for folder in islice(places, 1))
    if named := environment.get("VIRTUAL_ENV"):
        yield view.path(named)
    yield view.path(str(view.program().parent.parent))


def _package_folders(prefix: Path) -> Iterator[Path]:
    for library in _LIBRARIES:
        with contextlib.suppress(OSError):
            names = [name for name in _names(prefix / library) if re.fullmatch(r"python3(\.\d+)?", name)]
            yield from (prefix / library / name / packages for name in names for packages in _PACKAGES)


def _version(package: str, folder: Path) -> str | None:
    wanted = re.compile(rf"{package}-(\d[\w.+!]{{0,63}})\.dist-info")
    with contextlib.suppress(OSError):
        found = {match[1] for name in _names(folder) if (match := wanted.fullmatch(name))}
        return found.pop() if len(found) == 1 else None
    return None


def _names(folder: Path) -> Iterator[str]:
    with os.scandir(folder) as entries:
        yield from (entry.name for entry in islice(entries, MAX_ENTRIES))
