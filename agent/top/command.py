"""``vramscope top``: GPUs and servers as they are, until its person ends it."""

import asyncio
import importlib.util
import os
import shlex
import sys
from pathlib import Path

import click

from agent.errors import InputError, RunError
from agent.remote import LOCAL_AGENT, Agent, agent_options
from agent.settings import Settings, check_keys, load_settings
from agent.top.follow import Attached, ByItself, Source
from agent.top.terminal import can_be_drawn_on, colour_system

MISSING = (
    "`vramscope top` draws with textual, which is not installed: "
    f"{shlex.quote(sys.executable)} -m pip install 'vramscope[top]'"
)


@click.command("top")
@agent_options
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Settings by which it reads by itself.")
def top_command(
    url: str | None, user: str | None, password_file: Path | None, ca_file: Path | None, config: Path | None
) -> None:
    """Show GPUs and servers in this terminal until q: bars, pools, growth, time left, risk. h is help.

    Example: vramscope top --url http://gpu-node:10175
    """
    if url is not None and config is not None:
        raise InputError("--url and --config exclude each other; give one")
    if url is None and (user or password_file or ca_file):
        raise InputError("--user, --password-file and --ca-file are of the agent at --url; give that too")
    if importlib.util.find_spec("textual") is None:
        raise RunError(MISSING)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InputError("standard input and output must be a terminal; for scripts there is `vramscope snapshot`")
    if not can_be_drawn_on(os.environ):
        term = os.environ.get("TERM", "")
        raise InputError(f"TERM={term} is no terminal that can be drawn on; `vramscope snapshot` prints lines")
    colours = _prepared()
    source, name = _source(url, config, user=user, password_file=password_file, ca_file=ca_file)
    from agent.top.app import Top  # only here is textual needed

    app = Top(source, name, colours=colours)
    app.run(mouse=False)
    if app.return_code:
        raise RunError("the terminal could not go on; what is above says why")


def _source(
    url: str | None, config: Path | None, *, user: str | None, password_file: Path | None, ca_file: Path | None
) -> tuple[Source, str]:
    """Where figures come from, and how that is said."""
    if config is not None:
        return ByItself(check_keys(load_settings(config), where=str(config))), f"by itself, {config}"
    agent = Agent(url or LOCAL_AGENT, user=user, password_file=password_file, ca_file=ca_file)
    if url is not None or asyncio.run(_answers(LOCAL_AGENT)):
        return Attached(agent), agent.base
    return ByItself(Settings()), "by itself: no agent on this host"


async def _answers(url: str) -> bool:
    try:
        async with Agent(url) as agent:
            await agent.snapshot()
    except RunError:
        return False
    return True


def _prepared() -> bool:
    """Tell textual what the terminal has, before it is loaded; whether there are colours."""
    system = colour_system(os.environ)
    os.environ.setdefault("TEXTUAL_DISABLE_KITTY_KEY", "1")  # plain keys do, and a console prints what it does not know
    if system is None:
        os.environ["NO_COLOR"] = "1"
    else:
        os.environ.pop("NO_COLOR", None)  # empty: it counts as not set
        os.environ["TEXTUAL_COLOR_SYSTEM"] = system
    return system is not None
