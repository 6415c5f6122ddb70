"""``vramscope top`` in a real terminal: keys, sizes, an agent that goes away, and no colour where none is wanted."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.top.ending import RESTORED
from tests.agent.top.nodes import eight
from tests.agent.web.serve import FakeLatest, serving_on_loopback
from tests.program import running
from tests.tmux import terminal

COLOURS = re.compile(r"\x1b\[(?:[\d;]*;)?(3[0-7]|4[0-7]|38|48|9[0-7]|10[0-7])(?:;[\d;]*)?m")


class Agent(FakeLatest):
    """An agent whose figures move with each look."""

    def __init__(self) -> None:
        self.tick = 0

    @property
    def snapshot_json(self) -> bytes:  # type: ignore[override]  # a constant there
        self.tick += 1
        return msgspec.json.encode(eight(self.tick))


@pytest.fixture
def base() -> Iterator[str]:
    """The URL of an agent of eight GPUs and eight servers."""
    with serving_on_loopback(Agent()) as url:
        yield url


def test_it_shows_the_node_within_80_columns(base: str, tmp_path: Path) -> None:
    """All GPUs and servers with whole figures in 80 x 24, none wrapped; colours, as the terminal has 256."""
    with terminal(tmp_path, "top", "--url", base) as screen:
        text = screen.until("SERVER", "chat-7")
        styled = screen.screen(styles=True)

    lines = text.splitlines()
    for name in (f"chat-{number}" for number in range(8)):
        assert any(line.split()[0] == name for line in lines if line.strip()), name
    assert [line for line in lines if "59.2/79.6" in line and "%" in line]
    assert "critical pool fills" in text
    assert max(map(len, lines)) <= 80
    assert COLOURS.search(styled)


def test_keys_choose_sort_and_open(base: str, tmp_path: Path) -> None:
    """Down moves the mark, n sorts by name, enter opens the detail with evidence, h the help, q ends with 0."""
    with terminal(tmp_path, "top", "--url", base) as screen:
        assert "> 1 " in screen.until("> ", "by risk")
        screen.type("n")
        screen.until("by name")
        screen.type("Home")
        screen.until("> 0 ")
        screen.type("j")
        screen.until("> 1 ")
        screen.type("Down")
        screen.until("> 2 ")
        screen.type("End")
        screen.until("> chat-7")
        screen.type("Enter")
        screen.until("chat-7  vllm 0.11.0", "running", "esc back")
        screen.type("Escape")
        screen.until("> chat-7", "by name")
        screen.type("g", "Enter")
        screen.until("known by", "computed", "GPU-0")
        screen.type("h")
        screen.until("order by risk, left, used, name")
        screen.type("h")
        screen.until("known by", "computed", "GPU-0", without="order by")
        screen.type("f", "h")
        screen.until("order by risk, left, used, name")
        screen.type("Escape")
        screen.until("known by", "computed", "GPU-0", without="order by")
        screen.type("Escape")
        screen.until("> 0 ")
        screen.type("s")
        screen.until("by risk")
        screen.type("q")
        screen.until("ended with 0")


def test_a_key_of_another_encoding_is_no_key(base: str, tmp_path: Path) -> None:
    """A terminal of Latin-1 sends bytes that are not UTF-8; keys after it are read as always."""
    with terminal(tmp_path, "top", "--url", base) as screen:
        screen.until("by risk")
        screen.type("-H", "e9")
        for _ in range(50):  # what comes together with that byte goes with it
            screen.type("n")
            time.sleep(0.1)
            if "by name" in screen.screen():
                return
    raise AssertionError("keys are read no more")


class Terminal:
    """Both ends of a terminal of the test's own, and ``vramscope top`` on it once it has drawn."""

    def __init__(self, process: "subprocess.Popen[bytes]", master: int, slave: int, before: list[Any]) -> None:
        self.process, self.master, self.slave, self.before = process, master, slave, before

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def is_full(self) -> bool:
        """Whether a write to it waits for somebody to read."""
        return not select.select([], [self.slave], [], 0)[1]

    def read(self) -> bytes:
        """What it holds."""
        held = b""
        while select.select([self.master], [], [], 0.2)[0]:
            held += os.read(self.master, 65536)
        return held


@contextmanager
def on_a_terminal(base: str, *, controlling: bool = True) -> Iterator[Terminal]:
    """``vramscope top`` beside an agent, without tmux, which would read all that comes."""
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    code = "import fcntl, runpy, sys, termios; "
    code += "fcntl.ioctl(0, termios.TIOCSCTTY, 0); " if controlling else ""
    code += f"sys.argv = ['vramscope', 'top', '--url', {base!r}]; runpy.run_module('agent', run_name='__main__')"
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color"},
    )
    try:
        shown = b""
        while b"critical" not in shown:
            assert select.select([master], [], [], 30.0)[0], shown
            shown += os.read(master, 65536)
        yield Terminal(process, master, slave, before)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("controlling", [True, False])
def test_it_ends_with_its_terminal(base: str, controlling: bool) -> None:
    """A connection that breaks leaves nothing behind that runs on, whether a signal comes or not."""
    with on_a_terminal(base, controlling=controlling) as one:
        os.close(one.slave)
        os.close(one.master)
        assert one.process.wait(timeout=30) != 0


def test_it_ends_while_nobody_reads_its_terminal(base: str) -> None:
    """A connection that hangs holds up all writing: SIGTERM ends it all the same, and the terminal is as it was."""
    with on_a_terminal(base) as one:
        for redraw in range(50):  # what is queued inside it is full after half of them
            one.resize(180 + redraw % 2, 50)
            time.sleep(0.05)
        assert one.is_full()
        assert termios.tcgetattr(one.slave) != one.before

        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(timeout=10) == 128 + signal.SIGTERM
        assert termios.tcgetattr(one.slave) == one.before
        assert one.read().endswith(RESTORED)


def test_a_signal_ends_it_as_its_key_does(base: str) -> None:
    """Where its terminal is read SIGTERM ends it with 0, and the screen from before is back."""
    with on_a_terminal(base) as one:
        one.process.send_signal(signal.SIGTERM)
        assert b"\x1b[?1049l" in one.read()
        assert one.process.wait(timeout=10) == 0
        assert termios.tcgetattr(one.slave) == one.before


def test_it_follows_the_size_of_the_window(base: str, tmp_path: Path) -> None:
    """More columns where there is room, fewer where not, rows below the edge reached by moving down."""
    with terminal(tmp_path, "top", "--url", base, width=140, height=30) as screen:
        screen.until("CHAINS", "TOKENS", "2 hold 61%")
        screen.resize(60, 12)
        small = screen.until("MEMORY", without="CHAINS")
        assert max(map(len, small.splitlines())) <= 60
        screen.type("End")
        screen.until("> chat-")
        screen.resize(100, 40)
        screen.until("> chat-", "MEMORY", "EARLY")


def test_an_agent_that_answers_no_more_is_never_shown_as_current(tmp_path: Path) -> None:
    """What is shown is said to be old and is grey; as soon as it answers again all is as before."""
    agent = Agent()
    with serving_on_loopback(agent) as url, terminal(tmp_path, "top", "--url", url) as screen:
        screen.until("chat-7", without="NOT CURRENT")
        assert COLOURS.search(screen.screen(styles=True))

        agent.healthy = "the last tick is 12 s old"
        gone = screen.until("NOT CURRENT", " s old", "answered 503")
        assert "chat-7" in gone
        lines = screen.screen(styles=True).splitlines()
        (warning,) = [line for line in lines if "NOT CURRENT" in line]
        assert "31" in COLOURS.findall(warning)
        rows = [line for line in lines if "chat-" in line or "WWW" in line]
        assert rows
        assert all(set(COLOURS.findall(line)) <= {"90"} for line in rows)

        agent.healthy = None
        screen.until("chat-7", without="NOT CURRENT")


def test_figures_that_stand_still_are_not_current(tmp_path: Path) -> None:
    """An agent that answers the same again and again has stopped."""
    latest = FakeLatest()
    latest.snapshot_json = msgspec.json.encode(eight())
    with serving_on_loopback(latest) as url, terminal(tmp_path, "top", "--url", url) as screen:
        screen.until("NOT CURRENT", "figures stand still")


def test_an_agent_that_starts_later_is_found(tmp_path: Path) -> None:
    """Until then it is said what is wrong."""
    with serving_on_loopback(Agent()) as url:
        pass
    port = url.rpartition(":")[2]
    with terminal(tmp_path, "top", "--url", url) as screen:
        screen.until(f"no agent answers at {url}", "nothing to show yet")
        with running("demo", "--speed", "20", "--listen", f"127.0.0.1:{port}"):
            screen.until("simulated node", "reasoner-8b", without="no agent")
        screen.until("NOT CURRENT", "no agent answers")


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "vt100"}, {"TERM": "linux"}], ids=str)
def test_without_colours_letters_tell_parts_apart(base: str, tmp_path: Path, environment: dict[str, str]) -> None:
    """Where colours are not wanted, or are too few: not one sequence that sets one, and bars of letters."""
    with terminal(tmp_path, "top", "--url", base, environment=environment) as screen:
        text = screen.until("chat-7", "critical pool fills")
        styled = screen.screen(styles=True)
        assert not COLOURS.search(styled)
        assert re.search(r"\x1b\[[\d;]*7m *by risk", styled)

    assert re.search(r"WWWWW+K+-+[A-Z]*\.{3}", text)


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        ((), {"TERM": "dumb"}, "TERM=dumb is no terminal that can be drawn on; `vramscope snapshot` prints lines"),
        (("--url", "ftp://x"), {}, "--url: 'ftp://x' is not the URL of a server"),
        (("--url", "http://x", "--config", "f"), {}, "--url and --config exclude each other; give one"),
    ],
    ids=["dumb", "url", "both"],
)
def test_what_cannot_be_shown_is_one_sentence(
    tmp_path: Path, arguments: tuple[str, ...], environment: dict[str, str], message: str
) -> None:
    """The terminal is left as it was, the exit code is 2."""
    with terminal(tmp_path, "top", *arguments, environment=environment, width=200) as screen:
        text = screen.until("ended with 2")

    assert text.startswith(f"vramscope: {message}")


def test_without_an_agent_it_reads_by_itself(tmp_path: Path) -> None:
    """With settings of its own it says so, and what it can't read."""
    config = tmp_path / "vramscope.yml"
    config.write_text("discovery: false\nservers: [{url: 'http://127.0.0.1:9', name: gone}]\n")
    with terminal(tmp_path, "top", "--config", str(config), width=120) as screen:
        screen.until("by itself", "gone", "failed")
        screen.type("f")
        screen.until("endpoint gone")
        screen.type("C-c")
        screen.until("ended with 0")
