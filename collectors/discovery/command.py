"""What the command line of a server says, in words that fit every engine."""

import re
from collections.abc import Callable, Sequence

from msgspec import Struct

_ASSIGNMENT = re.compile(r"[A-Z][A-Z0-9_]*=.*", re.DOTALL)

Value = int | float | str | bool
ReadFile = Callable[[str], bytes]  # a file the command line names; raises OSError


class ServerCommand(Struct, frozen=True, kw_only=True):
    """A command line that starts a server. What it leaves out is None, or the engine's default where that is fixed.

    ``model`` is as written: a path or the name of a repository. ``named_by_title``: the process has overwritten its
    command line with a title, which tells its role, at most its data-parallel ``rank``, and no flags. A command that
    ``supervises`` starts one server for each rank from ``rank`` on, at ``port``, ``port`` + 1, and so on, in processes
    that have such titles. ``has_endpoint``: whether it answers over TCP at all. ``programs`` are the paths it was
    started by. Secrets are not in here.
    """

    model: str | None = None
    revision: str | None = None
    download_directory: str | None = None
    served_name: str | None = None
    host: str | None = None
    port: int | None = None
    has_endpoint: bool = True
    tls: bool = False
    arguments: dict[str, Value] = {}
    programs: tuple[str, ...] = ()
    rank: int | None = None
    named_by_title: bool = False
    supervises: bool = False
    notes: tuple[str, ...] = ()


class ReadCommand(Struct, frozen=True, kw_only=True):
    """How an engine's servers are told from other processes.

    ``marks``: a command line without one of these is none of its. ``read``: what a command line says, None when it
    starts no server. ``package``: the Python distribution whose version is the engine's, empty where it is none.
    ``variables``: of its environment, what stands for flags; they are put in front of the words as NAME=VALUE, as in a
    shell. ``parts``: engines whose servers below one of its own are parts of it. ``model_of``: the file of a model
    that a process of a server holds, by its title; for engines whose servers load models as they are asked for.
    """

    marks: tuple[bytes, ...]
    read: Callable[[Sequence[str], ReadFile], ServerCommand | None]
    package: str
    variables: tuple[str, ...] = ()
    parts: frozenset[str] = frozenset()
    model_of: Callable[[str], str | None] | None = None


def split_assignments(words: Sequence[str]) -> tuple[dict[str, str], Sequence[str]]:
    """The NAME=VALUE words in front of a command line, and the rest."""
    count = next((n for n, word in enumerate(words) if not _ASSIGNMENT.fullmatch(word)), len(words))
    pairs = (word.partition("=") for word in words[:count])
    return {name: value for name, _, value in pairs}, words[count:]
