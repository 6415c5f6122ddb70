"""One Chromium for all tests of the page."""

from collections.abc import Iterator

import pytest

from tests.agent.web.site import Open, Site
from tests.browser import Browser, Page, chromium
from tests.real import require


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(require("chromium"), tmp_path_factory.mktemp("chromium")) as running:
        yield running


@pytest.fixture
def show(browser: Browser) -> Iterator[Open]:
    """Open a page on a site; both are closed after the test."""
    opened: list[tuple[Site, Page]] = []

    def open_page(site: Site) -> Page:
        page = browser.open(site.url)
        opened.append((site, page))
        page.wait_until("document.getElementById('version')?.textContent")
        return page

    yield open_page
    for site, page in opened:
        page.close()
        site.stop()
