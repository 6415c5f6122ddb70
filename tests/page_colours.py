"""The colours of components on the agent's page, from its style sheet."""

import re
from pathlib import Path

_STYLE = (Path(__file__).parents[1] / "agent" / "web" / "style.css").read_text(encoding="utf-8")

COLOURS = {
    name: colour
    for rule, colour in re.findall(r"^((?:\[data-component=[^{]+)+)\{ --c: (#[0-9a-f]{6});", _STYLE, re.MULTILINE)
    for name in re.findall(r'data-component="?(\w+)', rule)
}
