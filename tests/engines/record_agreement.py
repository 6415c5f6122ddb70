"""Record what real servers under load tell, and what the agent says beside them, at four points of their story.

``python -m tests.engines.record_agreement [ENGINE ...]``: some minutes, all of them at the same time. One folder
for each engine and version: ``agreed.json`` with the figures, the answers at each point, the lines of the log by then.
"""

import functools
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec
from msgspec import Struct

from tests.engines import install_llama_cpp, install_sglang, install_vllm
from tests.engines.agreement import LOOK_SECONDS, Figures, Moment, Told, Watched, all_disagreements, play, shown
from tests.engines.record import exposition
from tests.engines.watched_llama_cpp import CELLS, SLOTS, WatchedLlamaCpp
from tests.engines.watched_sglang import WatchedSglang
from tests.engines.watched_vllm import WatchedVllm
from tests.program import running

FIXTURES = Path(__file__).parents[1] / "fixtures"
WATCHED: dict[str, type[Watched]] = {one.engine: one for one in (WatchedVllm, WatchedLlamaCpp, WatchedSglang)}
BUILD = next(iter(install_llama_cpp.BUILDS))
VERSIONS = {"vllm": install_vllm.VERSION, "llama_cpp": BUILD, "sglang": install_sglang.VERSION}
FULL = {"vllm": "preempted", "llama_cpp": "refused", "sglang": "retracted"}  # what happens when the pool is full
FLAGS: dict[str, dict[str, int | bool]] = {"llama_cpp": {"ctx-size": CELLS, "parallel": SLOTS, "kv-unified": True}}
ENDPOINTS = {"/metrics": "metrics.txt", "/slots": "slots.json", "/props": "props.json"}


class Recorded(Struct, frozen=True, kw_only=True):
    """A look at a server: its answers are in files that begin with its name, ``lines`` of its log were there then."""

    name: str
    lines: int
    answers: Figures
    log: Figures


class RecordedMoment(Struct, frozen=True, kw_only=True):
    """What the agent said, between two looks."""

    point: str
    before: Recorded
    agent: Figures
    after: Recorded


class Recording(Struct, frozen=True, kw_only=True):
    """``flags``: those that the agent found on the command line, as far as the server was read by them."""

    engine: str
    version: str
    flags: dict[str, int | bool]
    moments: tuple[RecordedMoment, ...]


def folder_of(engine: str) -> Path:
    return FIXTURES / engine / f"agreed-{VERSIONS[engine]}"


def read(folder: Path) -> Recording:
    return msgspec.json.decode((folder / "agreed.json").read_bytes(), type=Recording)


def pages_of(folder: Path, look: Recorded) -> dict[str, str]:
    """Its answers by path."""
    files = {path: folder / f"{look.name}.{file}" for path, file in ENDPOINTS.items()}
    return {path: file.read_text(encoding="utf-8") for path, file in files.items() if file.exists()}


def log_of(folder: Path, look: Recorded) -> str:
    """Its log then."""
    lines = (folder / "server.log").read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(lines[: look.lines])


def record(servers: Sequence[Watched], scrub: Callable[[str], str]) -> None:
    """Play the stories of all servers beside one agent, and write them down if it agrees with them."""
    moments: dict[str, list[Moment]] = {server.engine: [] for server in servers}
    with tempfile.NamedTemporaryFile(suffix=".yml") as empty, ExitStack() as stack:
        for server in servers:
            stack.enter_context(server)
        program = stack.enter_context(running("run", "--config", empty.name, "--listen", "127.0.0.1:0"))
        for server in servers:
            program.until(functools.partial(shown, program, server.url), seconds=LOOK_SECONDS)
        for server, moment in play(program, servers):
            print(server.engine, moment.point, flush=True)
            moments[server.engine].append(moment)
    problems = [
        problem for server in servers for one in moments[server.engine] for problem in all_disagreements(server, one)
    ]
    if problems:
        raise SystemExit("\n".join(problems))
    for server in servers:
        _write(server, moments[server.engine], scrub)


def _write(server: Watched, moments: Sequence[Moment], scrub: Callable[[str], str]) -> None:
    folder = folder_of(server.engine)
    folder.mkdir(parents=True, exist_ok=True)
    written = _Writer(folder, server, scrub)
    recording = Recording(
        engine=server.engine,
        version=VERSIONS[server.engine],
        flags=FLAGS.get(server.engine, {}),
        moments=tuple(written.moment(moment) for moment in moments),
    )
    text = msgspec.json.format(msgspec.json.encode(recording), indent=1).decode()
    (folder / "agreed.json").write_text(f"{text}\n", "utf-8")
    (folder / "server.log").write_text(written.log, "utf-8")


class _Writer:
    """Writes answers as they come, and gathers the log by the parts between two looks."""

    def __init__(self, folder: Path, server: Watched, scrub: Callable[[str], str]) -> None:
        self.log = ""
        self._folder, self._server, self._scrub = folder, server, scrub
        self._seen = 0

    def moment(self, moment: Moment) -> RecordedMoment:
        """Where a server stood still, one look is both."""
        before = self._look(moment.point, moment.before)
        moves = moment.point in self._server.moving
        after = self._look(f"{moment.point}-later", moment.after) if moves else before
        return RecordedMoment(point=moment.point, before=before, agent=moment.agent, after=after)

    def _look(self, name: str, told: Told) -> Recorded:
        self.log += self._scrub(self._server.excerpt(told.log[self._seen :]))
        self._seen = len(told.log)
        for path, text in told.pages.items():
            kept = exposition(text, whole=False) if path == "/metrics" else f"{text}\n"
            (self._folder / f"{name}.{ENDPOINTS[path]}").write_text(self._scrub(kept), "utf-8")
        look = Recorded(
            name=name,
            lines=self.log.count("\n"),
            answers=self._server.of_pages(told.pages),
            log=self._server.of_log(told.log),
        )
        assert self._server.of_log(self.log) == look.log, "the excerpt of the log tells something else"
        return look


def _servers(engines: list[str], folder: Path) -> Iterator[Watched]:
    if "vllm" in engines:
        yield WatchedVllm(install_vllm.install(install_vllm.environment_directory()), folder)
    if "sglang" in engines:
        yield WatchedSglang(install_sglang.install(), folder)
    if "llama_cpp" in engines:  # last: it can't stand still while others are awaited
        yield WatchedLlamaCpp(install_llama_cpp.install(BUILD), folder)


def main(names: list[str]) -> int:
    with tempfile.TemporaryDirectory() as workplace:
        record(list(_servers(names or list(WATCHED), Path(workplace))), lambda text: text.replace(f"{workplace}/", ""))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
