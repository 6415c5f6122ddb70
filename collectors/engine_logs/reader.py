"""Reading the log of one server: the files it writes to, followed, and what their lines say."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock

from collectors.engine_logs.journal import PREFIX, Journal, JournalTail
from collectors.engine_logs.parsing import LogParser
from collectors.engine_logs.shapes import LogFormat
from collectors.engine_logs.tail import Tail, marked_lines
from collectors.errors import Absent, CollectorError, Refused, Unreadable
from collectors.readings import LogReading


class LogReader:
    """Blocks for as long as the files take; call ``read`` and ``close`` in a thread, one at a time.

    A log is named by its path, or as ``journald:UNIT``.
    """

    def __init__(self, log: LogFormat, *, clock: Callable[[], float], journal: Journal | None = None) -> None:
        self._format = log
        self._clock = clock
        self._journal = journal or Journal()
        self._parser = LogParser(log)
        self._tails: dict[str, Tail | JournalTail] = {}
        self._reading = Lock()  # a reader that hung may still be at it when the next one comes

    def read(self, logs: Sequence[str | Path]) -> LogReading | None:
        """What these logs say by now; None without any. Failures are counted over all logs there ever were.

        Raises:
            Absent: none of them is there.
            Refused: we may not read one.
            Unreadable: one is no regular file, or no journal.
        """
        names = [os.fspath(log) for log in logs]
        with self._reading:
            for gone in self._tails.keys() - set(names):
                self._tails.pop(gone).close()
            at = self._clock()
            problems = [problem for name in names if (problem := self._follow(name, at)) is not None]
            if problems and len(problems) == len(names):
                raise problems[0]
            return self._parser.reading(at) if names else None

    def close(self) -> None:
        """Hold nothing any more; another ``read`` goes on where this one ended."""
        with self._reading:
            for tail in self._tails.values():
                tail.close()

    def _follow(self, name: str, at: float) -> CollectorError | None:
        try:
            tail = self._tails.get(name)
            if tail is None:
                tail = self._tails[name] = self._tail(name)
            for block in tail.read():
                for line in marked_lines(block, self._parser.marks):
                    self._parser.take(line, at)
        except CollectorError as error:
            return error
        except ValueError:  # a path with a NUL, or what a process calls its unit
            return Unreadable("unreadable", f"{name[:100]!r} can't be the name of a log; set log of this server")
        except FileNotFoundError:
            return Absent("absent", f"{name}: there is no such log; check the path, or wait until the server writes it")
        except PermissionError:
            return Refused("permission", f"{name}: may not be read; let the user of vramscope read it")
        except OSError as exc:
            return Unreadable("unreadable", f"{name}: can't be read: {exc.strerror}; expected a regular file")
        return None

    def _tail(self, name: str) -> Tail | JournalTail:
        if name.startswith(PREFIX):
            return JournalTail(name.removeprefix(PREFIX), journal=self._journal, clock=self._clock)
        return Tail(Path(name), starts=self._format.starts)
