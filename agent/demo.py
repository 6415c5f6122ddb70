"""``vramscope demo``: the agent, unchanged, beside a simulated node."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from agent.app import serve
from agent.board import SETTLE_SECONDS
from agent.errors import InputError
from agent.settings import Intervals, Settings
from collectors.simulated.node import SimulatedNode
from collectors.simulated.scenario import load_scenario

log = logging.getLogger("vramscope")


async def run_demo(
    scenario: str,
    *,
    seed: int,
    speed: float,
    duration_seconds: float | None,
    listen: str,
    directory: Path,
    announce: Callable[[str], None],
    state_directory: Path | None = None,
    per_process: bool = False,
) -> None:
    """Run until a signal or until ``duration_seconds`` of simulated time have passed.

    Raises:
        InputError: the scenario does not exist or can't be used.
        RunError: the address can't be listened on.
    """
    try:
        story = load_scenario(scenario)
    except ValueError as error:
        raise InputError(str(error)) from error
    node = SimulatedNode(story, seed=seed, speed=speed, directory=directory)
    await node.start()

    def say(url: str) -> None:
        announce(url)
        log.info("a simulated node, %g times as fast as a real one: nothing here is measured", speed)

    settings = Settings(
        listen=listen, intervals=Intervals(processes=1.0, settle=min(3600.0, max(0.1, SETTLE_SECONDS / speed)))
    )
    ended = asyncio.Event()
    story_task = asyncio.create_task(node.run(duration_seconds))
    story_task.add_done_callback(lambda _: ended.set())
    try:
        await serve(
            settings,
            announce=say,
            simulated_state=node.state_path,
            state_directory=state_directory,
            pace=speed,
            per_process=per_process,
            until=ended,
        )
    finally:
        story_task.cancel()
        await node.stop()
