"""The operation guide's examples, as they stand there."""

import re
from pathlib import Path

import pytest

from agent.web.web_config import load_web_config
from tests.agent.web.configs import write
from tests.promtool import promtool

GUIDE = Path(__file__).parents[1] / "docs" / "operation.md"


def examples(name: str) -> list[str]:
    """The YAML blocks that the guide introduces by a file's name."""
    return re.findall(rf"`{re.escape(name)}`:\n\n```yaml\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.S)


@pytest.mark.parametrize("text", examples("web.yml"))
def test_every_web_config_of_the_guide_is_taken(tmp_path: Path, text: str) -> None:
    """By the agent, and by Prometheus' own checker."""
    path = write(tmp_path)
    path.write_text(text)

    assert load_web_config(path).tls is not None
    promtool("check", "web-config", path)


def test_the_scrape_config_of_the_guide_is_taken(tmp_path: Path) -> None:
    """By Prometheus' own checker, with the files beside it."""
    write(tmp_path)
    (tmp_path / "password").write_text("secret")
    [text] = examples("prometheus.yml")
    (tmp_path / "prometheus.yml").write_text(text)

    promtool("check", "config", tmp_path / "prometheus.yml")


def test_the_guide_has_examples() -> None:
    """So that the tests above run on something."""
    assert len(examples("web.yml")) == 2
