"""The map of engines."""

import asyncio

from collectors.http_text import Endpoint
from collectors.registry import ENGINES, EngineReader
from tests.collectors.replay import FIXTURES


def test_every_engine_has_its_own_name_paths_and_fixtures() -> None:
    """One engine, one entry, one folder of fixtures; paths are absolute and fixed."""
    for name, engine in ENGINES.items():
        assert engine.name == name
        assert engine.paths
        assert all(path.startswith("/") and "?" not in path for path in engine.paths)
        assert (FIXTURES / name).is_dir()


def test_every_engine_opens_an_endpoint_and_reads_titles() -> None:
    """Opening asks nothing yet; a title that is none names no rank."""

    async def scenario() -> None:
        for engine in ENGINES.values():
            endpoint = Endpoint("http://127.0.0.1:1", paths=engine.paths, deadline_seconds=1.0)
            reader: EngineReader = engine.open(endpoint, clock=lambda: 0.0)
            assert callable(reader.read)
            assert engine.rank_of("bash") is None
            await endpoint.aclose()

    asyncio.run(scenario())
