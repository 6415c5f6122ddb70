"""The command line: thin commands over settings, wiring and views. Every error is one sentence on stderr."""

import asyncio
import logging
import math
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from agent import __version__, log, streams
from agent.app import collect_once, replayed_board, serve, serve_replay
from agent.backtest.command import backtest_command
from agent.budget_command import budget_command
from agent.check import check_report
from agent.dashboards_command import dashboards_command
from agent.demo import run_demo
from agent.errors import InputError, RunError
from agent.plan_command import plan_command
from agent.postmortem.command import is_same, look_into, write_out
from agent.postmortem.html import as_html
from agent.postmortem.text import as_text
from agent.printable import encodable, printable
from agent.recorder.command import keep_recording
from agent.recorder.player import Player
from agent.remote import LOCAL_AGENT, Agent, agent_options
from agent.rules_command import rules_command
from agent.settings import (
    ServerSettings,
    Settings,
    as_yaml,
    check_keys,
    check_model,
    check_server,
    load_settings,
    parse_listen,
    state_directory,
)
from agent.snapshot import Snapshot
from agent.terminal import print_snapshot
from agent.top.command import top_command
from collectors.registry import ENGINES

STOPPING = (signal.SIGINT, signal.SIGTERM)
CONFIG = click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Settings file (YAML).")
PER_PROCESS = click.option("--per-process", is_flag=True, help="A series for each process on a GPU, with its name.")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout and nothing else.")


class Finite(click.FloatRange):
    """A range of numbers that nan is not in."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="vramscope")
def cli() -> None:
    """Where every byte of GPU memory is beside an LLM inference server."""


@cli.command("run")
@CONFIG
@click.option("--listen", metavar="HOST:PORT", help="Address to serve on (default: settings, else :10175).")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--print-settings", is_flag=True, help="Print the settings in force, defaults included, and end.")
@PER_PROCESS
def run_command(
    config: Path | None, listen: str | None, log_format: log.Format, print_settings: bool, per_process: bool
) -> None:
    """Run the agent: /metrics, the page at /, /api/v1/snapshot. SIGHUP reloads the settings.

    Example: vramscope run --config vramscope.yml
    """
    log.configure(log_format)

    def load() -> Settings:
        return _with_listen(_settings(config) if print_settings else _with_keys(config), listen)

    if print_settings:
        click.echo(as_yaml(load()), nl=False)
        return
    settings = load()
    _hold_signals_back()
    asyncio.run(
        _begun(
            partial(
                serve,
                settings,
                announce=_announce,
                reload_settings=load,
                state_directory=_state_directory(settings),
                per_process=per_process,
            )
        )
    )


@cli.command("snapshot")
@agent_options
@CONFIG
@click.option("--server-url", metavar="URL", help="Collect once from this inference server, without an agent.")
@click.option("--engine", type=click.Choice(list(ENGINES)), help="Engine of --server-url; found when left out.")
@click.option("--model", metavar="PATH", help="Model directory or config.json of --server-url.")
@AS_JSON
@click.option("--explain", is_flag=True, help="Say how each number is known.")
def snapshot_command(
    url: str | None,
    user: str | None,
    password_file: Path | None,
    ca_file: Path | None,
    config: Path | None,
    server_url: str | None,
    engine: str | None,
    model: str | None,
    as_json: bool,
    explain: bool,
) -> None:
    """Show where every byte is, now.

    Example: vramscope snapshot --server-url http://127.0.0.1:8000 --model /models/llama
    """
    if sum(source is not None for source in (url, config, server_url)) > 1:
        raise InputError("--url, --config and --server-url exclude each other; give one")
    if server_url is None and (engine or model):
        raise InputError("--engine and --model describe --server-url; give that too")
    if url is None and (user or password_file or ca_file):
        raise InputError("--user, --password-file and --ca-file are of the agent at --url; give that too")
    if server_url is not None:
        server = ServerSettings(url=server_url, engine=engine, model=model)
        check_server(server, "--server-url", options=True)
        if model is not None:
            check_model(model, where="--model")
        snapshot = asyncio.run(_once(Settings(servers=(server,)), quiet=as_json, alone=True))
    elif config is not None:
        snapshot = asyncio.run(_once(_with_keys(config), quiet=as_json))
    elif url is not None:
        agent = Agent(url, user=user, password_file=password_file, ca_file=ca_file)
        snapshot = asyncio.run(_latest(agent))
    else:
        try:
            snapshot = asyncio.run(_latest(Agent(LOCAL_AGENT)))
        except RunError:
            snapshot = asyncio.run(_once(Settings(), quiet=as_json))
    if as_json:
        click.echo(msgspec.json.encode(snapshot))
    else:
        print_snapshot(snapshot, explain=explain)
    if server_url is not None:
        _check_answer(snapshot)
    if not any(one.success for one in snapshot.collectors if one.name in ("nvml", "endpoint")):
        raise RunError("neither a device nor a server could be read; `vramscope check` says why")


@cli.command("check")
@CONFIG
@AS_JSON
def check_command(config: Path | None, as_json: bool) -> None:
    """Check settings, web config, driver, servers and model files; say what is missing and what to do.

    Example: vramscope check --config vramscope.yml
    """
    settings = _with_keys(config)
    report = check_report(asyncio.run(_once(settings, quiet=as_json)), settings)
    if as_json:
        click.echo(msgspec.json.encode(report))
    else:
        for line in report.lines:
            click.echo(printable(f"{'ok  ' if line.ok else 'FAIL'}  {line.what}: {line.finding}"))
    if not report.ok:
        sys.exit(1)


@cli.command("demo")
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the simulated load.")
@click.option("--speed", type=Finite(0.1, 100), default=10.0, show_default=True, help="Simulated seconds a second.")
@click.option("--duration", type=Finite(min=0), help="End after this many simulated seconds.")
@click.option("--listen", metavar="HOST:PORT", default="127.0.0.1:10175", show_default=True)
@click.option("--scenario", default="reasoning", show_default=True, help="Name of a scenario.")
@click.option("--state-directory", type=click.Path(path_type=Path), metavar="DIR", help="Record it there.")
@PER_PROCESS
def demo_command(
    seed: int,
    speed: float,
    duration: float | None,
    listen: str,
    scenario: str,
    state_directory: Path | None,
    per_process: bool,
) -> None:
    """Run the agent beside a simulated GPU node with one long reasoning chain.

    Example: vramscope demo --speed 20
    """
    log.configure()
    parse_listen(listen, where="--listen")
    _hold_signals_back()
    with tempfile.TemporaryDirectory(prefix="vramscope-demo-") as directory:
        demo = partial(
            run_demo,
            scenario,
            seed=seed,
            speed=speed,
            duration_seconds=duration,
            listen=listen,
            directory=Path(directory),
            announce=_announce,
            state_directory=state_directory,
            per_process=per_process,
        )
        asyncio.run(_begun(demo))


@cli.command("record")
@CONFIG
@click.option("--state-directory", type=click.Path(path_type=Path), metavar="DIR", help="Of the agent, if not default.")
@AS_JSON
def record_command(config: Path | None, state_directory: Path | None, as_json: bool) -> None:
    """Keep the last minutes of readings that the agent on this host has recorded; print the file.

    Example: vramscope record --state-directory /var/lib/vramscope
    """
    settings = _settings(config)
    path = keep_recording(state_directory or _state_directory(settings), settings.recorder)
    document = {"schema": "vramscope.record/1", "file": encodable(str(path))}
    click.echo(msgspec.json.encode(document) if as_json else str(path))


@cli.command("replay")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--speed", type=Finite(0.1, 1000), default=1.0, show_default=True, help="Recorded seconds a second.")
@click.option("--listen", metavar="HOST:PORT", default="127.0.0.1:10175", show_default=True)
def replay_command(file: Path, speed: float, listen: str) -> None:
    """Run a recording through the agent: page and /metrics are as they were when it was made, and say so.

    Example: vramscope replay 20261130T023007Z-oom-chat.vramscope --speed 20
    """
    parse_listen(listen, where="--listen")
    player = Player(file, replayed_board, speed=speed)
    player.open()
    _hold_signals_back()
    asyncio.run(_begun(partial(serve_replay, player, listen=listen, announce=_announce)))
    if player.file.problem is not None:
        raise InputError(player.file.problem)


@cli.command("postmortem")
@click.argument("file", type=click.Path(path_type=Path))
@AS_JSON
@click.option("--html", type=click.Path(path_type=Path), metavar="OUT", help="Write one HTML file with charts instead.")
def postmortem_command(file: Path, as_json: bool, html: Path | None) -> None:
    """Say what a recording shows: what moved before the incident, events, and which alarm would have come when.

    Example: vramscope postmortem 20261130T023007Z-oom-chat.vramscope --html oom.html
    """
    if as_json and html is not None:
        raise InputError("--json and --html exclude each other; give one")
    if html is not None and is_same(html, file):
        raise InputError(f"--html {html}: that is the recording itself; give the page another name")
    report = look_into(Player(file, replayed_board))
    if html is not None:
        write_out(html, as_html(report))
        click.echo(printable(f"wrote {html}: {report.summary}"), err=True)
    else:
        click.echo(msgspec.json.encode(report) if as_json else as_text(report), nl=as_json)


cli.add_command(backtest_command)
cli.add_command(budget_command)
cli.add_command(dashboards_command)
cli.add_command(plan_command)
cli.add_command(rules_command)
cli.add_command(top_command)


def run(arguments: Sequence[str]) -> int:
    """Run one command line; the exit code."""
    logging.getLogger("vramscope").addHandler(logging.NullHandler())  # only the daemon's commands log
    streams.prepare()
    try:
        result = cli.main(list(arguments), prog_name="vramscope", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help(), err=True)
        return error.exit_code
    except click.ClickException as error:
        hint = f"; see `{_command(arguments)} --help`" if isinstance(error, click.UsageError) else ""
        click.echo(f"vramscope: {error.format_message().rstrip('.')}{hint}", err=True)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except OSError as error:
        if error.errno not in streams.UNWRITABLE:
            raise
        click.echo(f"vramscope: can't write to standard output: {error.strerror}", err=True)
        streams.give_up_stdout()
        return 1
    return result if isinstance(result, int) else 0


def _command(arguments: Sequence[str]) -> str:
    """The command that was used wrongly."""
    return f"vramscope {arguments[0]}" if arguments and arguments[0] in cli.commands else "vramscope"


def _settings(config: Path | None) -> Settings:
    return load_settings(config) if config else Settings()


def _with_keys(config: Path | None) -> Settings:
    """The settings of a command that asks the servers."""
    return check_keys(load_settings(config), where=str(config)) if config else Settings()


def _state_directory(settings: Settings) -> Path:
    return state_directory(settings, os.environ, is_root=os.geteuid() == 0)


def _with_listen(settings: Settings, listen: str | None) -> Settings:
    if listen is None:
        return settings
    parse_listen(listen, where="--listen")
    return msgspec.structs.replace(settings, listen=listen)


async def _once(settings: Settings, *, quiet: bool, alone: bool = False) -> Snapshot:
    if not quiet:
        click.echo(f"collecting once from the driver and {'the' if alone else 'every'} server ...", err=True)
    return await collect_once(settings, state_directory=_state_directory(settings), alone=alone)


def _check_answer(snapshot: Snapshot) -> None:
    """The one server that was asked has answered.

    Raises:
        RunError: it has not.
    """
    endpoint = next((one for one in snapshot.collectors if one.name == "endpoint"), None)
    if endpoint is None or not endpoint.success:
        raise RunError(f"--server-url: {endpoint.error if endpoint else 'it was not asked in time'}")


async def _latest(agent: Agent) -> Snapshot:
    async with agent:
        return await agent.snapshot()


def _hold_signals_back() -> None:
    """Until the event loop runs: one in the midst of its making, or of a folder's, would leave half of it behind."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)


async def _begun(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    await main()


def _announce(url: str) -> None:
    """Say where it listens, to whoever is interested: a service needs no standard output."""
    try:
        click.echo(f"listening on {url}")
    except OSError:
        streams.give_up_stdout()
