"""The page's files, as text: nothing that the content security policy would block, nothing from elsewhere."""

import re
from pathlib import Path

import pytest

import agent.web
from agent.memory.risk import REASONS
from agent.rules import RUNBOOKS

ROOT = Path(__file__).parents[3]
WEB = Path(agent.web.__file__).parent
SCRIPTS = sorted(WEB.glob("*.js"))


def test_the_html_holds_no_script_style_or_handler_of_its_own() -> None:
    """All behaviour and looks come from files that the policy allows."""
    html = (WEB / "index.html").read_text()

    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=", html) == []


@pytest.mark.parametrize("path", [*SCRIPTS, WEB / "index.html", WEB / "style.css"], ids=lambda path: path.name)
def test_nothing_is_loaded_from_elsewhere(path: Path) -> None:
    """No file names another host; the SVG namespace is a name, and where runbooks are is only a link."""
    text = path.read_text().replace("http://www.w3.org/2000/svg", "").replace(f'const RUNBOOKS = "{RUNBOOKS}"', "")

    assert re.findall(r"https?:|\burl\(|@import", text) == []


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_never_parse_text_as_html_or_code(path: Path) -> None:
    """Values reach the page as text nodes and attributes only."""
    sinks = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser|srcdoc"

    assert re.findall(sinks, path.read_text()) == []


def test_the_page_stays_small() -> None:
    """All files together are less than 150 KB, uncompressed, so that the page opens over a bad line."""
    assert (
        sum(path.stat().st_size for path in WEB.iterdir() if path.suffix in {".js", ".css", ".html", ".svg"}) < 150_000
    )


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_module_is_short_and_used(path: Path) -> None:
    """At most 150 lines each, and another file loads it."""
    others = [other.read_text() for other in (*SCRIPTS, WEB / "index.html") if other != path]

    assert len(path.read_text().splitlines()) <= 150
    assert any(f'"./{path.name}"' in other or f'"static/{path.name}"' in other for other in others)


def test_every_name_that_a_script_imports_is_exported() -> None:
    """A module that lacks a name would leave the whole page empty."""
    exported = {
        path.name: set(re.findall(r"^export (?:const|(?:async )?function|class) (\w+)", path.read_text(), re.MULTILINE))
        for path in SCRIPTS
    }
    imported = [
        (path.name, source, name)
        for path in SCRIPTS
        for names, source in re.findall(r'^import \{ (.+?) \} from "\./(.+?)";', path.read_text(), re.MULTILINE)
        for name in names.split(", ")
    ]

    assert [one for one in imported if one[2] not in exported[one[1]]] == []
    assert [one for one in imported if len(re.findall(rf"\b{one[2]}\b", (WEB / one[0]).read_text())) < 2] == []
    used = {(source, name) for _, source, name in imported}
    assert [(file, name) for file, names in exported.items() for name in names if (file, name) not in used] == []


def test_every_reason_of_a_risk_has_words_and_a_page_that_says_what_to_do() -> None:
    """The runbooks that the page links to are there."""
    table = (WEB / "coming.js").read_text().partition("const PAGES = {")[2].partition("};")[0]
    pages = dict(re.findall(r'(\w+): "([a-z-]+)"', table))
    words = re.findall(r'(\w+): "', (WEB / "outlook.js").read_text())

    assert set(pages) == set(REASONS) <= set(words)
    assert [page for page in pages.values() if not (ROOT / "docs" / "runbooks" / f"{page}.md").is_file()] == []
