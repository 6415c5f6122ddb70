"""An agent whose servers are started anew all the time, so that its state is written all the time; to be killed.

``python -m tests.soak.restless DIRECTORY`` prints the number of the state that it found, then goes on from there. In
state N every server's run is number N and the one before number N - 1.
"""

import asyncio
import itertools
import logging
import sys
from collections.abc import Mapping
from pathlib import Path

from agent.app import Agent
from agent.memory.upgrades import Record, Run, Share
from agent.settings import Intervals, Settings

SERVERS = 40
PAUSE_SECONDS = 0.001


def number_of(records: Mapping[str, Record]) -> int:
    """The number of a state, after checking that it is whole; 0 of an empty one."""
    numbers = {_number(record) for record in records.values()}
    assert len(records) in (0, SERVERS), f"{len(records)} servers"
    assert len(numbers) <= 1, f"states mixed up: {numbers}"
    return next(iter(numbers), 0)


def _number(record: Record) -> int:
    current, before = record.current, record.before
    number = int(current.version or 0)
    assert current == run(number)
    assert before == (run(number - 1) if number > 1 else None)
    return number


def run(number: int) -> Run:
    share = Share(uuid="GPU-a", components={"weights": number})
    return Run(engine="vllm", version=str(number), settled_at=float(number), devices=(share,))


async def main(directory: Path) -> None:
    logging.getLogger("vramscope").addHandler(logging.NullHandler())
    agent = Agent(Settings(discovery=False, intervals=Intervals(settle=0.1)), state_directory=directory)
    async with agent.polling():
        while not agent.board.has_heard_of(frozenset({("state", "")})):  # noqa: ASYNC110 - a few polls
            await asyncio.sleep(PAUSE_SECONDS)
        found = number_of(agent.board.upgrades.records)
        print(found, flush=True)
        for number in itertools.count(found + 1):
            for server in range(SERVERS):
                agent.board.upgrades.settled(f"server {server}", run(number))
            await asyncio.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
