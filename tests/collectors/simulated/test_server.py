"""The servers on real sockets: they answer while they serve and are refused while they load or are dead."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx
import pytest

from collectors.http_text import Endpoint
from collectors.registry import ENGINES
from collectors.simulated.scenario import load_scenario
from collectors.simulated.server import HOST, SimulatedServers
from collectors.simulated.simulation import Simulation

SERVER = "reasoner"


@asynccontextmanager
async def playing(seconds: float) -> AsyncIterator[tuple[Simulation, SimulatedServers, str]]:
    """The default scenario on loopback after ``seconds``, and the URL of its server."""
    servers = SimulatedServers({SERVER: 0})
    simulation = Simulation(load_scenario("reasoning"), ports=servers.ports)
    try:
        simulation.advance(seconds)
        await servers.follow(simulation)
        yield simulation, servers, f"http://{HOST}:{servers.ports[SERVER]}"
    finally:
        await servers.stop()


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(20):
            await test()

    asyncio.run(limited())


async def rest(reader: asyncio.StreamReader) -> bytes:
    """What the server sends until it closes, politely or not."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


def test_paths_of_a_serving_server() -> None:
    """Metrics as text, version and models as JSON, health empty, anything else not found; no other method."""

    async def test() -> None:
        async with playing(120) as (simulation, _, url), httpx.AsyncClient(base_url=url) as client:
            metrics = await client.get("/metrics")
            version = await client.get("/version")
            models = await client.get("/v1/models?x=1")
            health = await client.get("/health")

            assert metrics.text == simulation.metrics_text(SERVER)
            assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
            assert version.json() == {"version": "0.32.0"}
            assert models.json()["data"][0]["max_model_len"] == 114688
            assert (health.status_code, health.text) == (200, "")
            assert (await client.get("/sleep")).status_code == 404
            assert (await client.post("/metrics")).status_code == 405

    run(test)


def test_the_real_adapter_reads_it() -> None:
    """Version, length, pool and counters of a simulated server come through the reader for real ones."""

    async def test() -> None:
        async with playing(300) as (simulation, _, url):
            endpoint = Endpoint(url, paths=ENGINES["vllm"].paths, deadline_seconds=5)
            try:
                reading = await ENGINES["vllm"].open(endpoint, clock=lambda: 1.0).read()
            finally:
                await endpoint.aclose()

            engine = simulation.life(SERVER).engine
            assert engine is not None
            (pool,), (replica,) = reading.pools, reading.replicas
            assert (reading.state, reading.version, reading.model) == ("serving", "0.32.0", "reasoner-8b")
            assert (pool.blocks, pool.block_size_tokens, pool.capacity_tokens) == (7702, 16, 123232)
            assert pool.used_blocks == engine.used_blocks
            assert replica.running_requests == len(engine.running)
            assert replica.generation_tokens == engine.counters.generation_tokens
            assert reading.arguments["max_model_len"] == 114688
            assert reading.notes == ()

    run(test)


def test_refused_while_loading_and_dead_and_back_on_the_same_port() -> None:
    """The port is the server's own from start to stop, whether or not anybody listens on it."""

    async def test() -> None:
        async with playing(10) as (simulation, servers, url), httpx.AsyncClient() as client:
            for at, serves in ((70, False), (90, True), (1201, False), (1280, False), (1310, True)):
                simulation.advance(at - simulation.time)
                await servers.follow(simulation)
                if serves:
                    assert (await client.get(f"{url}/health")).status_code == 200
                else:
                    with pytest.raises(httpx.ConnectError):
                        await client.get(f"{url}/health")

    run(test)


def test_a_crash_between_two_looks_ends_open_connections() -> None:
    """A client that waits on the old process does not get an answer from the new one."""

    async def test() -> None:
        async with playing(1199) as (simulation, servers, url), httpx.AsyncClient() as client:
            reader, writer = await asyncio.open_connection(HOST, servers.ports[SERVER])
            await client.get(f"{url}/health")  # by now the first connection is accepted, too

            simulation.advance(120)
            await servers.follow(simulation)

            assert await rest(reader) == b""
            assert (await client.get(f"{url}/health")).status_code == 200
            writer.close()

    run(test)


@pytest.mark.parametrize("sent", [b"\x16\x03\x01\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"a" * 40000, b""])
def test_what_is_no_request_ends_without_harm(sent: bytes) -> None:
    """Garbage, too much, or nothing: that connection ends, the next one is answered."""

    async def test() -> None:
        async with playing(120) as (_, servers, url), httpx.AsyncClient() as client:
            reader, writer = await asyncio.open_connection(HOST, servers.ports[SERVER])
            writer.write(sent)
            writer.write_eof()
            answer = await rest(reader)

            assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")
            assert (await client.get(f"{url}/health")).status_code == 200
            writer.close()

    run(test)


def test_a_wanted_port_that_is_in_use_is_an_error() -> None:
    """A demo beside a real server on that port must not share it; the ports already taken are given back."""
    with socket.create_server((HOST, 0)) as taken, socket.socket() as other:
        other.bind((HOST, 0))
        free = int(other.getsockname()[1])
        other.close()
        with pytest.raises(OSError, match="in use"):
            SimulatedServers({"a": free, "b": int(taken.getsockname()[1])})

        socket.create_server((HOST, free)).close()
