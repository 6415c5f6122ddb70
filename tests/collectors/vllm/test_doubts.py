"""Values that may be old although the page is new."""

import pytest

from collectors.errors import Unreachable, Unreadable
from collectors.vllm.doubts import STILL_SECONDS, Doubts
from collectors.vllm.page import Page, parse_page
from tests.collectors.replay import vllm

LEFT_OVER = "PROMETHEUS_MULTIPROC_DIR was not emptied before the start"
REFUSED = Unreachable("refused", "nothing listens")


def page(*, prompt: int = 5000, usage: float = 0.25, running: int = 0, start: str = "") -> Page:
    """A page of several API servers: neither a process start nor a created time, unless ``start`` holds one."""
    label = '{engine="0",model_name="m"}'
    text = f"vllm:prompt_tokens_total{label} {prompt}\nvllm:kv_cache_usage_perc{label} {usage}\n"
    text += f"vllm:num_requests_running{label} {running}\nvllm:num_requests_waiting{label} 0\n{start}"
    return parse_page(text, source="page")


@pytest.mark.parametrize(
    ("before", "error", "after", "doubted"),
    [
        (page(), REFUSED, page(), True),
        (page(), REFUSED, page(prompt=5001), True),
        (page(), REFUSED, page(prompt=12), False),  # began anew, as it should
        (page(prompt=0), REFUSED, page(prompt=0), False),  # nothing to be left over
        (page(), Unreachable("timeout", "slow"), page(), False),  # it never went away
        (page(), Unreadable("http_500", "broken"), page(), False),
        (page(), REFUSED, page(start="process_start_time_seconds 1.75e9\n"), False),  # its start is known
        (None, REFUSED, page(), False),  # nothing to compare with
    ],
)
def test_counters_that_went_on_while_nothing_listened(
    before: Page | None, error: Unreachable, after: Page, doubted: bool
) -> None:
    """A new process counts from 0; one that does not shows what an earlier run left behind."""
    doubts = Doubts()
    if before is not None:
        assert doubts.about(before, 1.0) == ()
    doubts.lost(error)

    assert (LEFT_OVER in " ".join(doubts.about(after, 2.0))) is doubted


def test_the_doubt_stays_until_the_next_restart() -> None:
    """The old values do not get younger; a start in an empty directory ends it."""
    doubts = Doubts()
    doubts.about(page(), 1.0)
    doubts.lost(REFUSED)
    assert LEFT_OVER in " ".join(doubts.about(page(running=1), 2.0))
    assert LEFT_OVER in " ".join(doubts.about(page(running=1), 3.0))
    doubts.lost(REFUSED)

    assert doubts.about(page(prompt=3, running=1), 4.0) == ()


def test_a_pool_that_stands_still_without_a_request_is_doubted() -> None:
    """Blocks that nobody holds are freed within a step; after a minute the gauge itself is in doubt."""
    doubts = Doubts()
    doubts.about(page(running=1), 0.0)

    assert doubts.about(page(), 1.0) == ()
    assert doubts.about(page(), STILL_SECONDS) == ()
    assert doubts.about(page(), 1.0 + STILL_SECONDS) == (
        "the KV pool has stood at 25.0% for 60 s with no request running or waiting: it may be an old value",
    )


@pytest.mark.parametrize("between", [page(running=1), page(usage=0.5), page(usage=0.0), page(usage=float("nan"))])
def test_a_pool_that_moves_is_not(between: Page) -> None:
    """A request, another ratio, an empty pool or no value at all begin the minute anew."""
    doubts = Doubts()
    doubts.about(page(), 0.0)
    doubts.about(between, 30.0)
    doubts.about(page(), 31.0)

    assert doubts.about(page(), 1.0 + STILL_SECONDS) == ()


def test_an_idle_recorded_server_is_beyond_doubt() -> None:
    """Nothing runs and nothing is held."""
    doubts = Doubts()
    recorded = parse_page(vllm("0.32.0/metrics_after.txt"), source="page")

    assert [doubts.about(recorded, at) for at in (0.0, 100.0)] == [(), ()]
