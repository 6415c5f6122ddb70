"""KV pools out of what the flight recorder kept: played through the agent, with what its forecasts are told.

Memory that ran out counts as a shortage of each pool of that server, beside preemptions, retractions and refusals.
"""

from collections import Counter
from collections.abc import Iterator

from msgspec.structs import replace

from agent.backtest.recordings import Recording
from agent.memory.signals import PoolFacts, PoolSignal
from agent.pool_signals import Key
from agent.recorder.incidents import REASONS, incidents
from agent.recorder.player import Player
from agent.snapshot import Snapshot
from agent.watch import ServerWatch


def read_bundle(player: Player) -> Iterator[Recording]:
    """Every pool in a recording; one of which times go back (the host was started anew) is two. None: no pool in it.

    Raises:
        RecordingError: it can't be read, or is no recording; ``player.file.problem`` says of one that is damaged.
    """
    pools: dict[tuple[str, Key], _Pool] = {}
    failed: Counter[str] = Counter()
    before: Snapshot | None = None
    for published in player.ticks():
        after = published.snapshot
        ran_out = Counter[str]()
        for one in incidents(before, after) if before is not None else ():
            if REASONS.get(one.kind) == "oom":
                ran_out[one.subject] += one.count
        before = after
        failed += ran_out
        for watch in player.board.watches:
            name = watch.facts.name
            for key, signal in watch.signals():
                pools.setdefault((name, key), _Pool()).add(watch, key, signal, failed[name])
        for (name, _), pool in pools.items():
            if ran_out[name]:
                pool.ran_out(published.at, failed[name])
    for (name, (replica, kind)), pool in pools.items():
        for signals in pool.runs:
            where = f"{player.file.name} {name} {replica} {kind}"
            yield Recording(name=f"{pool.facts.engine}:{where}", facts=pool.facts, signals=signals)


class _Pool:
    """One pool as it is played. ``facts``: as they were known at last."""

    def __init__(self) -> None:
        self.runs: list[list[PoolSignal]] = []
        self._counted = 0

    def add(self, watch: ServerWatch, key: Key, signal: PoolSignal, failed: int) -> None:
        """Take what the newest reading tells, where it is news; ``failed``: how often memory ran out so far."""
        last = self.runs[-1][-1] if self.runs else None
        self.facts: PoolFacts = watch.pool_facts(key[1])
        self._counted = signal.shortages or 0
        if failed:
            signal = replace(signal, shortages=self._counted + failed)
        if last is not None and signal.at > last.at:
            self.runs[-1].append(signal)
        elif last is None or signal.at < self.runs[-1][0].at:
            self.runs.append([signal])

    def ran_out(self, at: float, failed: int) -> None:
        """Memory ran out, whether or not the server answers any more."""
        last = self.runs[-1][-1]
        if at > last.at:
            self.runs[-1].append(replace(last, at=at, shortages=self._counted + failed))
