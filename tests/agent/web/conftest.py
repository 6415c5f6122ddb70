"""One Chromium for all tests of the page."""

from collections.abc import Iterator

import pytest

from tests.browser import Browser, chromium
from tests.real import require


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(require("chromium"), tmp_path_factory.mktemp("chromium")) as running:
        yield running
