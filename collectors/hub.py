"""The part of a model on a hub that a budget needs: its config, the index and the headers of its safetensors files.

Nothing else is downloaded: a header is read by range, and its file gets its true size without its data. URLs are those
of huggingface/huggingface_hub, ``file_download.py``: ``ENDPOINT/NAME/resolve/REVISION/FILE``.
"""

import json
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import httpx
from msgspec import Struct

from collectors.errors import CollectorError, Refused, Unreachable, Unreadable
from collectors.hf_cache import NAME, REVISION
from collectors.http_text import parse_base_url
from collectors.model_files import INDEX_NAME, MAX_CONFIG_BYTES, MAX_INDEX_BYTES, MAX_SHARDS

ENDPOINT = "https://huggingface.co"
MAX_HEADER_BYTES = 32 * 1024 * 1024
_MAX_FILE_BYTES = 1 << 43
_FIRST_BYTES = 256 * 1024
_AT_ONCE = 8
_MAX_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_FILE = re.compile(r"\w[\w.-]{0,200}\.safetensors", re.A)
_WHOLE_SIZE = re.compile(r"bytes 0-\d{1,18}/(\d{1,18})", re.A)

Progress = Callable[[str, int, int], None]


class Source(Struct, frozen=True, kw_only=True):
    """A hub, and the token that is sent to it and to nobody else. The token is in no text.

    ``deadline_seconds`` is that of one file, redirects included.
    """

    endpoint: str = ENDPOINT
    token: str | None = None
    deadline_seconds: float = 60.0

    def __repr__(self) -> str:
        return f"Source({self.endpoint!r}{', with a token' if self.token else ''})"

    def checked(self) -> httpx.URL:
        """The endpoint's URL.

        Raises:
            ValueError: it is none, or the token can't be sent to it; the message never holds the token.
        """
        base = parse_base_url(self.endpoint)
        if self.token is not None and not re.fullmatch(r"[!-~]+", self.token):
            raise ValueError("the token must be printable ASCII without spaces")
        if self.token is not None and base.scheme != "https" and base.host not in _LOOPBACK:
            raise ValueError(f"a token is not sent over plain http to {base.host}; use https, or unset it")
        return base


def download(
    name: str,
    into: Path,
    *,
    source: Source,
    revision: str = "main",
    progress: Progress = lambda what, done, count: None,
    transport: httpx.BaseTransport | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Write a model's config, index and headers into a directory, where ``model_files.read_model`` reads them.

    ``progress`` is called with what is read, how many of its kind have been, and how many there are.

    Raises:
        ValueError: see ``Source.checked``.
        Unreachable: no answer in time.
        Refused: the hub wants a token, or another one.
        Unreadable: no such model, a redirect that is not followed, or an answer that can't be used.
    """
    base = source.checked()
    if not NAME.fullmatch(name) or not REVISION.fullmatch(revision):
        raise Unreadable("name", f"{name[:100]!r} at {revision[:100]!r}: expected ORGANISATION/NAME and a revision")
    root = base.copy_with(path=base.path.rstrip("/") + f"/{name}/resolve/{revision}/")
    with httpx.Client(timeout=source.deadline_seconds, transport=transport) as client:
        hub = _Hub(root, client, source, clock)
        progress("config.json", 0, 1)
        config = hub.read("config.json", most=MAX_CONFIG_BYTES)
        if config is None:
            raise Unreadable(
                "http_404", f"{base.host} has no {name} with a config.json at {revision!r}: check the name"
            )
        (into / "config.json").write_bytes(config)
        progress("config.json", 1, 1)
        index = hub.read(INDEX_NAME, most=MAX_INDEX_BYTES)
        if index is not None:
            (into / INDEX_NAME).write_bytes(index)
        _write_headers(hub, into, _file_names(index, name), progress)


def _write_headers(hub: "_Hub", into: Path, files: list[str], progress: Progress) -> None:
    """The header of each file, several at once; the first failure ends it."""
    pool = ThreadPoolExecutor(_AT_ONCE)
    progress("headers", 0, len(files))
    try:
        for done, read in enumerate(as_completed([pool.submit(_write_header, hub, into, file) for file in files]), 1):
            read.result()
            progress("headers", done, len(files))
    finally:
        pool.shutdown(cancel_futures=True)


def _write_header(hub: "_Hub", into: Path, file: str) -> None:
    """The start of a file and, as a hole, the rest of it; a file that is not there is left out."""
    found = hub.start(file, _FIRST_BYTES)
    if found is None:
        return
    start, size = found
    length = 8 + int.from_bytes(start[:8], "little")
    if len(start) < length <= min(size, MAX_HEADER_BYTES):
        start, size = hub.start(file, length) or (start, size)
    with (into / file).open("wb") as target:
        target.write(start[:length])
        target.truncate(size)


def _file_names(index: bytes | None, name: str) -> list[str]:
    """The safetensors files that an index names; the one file of a model that has no index."""
    if index is None:
        return ["model.safetensors"]
    try:
        weight_map = json.loads(index)["weight_map"]
        names = sorted(set(weight_map.values()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise Unreadable("malformed", f"{name}: {INDEX_NAME} on the hub is none") from exc
    if len(names) > MAX_SHARDS or not all(_FILE.fullmatch(str(file)) for file in names):
        raise Unreadable("absurd", f"{name}: {INDEX_NAME} on the hub names files that are not a model's")
    return names


class _Hub:
    """Files below one URL, by GET; None is 404."""

    def __init__(self, root: httpx.URL, client: httpx.Client, source: Source, clock: Callable[[], float]) -> None:
        self._root = root
        self._client = client
        self._source = source
        self._clock = clock

    def read(self, file: str, *, most: int) -> bytes | None:
        """A whole file.

        Raises:
            Unreadable: larger than ``most`` bytes, or as in ``download``.
        """
        found = self._get(file, most + 1, {})
        if found is not None and len(found[0]) > most:
            raise Unreadable("too_large", f"{file} on {self._root.host}: expected at most {most:,} bytes, got more")
        return found[0] if found else None

    def start(self, file: str, count: int) -> tuple[bytes, int] | None:
        """The first bytes of a file, fewer if it is smaller, and the size of all of it."""
        found = self._get(file, count, {"Range": f"bytes=0-{count - 1}"})
        if found is None:
            return None
        start, size = found
        if size is None or not len(start) <= size <= _MAX_FILE_BYTES:
            raise Unreadable("size", f"{self._root.host} does not tell the size of {file}")
        return start, size

    def _get(self, file: str, count: int, headers: dict[str, str]) -> tuple[bytes, int | None] | None:
        until = self._clock() + self._source.deadline_seconds
        url = self._root.join(file)
        try:
            for _ in range(_MAX_REDIRECTS + 1):
                with self._client.stream("GET", url, headers=headers | self._common(url)) as answer:
                    if answer.status_code not in _REDIRECTS:
                        return self._body(file, answer, count, until)
                    url = self._followed(url, answer.headers.get("location", ""))
        except httpx.TimeoutException as exc:
            raise self._late(file) from exc
        except httpx.InvalidURL as exc:
            raise Unreadable("redirect", f"{url.host} redirects {file} to what is no address; try again later") from exc
        except httpx.HTTPError as exc:
            raise Unreachable(
                "no_answer", f"no usable answer from {url.host} for {file} ({type(exc).__name__})"
            ) from exc
        raise Unreadable("redirect", f"{self._root.host} redirects {file} more than {_MAX_REDIRECTS} times")

    def _common(self, url: httpx.URL) -> dict[str, str]:
        token = self._source.token if _origin(url) == _origin(self._root) else None
        return {"User-Agent": "vramscope", "Accept-Encoding": "identity"} | (
            {"Authorization": f"Bearer {token}"} if token else {}
        )

    def _followed(self, url: httpx.URL, location: str) -> httpx.URL:
        """Where a redirect leads: to the hub itself, or to anybody over TLS."""
        target = url.join(location)
        try:
            target.host.encode("idna")  # as the look-up of its address does
        except UnicodeError as exc:
            raise httpx.InvalidURL(str(exc)) from exc
        if target.scheme != "https" and _origin(target) != _origin(self._root):
            raise Unreadable("redirect", f"{url.host} redirects to {target.scheme}://{target.host}, which is not https")
        return target

    def _body(self, file: str, answer: httpx.Response, count: int, until: float) -> tuple[bytes, int | None] | None:
        if answer.status_code == 404:
            return None
        if answer.status_code not in (200, 206):
            raise _refusal(answer.url.host, file, answer.status_code, self._source.token is not None)
        body = bytearray()
        for chunk in answer.iter_raw(1 << 16):
            body += chunk
            if self._clock() > until:
                raise self._late(file)
            if len(body) >= count:
                break
        return bytes(body[:count]), self._size(answer, len(body), whole=len(body) < count)

    def _size(self, answer: httpx.Response, read: int, *, whole: bool) -> int | None:
        """The size of the file, where the hub tells it or all of it was read."""
        if part := _WHOLE_SIZE.fullmatch(answer.headers.get("content-range", "")):
            return int(part[1])
        length = answer.headers.get("content-length", "")
        told = answer.status_code == 200 and re.fullmatch(r"\d{1,18}", length, re.A)
        return int(length) if told else read if whole else None

    def _late(self, file: str) -> Unreachable:
        limit = self._source.deadline_seconds
        return Unreachable("timeout", f"{self._root.host} did not send {file} within {limit:g} s; try again")


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _refusal(host: str, file: str, status: int, with_token: bool) -> CollectorError:
    if status in (401, 403):
        advice = (
            "check HF_TOKEN, and that its owner accepted the model's terms"
            if with_token
            else "check the name; if the model is gated or private, set HF_TOKEN"
        )
        return Refused(f"http_{status}", f"{host} answered {status} for {file}: {advice}")
    advice = {429: "too many requests: wait, or set HF_TOKEN"}.get(status, "expected 200: try again later")
    return Unreadable(f"http_{status}", f"{host} answered {status} for {file}; {advice}")
