"""What a collector may raise. Third-party exceptions are translated where they enter; nothing else leaves a collector.

CollectorError
├── Absent          nothing there, and that is no failure (no driver on this host)
├── Unreachable     no answer: refused, reset, no route, deadline passed
├── Refused         answered, but not to us: 401, 403, permission
└── Unreadable      answered with something that can't be used: too large, malformed, wrong type
"""

from collectors.readings import Fault


class CollectorError(Exception):
    """A reading that did not happen: ``reason`` is a short word for a label, the message one sentence for a person."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason

    def fault(self) -> Fault:
        return Fault(reason=self.reason, message=str(self))


class Absent(CollectorError):
    """Nothing there to read."""


class Unreachable(CollectorError):
    """No answer."""


class Refused(CollectorError):
    """An answer that denies access."""


class Unreadable(CollectorError):
    """An answer that can't be used."""
