"""Reading the log of one server: the files it writes to, followed, and what their lines say."""

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock

from collectors.engine_logs.parsing import LogParser
from collectors.engine_logs.shapes import LogFormat
from collectors.engine_logs.tail import Tail, marked_lines
from collectors.errors import Absent, CollectorError, Refused, Unreadable
from collectors.readings import LogReading


class LogReader:
    """Blocks for as long as the files take; call ``read`` in a thread, one at a time."""

    def __init__(self, log: LogFormat, *, clock: Callable[[], float]) -> None:
        self._format = log
        self._clock = clock
        self._parser = LogParser(log)
        self._tails: dict[Path, Tail] = {}
        self._reading = Lock()  # a reader that hung may still be at it when the next one comes

    def read(self, paths: Sequence[Path]) -> LogReading | None:
        """What these files say by now; None without any. Failures are counted over all files there ever were.

        Raises:
            Absent: none of them is there.
            Refused: we may not read one.
            Unreadable: one is no regular file.
        """
        with self._reading:
            self._tails = {path: tail for path, tail in self._tails.items() if path in paths}
            at = self._clock()
            problems = [problem for path in paths if (problem := self._follow(path, at)) is not None]
            if problems and len(problems) == len(paths):
                raise problems[0]
            return self._parser.reading(at) if paths else None

    def _follow(self, path: Path, at: float) -> CollectorError | None:
        tail = self._tails.setdefault(path, Tail(path, starts=self._format.starts))
        try:
            for block in tail.read():
                for line in marked_lines(block, self._parser.marks):
                    self._parser.take(line, at)
        except FileNotFoundError:
            return Absent("absent", f"{path}: there is no such log; check the path, or wait until the server writes it")
        except PermissionError:
            return Refused("permission", f"{path}: may not be read; let the user of vramscope read it")
        except OSError as exc:
            return Unreadable("unreadable", f"{path}: can't be read: {exc.strerror}; expected a regular file")
        return None
