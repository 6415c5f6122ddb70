"""The page of upgrades: every reason of the state file with a test that exists."""

import re

from agent import disk
from tests.test_faults_page import ROOT, defined

PAGE = (ROOT / "docs" / "upgrades.md").read_text(encoding="utf-8")
ROWS = [line.split("|") for line in PAGE.splitlines() if "`test_" in line]


def test_every_cited_test_exists() -> None:
    """By its name."""
    cited = {name for row in ROWS for name in re.findall(r"`(test_\w+)`", row[-2])}

    assert cited
    assert cited <= defined()


def test_every_reason_is_on_the_page() -> None:
    """Those of the system and the file's own."""
    written = {reason for row in ROWS for reason in re.findall(r"`(\w+)`", row[2])}

    assert written == {*disk.REASONS.values(), "locked", "malformed", "newer_schema", "failed"}
