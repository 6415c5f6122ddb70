"""What the documents show is what the program takes."""

import re
from pathlib import Path

from agent.settings import (
    Intervals,
    RecorderSettings,
    ServerSettings,
    Settings,
    ThresholdSettings,
    parse_settings,
)

DOCS = Path(__file__).parent.parent / "docs"


def test_the_settings_page_shows_every_key_and_is_valid() -> None:
    """Its example can be given as it stands, and no key is missing from it."""
    example = re.search(r"```yaml\n(.*?)```", (DOCS / "settings.md").read_text(), re.S)
    assert example is not None

    settings = parse_settings(example[1].encode(), where="settings.md")

    assert len(settings.servers) == 1
    for key in (*Settings.__struct_fields__, *ServerSettings.__struct_fields__):
        assert re.search(rf"^\s*(- )?{key}:", example[1], re.M), key
    for section in (Intervals, RecorderSettings, ThresholdSettings):
        for key in section.__struct_fields__:
            assert re.search(rf"[ {{]{key}:", example[1]), key


def test_links_between_documents_lead_somewhere() -> None:
    """No broken relative link in any page."""
    for page in (*DOCS.glob("*.md"), DOCS.parent / "README.md", DOCS.parent / "CONTRIBUTING.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
