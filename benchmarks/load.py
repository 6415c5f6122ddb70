"""Scrapers: one that asks again and again, and a crowd of which each asks once a second; on kept connections."""

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from msgspec import Struct

TIMEOUT_SECONDS = 10.0
PLAIN: Mapping[str, str] = {}
PROMETHEUS: Mapping[str, str] = {
    "Accept": "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    "Accept-Encoding": "gzip",
}


class Load(Struct, frozen=True, kw_only=True):
    """Seconds of the scrapes that were answered, the size of the last answer, and how many never were."""

    seconds: list[float]
    answer_bytes: int
    timeouts: int


class Scraper:
    """One client; connects anew where the server closes after an answer."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        lines = [
            f"GET /metrics HTTP/1.1\r\nHost: {parts.netloc}",
            *(f"{name}: {text}" for name, text in headers.items()),
        ]
        self._request = ("\r\n".join(lines) + "\r\n\r\n").encode()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.seconds: list[float] = []
        self.answer_bytes = 0
        self.timeouts = 0

    async def scrape(self) -> None:
        started = time.perf_counter()
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                self.answer_bytes = len(await self._answer())
        except (TimeoutError, OSError, EOFError):
            self.timeouts += 1
            self.close()
            return
        self.seconds.append(time.perf_counter() - started)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _answer(self) -> bytes:
        reader, writer = self._streams = self._streams or await asyncio.open_connection(self._host, self._port)
        writer.write(self._request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if not head.split(b"\r\n")[0].endswith(b"200 ok"):
            raise OSError(head.decode("latin-1"))
        if b"content-length:" in head:
            body = await reader.readexactly(int(head.partition(b"content-length:")[2].split()[0]))
        else:
            body = await reader.read(-1)
        if head.startswith(b"http/1.0") or b"connection: close" in head:
            self.close()
        return body


def in_a_row(url: str, headers: Mapping[str, str], count: int) -> Load:
    """One scraper, its next scrape as soon as the last is answered."""

    async def run() -> Load:
        scraper = Scraper(url, headers)
        await scraper.scrape()
        scraper.seconds.clear()
        for _ in range(count):
            await scraper.scrape()
        scraper.close()
        return _sum([scraper])

    return asyncio.run(run())


def each_second(urls: Sequence[str], headers: Mapping[str, str], *, clients: int, rounds: int) -> Load:
    """So many clients of each URL; each scrapes once a second, at a moment of its own as Prometheus spreads them."""

    async def client(scraper: Scraper, first: float) -> None:
        for number in range(rounds):
            await asyncio.sleep(first + number - time.monotonic())
            await scraper.scrape()
        scraper.close()

    async def run() -> Load:
        chance = random.Random(1)
        begin = time.monotonic() + 0.5
        scrapers = [Scraper(url, headers) for url in urls for _ in range(clients)]
        await asyncio.gather(*(client(scraper, begin + chance.random()) for scraper in scrapers))
        return _sum(scrapers)

    return asyncio.run(run())


def watched(url: str, *, pages: int, rounds: int) -> int:
    """So many pages kept live as a browser does, beside a scrape a second; the bytes that all of them were sent."""
    parts = urlsplit(url)
    ask = f"GET /api/v1/events HTTP/1.1\r\nHost: {parts.netloc}\r\nAccept-Encoding: gzip\r\n\r\n".encode()

    async def page() -> int:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(ask)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head.decode("latin-1")
        size = 0
        try:
            while data := await reader.read(65536):
                size += len(data)
        except asyncio.CancelledError:
            writer.close()
        return size

    async def run() -> int:
        scraper = Scraper(url, PROMETHEUS)
        open_ = [asyncio.create_task(page()) for _ in range(pages)]
        begin = time.monotonic()
        for number in range(rounds):
            await asyncio.sleep(begin + number - time.monotonic())
            await scraper.scrape()
        await asyncio.sleep(begin + rounds - time.monotonic())
        scraper.close()
        for task in open_:
            assert not task.done(), "a page was not kept live"
            task.cancel()
        return sum(await asyncio.gather(*open_))

    return asyncio.run(run())


def _sum(scrapers: list[Scraper]) -> Load:
    return Load(
        seconds=[each for scraper in scrapers for each in scraper.seconds],
        answer_bytes=max(scraper.answer_bytes for scraper in scrapers),
        timeouts=sum(scraper.timeouts for scraper in scrapers),
    )
