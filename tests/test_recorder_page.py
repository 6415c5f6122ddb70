"""The page of the recorder: the tests and alarms that it names are there."""

import re

from agent.postmortem.alarms import ALERTS
from tests.test_faults_page import ROOT, defined

PAGE = (ROOT / "docs" / "recorder.md").read_text(encoding="utf-8")


def test_every_cited_test_exists() -> None:
    """By its name."""
    cited = set(re.findall(r"`(test_\w+)`", PAGE))

    assert cited
    assert cited <= defined()


def test_every_alert_that_a_postmortem_tells_is_on_the_page() -> None:
    """In order."""
    told = PAGE.partition("The alerts that are told: ")[2].partition(", with the")[0]

    assert re.findall(r"\w+[A-Z]\w+", told) == list(ALERTS)
