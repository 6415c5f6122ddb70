"""Where on this host the model of a found server lies."""

import pwd
import re
from pathlib import Path

from msgspec import Struct

from collectors import hf_cache
from collectors.discovery.command import ServerCommand
from collectors.discovery.view import ProcessView

_REPOSITORY = re.compile(r"[\w.-]+(?:/[\w.-]+)?")


class Found(Struct, frozen=True, kw_only=True):
    """A path we can read, or one sentence why there is none."""

    path: str | None = None
    note: str | None = None


def find_model(command: ServerCommand, view: ProcessView) -> Found:
    """The directory or file of the model: a path as the process means it, else its snapshot in the cache it uses."""
    name = command.model
    if name is None:
        return Found()
    try:
        path = view.path(name)
        if path.exists():
            return Found(path=str(path))
        if not _REPOSITORY.fullmatch(name):
            return Found(note=f"no model at {name}, the path it was started with: set `model` of this server")
        hub = _hub(command, view)
        snapshot = hf_cache.snapshot_path(name, homes=[hub], revision=command.revision) if hub else None
    except PermissionError:
        return Found(
            note=f"where its model {name} lies is hidden from us: run vramscope as root or as the server's user, or set"
            " `model` of this server; with it come budget and weights"
        )
    except OSError as exc:
        return Found(note=f"its model {name} can't be looked for: {(exc.strerror or str(exc)).lower()}")
    if snapshot is None:
        where = f"not in the cache {hub}" if hub else "no directory, and the cache it uses is not known"
        return Found(note=f"its model {name} is {where}: set `model` of this server for budget and weights")
    return Found(path=str(snapshot))


def _hub(command: ServerCommand, view: ProcessView) -> Path | None:
    if command.download_directory:
        return view.path(command.download_directory)
    environment = view.environment(hf_cache.VARIABLES)
    home = None if environment.get("HOME") or view.has_own("mnt") else _home(view.owner())
    hub = hf_cache.hub_directory(environment, home=home)
    return view.path(hub) if hub else None


def _home(user: int) -> str | None:
    try:
        return pwd.getpwuid(user).pw_dir
    except KeyError:
        return None
