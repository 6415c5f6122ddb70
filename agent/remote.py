"""A snapshot from a running agent."""

import httpx
import msgspec

from agent.errors import InputError, RunError
from agent.snapshot import SCHEMA, Snapshot
from collectors.http_text import parse_base_url

SECONDS = 5.0
MAX_BYTES = 64 << 20


def fetch_snapshot(url: str) -> Snapshot:
    """The latest snapshot of the agent at ``url``.

    Raises:
        InputError: the URL can't be used.
        RunError: no agent answers there, or something else does.
    """
    try:
        base = str(parse_base_url(url)).rstrip("/")
    except ValueError as error:
        raise InputError(f"--url: {error}") from error
    try:
        with httpx.stream("GET", f"{base}/api/v1/snapshot", timeout=SECONDS, trust_env=False) as answer:
            if answer.status_code != 200:
                raise RunError(f"{base} answered {answer.status_code}; expected a vramscope agent there")
            body = b""
            for chunk in answer.iter_bytes():
                body += chunk
                if len(body) > MAX_BYTES:
                    raise RunError(f"{base} answered more than 64 MiB; expected a vramscope agent there")
    except httpx.HTTPError as error:
        raise RunError(
            f"no agent answers at {base} ({type(error).__name__}); start one with `vramscope run`"
        ) from error
    try:
        snapshot = msgspec.json.decode(body, type=Snapshot)
    except msgspec.DecodeError as error:
        raise RunError(f"{base} answered something that is no {SCHEMA}; is it another program or version?") from error
    if snapshot.schema != SCHEMA:
        raise RunError(f"{base} answered schema {snapshot.schema}; this program reads {SCHEMA}")
    return snapshot
