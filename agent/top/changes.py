"""What changed from one snapshot to the next: tokens generated, and growth of pools where an agent tells none yet."""

from collections import deque
from collections.abc import Iterator, Mapping

from agent.snapshot import Pool, Server, Snapshot

WINDOW_SECONDS = 15.0
LEAST_SECONDS = 2.0

Key = tuple[str, ...]  # the server, for a pool its replica and kind too


class Changes:
    """Tokens that pools hold and servers have generated in the last seconds, by the time at which they were read."""

    def __init__(self) -> None:
        self._seen: dict[Key, deque[tuple[float, int]]] = {}
        self._pace = 1.0

    def add(self, snapshot: Snapshot) -> None:
        """Take a newer snapshot. What is in it no more is forgotten."""
        before, self._seen = self._seen, {}
        self._pace = snapshot.pace
        for server in snapshot.servers:
            if server.age_seconds is not None:
                for key, tokens in _tokens(server):
                    seen = before.get(key) or deque()
                    self._seen[key] = _with(seen, snapshot.time - server.age_seconds, tokens, falls=len(key) > 1)

    def per_second(self) -> Mapping[Key, float]:
        """Net change over the last 15 s, or over as many as were seen, two at least, by seconds of the node's life."""
        ends = {key: (seen[0], seen[-1]) for key, seen in self._seen.items()}
        return {
            key: (last[1] - first[1]) / (last[0] - first[0]) / self._pace
            for key, (first, last) in ends.items()
            if last[0] - first[0] >= LEAST_SECONDS
        }


def of_pool(server: Server, pool: Pool) -> Key:
    """What the growth of a pool is known by."""
    return server.name, pool.replica, pool.kind


def of_generation(server: Server) -> Key:
    """What the tokens that a server generates are known by."""
    return (server.name,)


def _tokens(server: Server) -> Iterator[tuple[Key, int]]:
    if server.counters.generation_tokens is not None:
        yield of_generation(server), server.counters.generation_tokens
    for pool in server.pools:
        if pool.used_tokens is not None:
            yield of_pool(server, pool), pool.used_tokens


def _with(seen: deque[tuple[float, int]], at: float, tokens: int, *, falls: bool) -> deque[tuple[float, int]]:
    """One reading more, where it is one. A clock that was set back and a counter that fell begin anew."""
    if seen and (at < seen[-1][0] - 1 or (tokens < seen[-1][1] and not falls)):
        seen.clear()
    if not seen or at > seen[-1][0]:
        seen.append((at, tokens))
    while seen[0][0] < at - WINDOW_SECONDS:
        seen.popleft()
    return seen
