"""Basic auth against bcrypt hashes, at a bounded price: guesses never take more than a tenth of one core.

A hash is compared in a thread, one at a time, and after a wrong one the next waits nine times as long as it took.
Outcomes are remembered under a keyed digest, so a scraper's password is compared once; what is remembered for right
passwords can't be pushed out by wrong ones. Names that don't exist cost what the others cost.
"""

import asyncio
import base64
import hashlib
import hmac
import os
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

import bcrypt

REMEMBERED = 128
MAX_WAITING = 8
REST_FACTOR = 9.0
MIN_REST_SECONDS = 0.25
BCRYPT_BYTES = 72
NO_PASSWORD = b"." * 53
"""Salt and digest of a hash that no password is known to have."""

Verdict = Literal["admitted", "refused", "busy"]


class Doorkeeper:
    """Decides on the credentials of requests.

    ``matches`` compares a password with a hash and blocks, ``rest`` sleeps, ``clock`` is monotonic seconds.
    """

    def __init__(
        self,
        *,
        matches: Callable[[bytes, bytes], bool] = bcrypt.checkpw,
        rest: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._matches = matches
        self._rest = rest
        self._clock = clock
        self._key = os.urandom(32)
        self._admitted: OrderedDict[bytes, None] = OrderedDict()
        self._refused: OrderedDict[bytes, None] = OrderedDict()
        self._comparing: dict[bytes, asyncio.Task[bool]] = {}
        self._waiting: set[str] = set()
        self._turn = asyncio.Lock()
        self._next_at = 0.0

    async def verdict(self, authorization: str | None, users: Mapping[str, bytes], *, address: str) -> Verdict:
        """What becomes of a request with this ``Authorization`` header from this client address.

        ``busy``: nothing was decided, because this address, or too many others, wait for an answer already.
        """
        given = _credentials(authorization)
        if given is None:
            return "refused"
        name, password = given
        hashed = users.get(name)
        digest = self._digest(name, hashed or b"", password)
        if digest in self._admitted:
            self._admitted.move_to_end(digest)
            return "admitted"
        if digest in self._refused:
            return "refused"
        task = self._comparing.get(digest)
        if task is None:
            if address in self._waiting or len(self._waiting) >= MAX_WAITING:
                return "busy"
            self._waiting.add(address)
            task = asyncio.create_task(self._compare(digest, password, hashed, users, address))
            self._comparing[digest] = task
        return "admitted" if await asyncio.shield(task) else "refused"

    async def _compare(
        self, digest: bytes, password: bytes, hashed: bytes | None, users: Mapping[str, bytes], address: str
    ) -> bool:
        try:
            async with self._turn:
                await self._rest(max(0.0, self._next_at - self._clock()))
                begun = self._clock()
                same = await asyncio.to_thread(self._same, password, hashed or _stand_in(users))
                right = same and hashed is not None
                if not right:
                    ended = self._clock()
                    self._next_at = ended + max(MIN_REST_SECONDS, REST_FACTOR * (ended - begun))
        finally:
            self._waiting.discard(address)
            del self._comparing[digest]
        remembered = self._admitted if right else self._refused
        remembered[digest] = None
        if len(remembered) > REMEMBERED:
            remembered.popitem(last=False)
        return right

    def _same(self, password: bytes, hashed: bytes) -> bool:
        try:
            return self._matches(password[:BCRYPT_BYTES], hashed)
        except ValueError:  # a password that bcrypt does not take, such as one with a NUL
            return False

    def _digest(self, name: str, hashed: bytes, password: bytes) -> bytes:
        """Names this outcome without giving it away; a new hash of the same name is another one."""
        parts = (name.encode(), hashed, password)
        return hmac.digest(self._key, b"".join(hashlib.sha256(part).digest() for part in parts), "sha256")


def _credentials(authorization: str | None) -> tuple[str, bytes] | None:
    """Name and password of RFC 7617, None where the header has none."""
    scheme, _, text = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(text.strip(), validate=True).partition(b":")
        return (name.decode(), password) if colon else None
    except ValueError:
        return None


def _stand_in(users: Mapping[str, bytes]) -> bytes:
    """What an unknown name is compared with: as expensive as the dearest user's hash."""
    cost = max((hashed.split(b"$")[2] for hashed in users.values()), default=b"10")
    return b"$2b$%b$%b" % (cost, NO_PASSWORD)
