"""The page's files, as text: nothing that the content security policy would block, nothing from elsewhere."""

import re
from pathlib import Path

import pytest

import agent.web

WEB = Path(agent.web.__file__).parent
SCRIPTS = sorted(WEB.glob("*.js"))


def test_the_html_holds_no_script_style_or_handler_of_its_own() -> None:
    """All behaviour and looks come from files that the policy allows."""
    html = (WEB / "index.html").read_text()

    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=", html) == []


@pytest.mark.parametrize("path", [*SCRIPTS, WEB / "index.html", WEB / "style.css"], ids=lambda path: path.name)
def test_nothing_is_loaded_from_elsewhere(path: Path) -> None:
    """No file names another host; the SVG namespace is a name, not an address."""
    text = path.read_text().replace("http://www.w3.org/2000/svg", "")

    assert re.findall(r"https?:|\burl\(|@import", text) == []


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_never_parse_text_as_html_or_code(path: Path) -> None:
    """Values reach the page as text nodes and attributes only."""
    sinks = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser|srcdoc"

    assert re.findall(sinks, path.read_text()) == []


def test_the_page_stays_small() -> None:
    """All files together fit in 64 KiB, so that the page opens over a bad line."""
    assert (
        sum(path.stat().st_size for path in WEB.iterdir() if path.suffix in {".js", ".css", ".html", ".svg"}) < 65_536
    )
