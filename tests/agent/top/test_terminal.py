"""What a terminal is taken for, from its environment."""

import subprocess
import sys

import pytest

from agent.top.terminal import can_be_drawn_on


def _told(environment: dict[str, str]) -> str:
    """In a process of its own: the description of a terminal is read once in each."""
    code = "import os; from agent.top.terminal import colour_system; print(colour_system(os.environ))"
    done = subprocess.run([sys.executable, "-Ic", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("environment", "system"),
    [
        ({"TERM": "xterm-256color"}, "256"),
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, "truecolor"),
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor", "NO_COLOR": "1"}, "None"),
        ({"TERM": "xterm-256color", "NO_COLOR": ""}, "256"),  # empty counts as not set
        ({"TERM": "no-such-terminal"}, "None"),
        ({"TERM": "linux"}, "None"),
        ({"TERM": "vt100"}, "None"),
    ],
)
def test_colours(environment: dict[str, str], system: str) -> None:
    """256 or more, and none where fewer are there or none are wanted."""
    assert _told(environment) == system


def test_some_cannot_be_drawn_on() -> None:
    """A program that reads lines, or nothing at all, is no terminal."""
    assert [can_be_drawn_on({"TERM": term}) for term in ("dumb", "unknown", "", "vt100")] == [False, False, False, True]
    assert not can_be_drawn_on({})
