"""Options of the suite."""

from collections.abc import Iterator

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="accept what the program exports now")


@pytest.fixture(autouse=True, scope="session")
def _no_state_of_this_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test finds or leaves anything where an agent of this user would keep it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STATE_DIRECTORY", str(tmp_path_factory.mktemp("state")))
        yield
