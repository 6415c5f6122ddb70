"""The page of the recorder: the tests and alarms that it names are there."""

import re

from agent.postmortem.alarms import RULES
from tests.test_faults_page import ROOT, defined

PAGE = (ROOT / "docs" / "recorder.md").read_text(encoding="utf-8")


def test_every_cited_test_exists() -> None:
    """By its name."""
    cited = set(re.findall(r"`(test_\w+)`", PAGE))

    assert cited
    assert cited <= defined()


def test_every_rule_is_on_the_page() -> None:
    """Each in a row of its own, in order."""
    rows = re.findall(r"^\| `(\w+)` \| .* \|$", PAGE.partition("| rule | on while |")[2], re.M)

    assert rows == [rule.name for rule in RULES]
