"""Models in a Hugging Face cache on this host: ``models--ORG--NAME/snapshots/COMMIT``. Nothing is ever downloaded.

Source: huggingface/huggingface_hub, ``constants.py`` and ``file_download.py``.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from collectors.regular_file import read_regular

VARIABLES = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME")
NAME = re.compile(r"[A-Za-z0-9](?:[\w.-]{0,95})(?:/[A-Za-z0-9][\w.-]{0,95})?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
REVISION = re.compile(r"[\w][\w.-]*(?:/[\w][\w.-]*){0,4}")
_MAX_REF_BYTES = 256


def hub_directory(environment: Mapping[str, str], *, home: str | None = None) -> str | None:
    """The cache that a process with this environment uses; ``home``: its user's, where HOME is not set."""
    home = environment.get("HOME") or home
    cache = environment.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home else None)
    root = environment.get("HF_HOME") or (f"{cache}/huggingface" if cache else None)
    named = environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE")
    hub = named or (f"{root}/hub" if root else None)
    return f"{home}{hub[1:]}" if hub and home and hub.startswith("~/") else hub


def snapshot_path(name: str, *, homes: Iterable[Path], revision: str | None = None) -> Path | None:
    """The snapshot of a repository in the first of these caches that has it; ``revision`` is a commit, branch or tag.

    None: none of them has it, none that has it may be read, or ``name`` is no repository's.
    """
    revision = revision or "main"
    if not NAME.fullmatch(name) or not REVISION.fullmatch(revision):
        return None
    for home in homes:
        folder = home / f"models--{name.replace('/', '--')}"
        try:
            commit = revision if _COMMIT.fullmatch(revision) else _commit(folder / "refs" / revision)
            if (folder / "snapshots" / commit).is_dir():
                return folder / "snapshots" / commit
        except (OSError, ValueError):
            continue
    return None


def _commit(ref: Path) -> str:
    text = read_regular(ref, max_bytes=_MAX_REF_BYTES).decode("ascii").strip()
    if not _COMMIT.fullmatch(text):
        raise ValueError(f"{ref}: expected a commit")
    return text
