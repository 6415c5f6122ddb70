"""Facts that change only with a restart and that a reading can do without: asked for seldom, a failure is a note."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from collectors.errors import CollectorError, Refused, Unreachable, Unreadable
from collectors.http_text import Endpoint

FACTS_SECONDS = 600.0
RETRY_SECONDS = 60.0
DEADLINE_SECONDS = 1.0

T = TypeVar("T")


class Seldom(Generic[T]):
    """One such fact of a server: what ``decode`` makes of the answer at ``path``, whatever that raises.

    It is asked for every so many seconds, sooner after a failure; a key that is missing is no reason to ask sooner.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        path: str,
        decode: Callable[[str], T],
        *,
        every_seconds: float = FACTS_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        self._endpoint, self._path, self._decode = endpoint, path, decode
        self._every_seconds, self._retry_seconds = every_seconds, retry_seconds
        self._deadline_seconds = deadline_seconds
        self._known: T | CollectorError | None = None
        self._due_at = float("-inf")

    async def get(self, at: float) -> T | CollectorError:
        """As last answered, or what went wrong then."""
        known = self._known
        if known is None or self.is_due(at):
            known = self._known = await self._ask()
            is_settled = not isinstance(known, CollectorError) or isinstance(known, Refused)
            self._due_at = at + (self._every_seconds if is_settled else self._retry_seconds)
        return known

    def is_due(self, at: float) -> bool:
        """Whether ``get`` asks."""
        return self._known is None or at >= self._due_at

    def lost(self) -> None:
        """The server may come back as another version."""
        self._known = None

    async def _ask(self) -> T | CollectorError:
        url = f"{self._endpoint.url}{self._path}"
        try:
            async with asyncio.timeout(self._deadline_seconds):
                answer = await self._endpoint.get(self._path, key=True)
        except CollectorError as exc:
            return exc
        except TimeoutError:
            message = f"{url} did not answer within {self._deadline_seconds:g} s; it is asked again later"
            return Unreachable("timeout", message)
        try:
            return self._decode(answer.text)
        except Exception:  # whatever a server writes there, the rest of its reading stands
            return Unreadable("malformed", f"{url} is not the JSON that is expected there; check that the URL is right")
