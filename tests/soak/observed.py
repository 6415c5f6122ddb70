"""The program with a window into it: ``python -I observed.py WINDOW ARGUMENTS...``.

On SIGUSR1 it writes to the file WINDOW, as JSON, what is alive in it.
"""

import asyncio
import ctypes
import gc
import json
import signal
import sys
import threading
from collections import Counter, deque
from pathlib import Path

from agent.__main__ import main

CONTAINERS = (dict, list, set, deque)


def alive() -> dict[str, object]:
    """Tasks and threads by name, objects by type, and the entries of all containers together."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what is free goes back, so that resident memory is what is held
    gc.unfreeze()  # what the program froze at its start is not listed, and grows like the rest
    objects = gc.get_objects()
    return {
        "tasks": sorted(getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "objects": Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in objects),
        "entries": sum(len(one) for one in objects if type(one) in CONTAINERS),
    }


def look(window: Path) -> None:
    new = window.with_suffix(".new")
    new.write_text(json.dumps(alive()))
    new.replace(window)


if __name__ == "__main__":
    window = Path(sys.argv.pop(1))
    signal.signal(signal.SIGUSR1, lambda *_: look(window))
    raise SystemExit(main())
