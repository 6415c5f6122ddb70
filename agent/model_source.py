"""The model that a command is about: a path, a name in the local Hugging Face cache, or, when asked, one on a hub."""

import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
from msgspec.structs import replace

from agent.errors import InputError, RunError
from collectors.errors import CollectorError, Unreachable
from collectors.hf_cache import NAME, hub_directory, snapshot_path
from collectors.hub import ENDPOINT, Source, download
from collectors.model_files import os_error, read_model
from collectors.readings import ModelFiles

F = TypeVar("F", bound=Callable[..., Any])


def model_options(command: F) -> F:
    """MODEL, and where it may come from."""
    for option in (
        click.option("--revision", metavar="REV", help="Branch, tag or commit of a model by name (default: main)."),
        click.option("--from-hub", is_flag=True, help="Download config and tensor headers of the name MODEL; no data."),
        click.argument("model"),
    ):
        command = option(command)
    return command


def open_model(
    model: str, *, from_hub: bool = False, revision: str | None = None, environment: Mapping[str, str] = os.environ
) -> ModelFiles:
    """The model's files; a name is looked up in the cache where there is no such path, and on the hub when asked.

    Raises:
        InputError: there is no such model, or it can't be read.
        RunError: the hub does not answer.
    """
    if from_hub:
        return _from_hub(model, revision, environment)
    path = Path(model)
    is_there = _is_there(path)
    if not is_there and (snapshot := _cached(model, revision, environment)) is not None:
        return replace(_read(snapshot), path=model)
    if not is_there and NAME.fullmatch(model) and path.suffix != ".json":
        home = hub_directory(environment) or "none"
        raise InputError(
            f"{model}: no such file, and no model of that name in the Hugging Face cache ({home}); give a directory, a "
            "config.json, or --from-hub to download its config and tensor headers"
        )
    if revision is not None:
        raise InputError("--revision is that of a model by name; a path has none")
    return _read(path)


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise InputError(str(os_error(path, error))) from error


def _read(path: Path) -> ModelFiles:
    try:
        files = read_model(path)
    except CollectorError as error:
        raise InputError(str(error)) from error
    if not files.config:
        raise InputError(f"{files.config_path or path}: no model config, it is empty; download the model's config.json")
    return files


def _cached(name: str, revision: str | None, environment: Mapping[str, str]) -> Path | None:
    home = hub_directory(environment)
    return snapshot_path(name, homes=[Path(home)], revision=revision) if home else None


def _from_hub(name: str, revision: str | None, environment: Mapping[str, str]) -> ModelFiles:
    source = Source(endpoint=environment.get("HF_ENDPOINT") or ENDPOINT, token=environment.get("HF_TOKEN") or None)
    with tempfile.TemporaryDirectory(prefix="vramscope-hub-") as directory:
        folder = Path(directory)
        try:
            download(
                name, folder, source=source, revision=revision or "main", progress=_Progress(name, source.endpoint)
            )
            return replace(read_model(folder), path=name)
        except ValueError as error:
            raise InputError(f"HF_ENDPOINT and HF_TOKEN: {error}") from error
        except Unreachable as error:
            raise RunError(str(error)) from error
        except CollectorError as error:
            raise InputError(
                str(error).replace(f"{folder}/", f"{name} on the hub: ").replace(str(folder), name)
            ) from error
        except OSError as error:
            raise RunError(
                f"{folder}: {error.strerror or type(error).__name__} while writing tensor headers"
            ) from error


class _Progress:
    """One line on stderr, rewritten on a terminal; elsewhere one for each kind of file."""

    def __init__(self, name: str, endpoint: str) -> None:
        self._what = f"{name} from {endpoint}"
        self._rewrites = sys.stderr.isatty()

    def __call__(self, what: str, done: int, count: int) -> None:
        if self._rewrites:
            click.echo(f"\r{self._what}: {what} {done}/{count}  ", err=True, nl=what == "headers" and done == count)
        elif done == count:
            click.echo(f"{self._what}: {what} {done}/{count}", err=True)
