"""What is costly to make and shared by the tests of the dashboards."""

import time
from collections.abc import Iterator

import pytest
from msgspec import Struct

from tests.dashboards.backfill import a_day
from tests.dashboards.day import SCRAPE_SECONDS
from tests.prometheus import Prometheus
from tests.real import require


class HeldDay(Struct, frozen=True, kw_only=True):
    """A Prometheus that holds the demo day, and when that day ended, in seconds since the epoch."""

    prometheus: Prometheus
    end: int


@pytest.fixture(scope="session")
def day(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeldDay]:
    """The demo day, made once."""
    require("prometheus")
    require("promtool")
    end = int(time.time()) // SCRAPE_SECONDS * SCRAPE_SECONDS
    with a_day(tmp_path_factory.mktemp("day"), end=end) as server:
        yield HeldDay(prometheus=server, end=end)
