"""Snapshots from a running agent."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import click
import httpx
import msgspec

from agent.errors import InputError, RunError
from agent.settings import read_secret
from agent.snapshot import SCHEMA, Snapshot
from collectors.http_text import parse_base_url

LOCAL_AGENT = "http://127.0.0.1:10175"
SECONDS = 5.0
WHOLE_SECONDS = 30.0
"""For an answer that comes in drops."""
MAX_BYTES = 64 << 20
_OPTIONS = (
    click.option("--url", metavar="URL", help="A running agent (default: one on this host, else by itself)."),
    click.option("--user", metavar="NAME", help="Basic auth of --url."),
    click.option("--password-file", type=click.Path(path_type=Path), metavar="FILE", help="The password of --user."),
    click.option(
        "--ca-file", type=click.Path(path_type=Path), metavar="FILE", help="PEM that vouches for --url (https)."
    ),
)


def agent_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Let a command say which agent it asks: ``url``, ``user``, ``password_file``, ``ca_file``."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


class Agent:
    """A running agent, whoever runs it; used as an async context manager."""

    def __init__(
        self, url: str, *, user: str | None = None, password_file: Path | None = None, ca_file: Path | None = None
    ) -> None:
        """Take its address and what it wants to see.

        Raises:
            InputError: one of them can't be used.
        """
        if "@" in (url.partition("://")[2] or url).partition("/")[0]:
            raise InputError("--url carries a user name or password; give --user and --password-file instead")
        try:
            self.base = str(parse_base_url(url)).rstrip("/")
        except ValueError as error:
            raise InputError(f"--url: {error}") from error
        if (user is None) != (password_file is None):
            raise InputError("--user and --password-file belong together; give both")
        auth = None
        if user is not None and password_file is not None:
            auth = httpx.BasicAuth(user, read_secret(password_file, where=f"--password-file {password_file}"))
        self._client = httpx.AsyncClient(auth=auth, verify=_trust(ca_file), timeout=SECONDS, trust_env=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def snapshot(self) -> Snapshot:
        """Its latest.

        Raises:
            RunError: no agent answers there, or something else does.
        """
        try:
            async with asyncio.timeout(WHOLE_SECONDS):
                content = await self._read()
            snapshot = msgspec.json.decode(content, type=Snapshot)
        except httpx.HTTPError as error:
            raise RunError(self._unreached(error)) from error
        except TimeoutError as error:
            raise RunError(f"{self.base} did not answer in full within {WHOLE_SECONDS:g} s") from error
        except (msgspec.DecodeError, RecursionError) as error:
            raise RunError(
                f"{self.base} answered something that is no {SCHEMA}; is it another program or version?"
            ) from error
        if snapshot.schema != SCHEMA:
            raise RunError(f"{self.base} answered schema {snapshot.schema}; this program reads {SCHEMA}")
        return snapshot

    async def _read(self) -> bytes:
        body = bytearray()
        async with self._client.stream("GET", f"{self.base}/api/v1/snapshot") as answer:
            if answer.status_code == 401:
                raise RunError(f"{self.base} answered 401; give the right --user and --password-file")
            if answer.status_code != 200:
                raise RunError(f"{self.base} answered {answer.status_code}; expected a vramscope agent there")
            async for chunk in answer.aiter_bytes():
                body += chunk
                if len(body) > MAX_BYTES:
                    raise RunError(f"{self.base} answered more than 64 MiB; expected a vramscope agent there")
        return bytes(body)

    def _unreached(self, error: httpx.HTTPError) -> str:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return f"the certificate of {self.base} is not vouched for; give the authority's with --ca-file"
        return f"no agent answers at {self.base} ({type(error).__name__}); start one with `vramscope run`"


def _trust(ca_file: Path | None) -> ssl.SSLContext | bool:
    if ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # ssl.SSLError is one
        raise InputError(f"--ca-file {ca_file}: expected certificates as PEM: {error.strerror or error}") from error
