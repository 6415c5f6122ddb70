"""What stands beside the pools of an SGLang: its host tier, LoRA slots, and by what it speculates."""

from typing import Any

import pytest

from collectors.readings import AdaptersReading, OffloadReading
from collectors.sglang.beside import adapters_of, offload_of, speculative
from collectors.sglang.page import parse_page
from collectors.sglang.pools import pools_of
from tests.collectors.replay import FIXTURES

PAGE = (FIXTURES / "sglang" / "shapes" / "beside.txt").read_text(encoding="utf-8")


def test_the_host_tier_is_named_in_tokens_and_states() -> None:
    """Hierarchical cache of a hybrid model: both stand apart from the pools on the device."""
    page = parse_page(PAGE, source="page")

    assert offload_of(page) == (
        OffloadReading(
            replica="0",
            by="HiCache",
            tier="host",
            used_ratio=0.75,
            capacity_tokens=8000,
            used_tokens=6000,
        ),
        OffloadReading(
            replica="0",
            by="HiCache",
            tier="host",
            kind="state",
            used_ratio=0.5,
            capacity_tokens=64,
            used_tokens=32,
        ),
    )
    (pool,) = pools_of(page, None)
    assert (pool.capacity_tokens, pool.used_tokens) == (4000, 992)


def test_slots_of_adapters() -> None:
    """Those in use are of requests that run; their names are not told."""
    assert adapters_of(parse_page(PAGE, source="page")) == (AdaptersReading(replica="0", slots=8, used_slots=2),)


def test_without_them_nothing_is_named() -> None:
    """The series are there only where host tier and LoRA are switched on."""
    page = parse_page(
        (FIXTURES / "sglang" / "recorded-0.5.23" / "metrics_after.txt").read_text(encoding="utf-8"), source="page"
    )

    assert (offload_of(page), adapters_of(page)) == ((), ())


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({"speculative_algorithm": None}, None),
        ({"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": 12}, "ngram:12"),
        ({"speculative_algorithm": "EAGLE", "speculative_num_draft_tokens": 4}, "mtp:4"),
        ({"speculative_algorithm": "EAGLE", "speculative_draft_model_path": "/m", "model_path": "/m"}, "mtp:1"),
        ({"speculative_algorithm": "EAGLE3", "speculative_draft_model_path": "/d", "model_path": "/m"}, "draft:1"),
    ],
)
def test_how_it_speculates(info: dict[str, Any], expected: str | None) -> None:
    """By its own layers where the draft is the model itself."""
    assert speculative(info) == expected
