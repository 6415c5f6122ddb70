"""Recordings of the flight recorder as the backtest reads them."""

from pathlib import Path

from click.testing import CliRunner
from msgspec.structs import replace

from agent.app import replayed_board
from agent.backtest.bundles import read_bundle
from agent.backtest.episodes import episodes_of
from agent.backtest.recordings import Recording
from agent.cli import cli
from agent.recorder.player import Player
from tests.agent.postmortem.story import Story
from tests.agent.recorder.flight import Flight
from tests.agent.test_board import BLOCKS, serving

RECORDED = Path("tests/fixtures/recordings")
FORMAT_1 = Path("tests/fixtures/recorded-format-1.vramscope")


def pools(flight: Flight) -> list[Recording]:
    return list(read_bundle(Player(flight.file, replayed_board)))


def lives(flight: Flight, seconds: int, *, preempted: int = 0) -> None:
    """Half of the pool in use."""
    used = BLOCKS // 2
    pool = replace(serving(0).pools[0], used_tokens=16 * used, used_ratio=used / BLOCKS)
    flight.lives(seconds, pools=(pool,), replicas=(replace(serving(0).replicas[0], preemptions=preempted),))


def test_a_story_is_one_pool(tmp_path: Path) -> None:
    """Once a second until the first preemption, which is before memory runs out; what the forecast was told."""
    story = Story(tmp_path)
    (pool,) = pools(story)
    first, *_ = episodes_of(pool.signals)
    begin = pool.signals[0]

    assert pool.name == "vllm:whole.vramscope chat 0 full"
    assert pool.facts.engine == "vllm"
    assert (begin.used_ratio, begin.running) == (1000 / BLOCKS, 10)
    assert (first.event, first.kind, round(first.end - begin.at)) == (True, "foreseeable", 541)


def test_memory_that_ran_out_is_an_event(tmp_path: Path) -> None:
    """As the log says, whether or not the server answers after it; not what the log told when it was first read."""
    flight = Flight(tmp_path)
    flight.log(cuda_oom=1)
    lives(flight, 120)
    flight.log(cuda_oom=2)
    flight.refuse()
    flight.ticks()
    flight.writer.flush()
    moment = flight.clock.now - 1
    lives(flight, 10)
    (pool,) = pools(flight)

    assert [(one.event, one.end) for one in episodes_of(pool.signals)] == [(True, moment)]


def test_a_counter_of_before_is_no_event(tmp_path: Path) -> None:
    """Preemptions since the engine's start; one more is one."""
    flight = Flight(tmp_path)
    lives(flight, 100, preempted=7)
    assert [one.event for one in episodes_of(pools(flight)[0].signals)] == [False]
    lives(flight, 1, preempted=8)

    assert [one.event for one in episodes_of(pools(flight)[0].signals)] == [True]


def test_a_host_that_was_started_anew_is_another_recording(tmp_path: Path) -> None:
    """Its clock begins anew."""
    flight = Flight(tmp_path)
    flight.clock.now = 5000.0
    lives(flight, 20)
    flight.clock.now = 100.0
    flight.begin_recording("two")
    lives(flight, 20)

    assert [len(one.signals) for one in pools(flight)] == [20, 20]


def run(folder: Path, *options: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["backtest", str(folder), *options])
    return done.exit_code, done.output


def test_the_command_reads_them() -> None:
    """Beside the baselines, by engine."""
    code, output = run(RECORDED, "--json")

    assert code == 0
    assert '"recordings":8,' in output.replace(" ", "")
    assert '"vllm":' in output
    assert '"predict_linear 5 min":' in output


def test_the_recording_of_an_earlier_agent_is_read(tmp_path: Path) -> None:
    """Of the first format."""
    (tmp_path / "old.vramscope").write_bytes(FORMAT_1.read_bytes())
    code, output = run(tmp_path)

    assert code == 0
    assert "1 recordings, 0.0 h: 1 episodes, 1 with an event" in output


def test_one_that_is_damaged_counts_up_to_there(tmp_path: Path) -> None:
    """With a sentence."""
    content = bytearray(FORMAT_1.read_bytes())
    content[len(content) * 3 // 4] ^= 1
    (tmp_path / "half.vramscope").write_bytes(content)
    code, output = run(tmp_path)

    assert code == 0
    assert "1 recordings" in output
    assert "half.vramscope: damaged at byte" in " ".join(output.split())


def test_what_can_not_be_read_is_said_in_a_sentence(tmp_path: Path) -> None:
    """None of ours, one that was cut in its first second, one without a pool."""
    path = tmp_path / "bad.vramscope"
    path.write_bytes(b"GIF89a" * 9)
    code, output = run(tmp_path)
    assert (code, "bad.vramscope: no recording of vramscope" in output) == (2, True)

    path.write_bytes(FORMAT_1.read_bytes()[:100])
    code, output = run(tmp_path)
    assert (code, "ends within its first second" in output) == (2, True)

    flight = Flight(tmp_path)
    flight.ticks()
    flight.writer.flush()
    path.write_bytes(flight.file.read_bytes())
    flight.file.unlink()
    for segment in flight.ring.segments():
        segment.unlink()
    code, output = run(tmp_path)
    assert (code, "no KV pool was read" in output) == (2, True)
