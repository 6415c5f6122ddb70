"""Where the snapshots of the terminal come from: a running agent, or this process itself."""

import asyncio
from typing import Protocol

from agent.app import watching
from agent.errors import RunError
from agent.remote import Agent
from agent.settings import Settings
from agent.top.seen import Seen


class Source(Protocol):
    """Feeds what is seen, until cancelled."""

    async def run(self, seen: Seen) -> None: ...


class Attached:
    """Asks a running agent at the rhythm of its figures; one that does not answer is asked again and again."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def run(self, seen: Seen) -> None:
        """Ask until cancelled."""
        async with self._agent:
            while True:
                try:
                    seen.took(await self._agent.snapshot())
                except RunError as error:
                    seen.lost(error.message)
                await asyncio.sleep(seen.pause_seconds)


class ByItself:
    """Reads driver and servers as an agent does, and keeps nothing."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def run(self, seen: Seen) -> None:
        """Read until cancelled."""
        async with watching(self._settings) as board:
            while True:
                await asyncio.sleep(min(1.0, self._settings.intervals.memory))
                seen.took(board.published.snapshot)
