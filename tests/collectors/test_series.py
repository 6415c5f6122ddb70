"""Facts of a page by a table of names."""

import pytest

from collectors.errors import Unreadable
from collectors.series import Series

SERIES = Series({"used": ("new_used", "old_used"), "most": (("blocks", "kind", "max"),)}, others=("info",))


def test_the_newest_name_counts_and_of_processes_the_highest() -> None:
    """No fact is added up, and a creation time is none."""
    text = (
        'old_used{pid="1"} 9\nnew_used{pid="1"} 3\nnew_used{pid="2"} 5\nnew_used_created 1e9\n'
        'blocks{kind="max"} 7\nblocks{kind="used"} 8\ninfo{model="m"} 1\n'
    )

    facts = SERIES.read(text, source="test")

    assert facts.values == {"0": {"used": 5, "most": 7}}
    assert facts.label("model") == "m"


@pytest.mark.parametrize("value", ["NaN", "-1", "+Inf", "1e300"])
def test_a_count_that_can_not_be_is_unknown(value: str) -> None:
    """And not 0."""
    facts = SERIES.read(f"new_used {value}\n", source="test")

    assert facts.count("0", "used") is None
    assert facts.ratio("0", "used") is None


def test_too_many_replicas_are_refused() -> None:
    """Whoever writes a page can't make us remember without end."""
    text = "".join(f'new_used{{engine="{n}"}} 1\n' for n in range(600))

    with pytest.raises(Unreadable) as caught:
        SERIES.read(text, source="test", replica=lambda labels: labels["engine"])

    assert caught.value.reason == "too_large"
