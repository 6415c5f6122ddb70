"""Facts that change only with a restart and that a reading can do without: asked for seldom, a failure is a note."""

import asyncio
from typing import Generic, TypeVar

import msgspec

from collectors.errors import CollectorError, Unreachable, Unreadable
from collectors.http_text import Endpoint

FACTS_SECONDS = 600.0
RETRY_SECONDS = 60.0
DEADLINE_SECONDS = 1.0

T = TypeVar("T")


class Seldom(Generic[T]):
    """One such fact of a server: what ``path`` answers in JSON, as ``kind``."""

    def __init__(self, endpoint: Endpoint, path: str, kind: type[T]) -> None:
        self._endpoint, self._path, self._kind = endpoint, path, kind
        self._known: T | CollectorError | None = None
        self._due_at = float("-inf")

    async def get(self, at: float) -> T | CollectorError:
        """As last answered, or what went wrong then."""
        if self._known is None or at >= self._due_at:
            self._known = await self._ask()
            self._due_at = at + (RETRY_SECONDS if isinstance(self._known, CollectorError) else FACTS_SECONDS)
        return self._known

    def lost(self) -> None:
        """The server may come back as another version."""
        self._known = None

    async def _ask(self) -> T | CollectorError:
        url = f"{self._endpoint.url}{self._path}"
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                answer = await self._endpoint.get(self._path, key=True)
            return msgspec.json.decode(answer.text, type=self._kind)
        except CollectorError as exc:
            return exc
        except TimeoutError:
            message = f"{url} did not answer within {DEADLINE_SECONDS:g} s; it is asked again later"
            return Unreachable("timeout", message)
        except (msgspec.DecodeError, RecursionError):
            return Unreadable("malformed", f"{url} is not the JSON that is expected there; check that the URL is right")
