"""Recordings of real servers."""

from pathlib import Path

from agent.backtest.episodes import episodes_of
from agent.backtest.recordings import read_recording
from agent.backtest.report import backtest

FOLDER = Path("tests/fixtures/forecast")


def test_vllms_preemption_is_seen_before_it_is_counted() -> None:
    """Two of four are gone at 5.8 s, three wait, use fell from 0.99; the counter moved at 7.0 s."""
    (first,) = episodes_of(read_recording(FOLDER / "vllm-0.32.0.signals.jsonl").signals)

    assert (first.event, first.end) == (True, 5.8)


def test_requests_that_end_are_no_retraction() -> None:
    """Use of an SGLang falls by half again and again, and nothing was retracted."""
    (only,) = episodes_of(read_recording(FOLDER / "sglang-0.5.23.signals.jsonl").signals, live_gauges=False)

    assert not only.event


def test_what_fills_in_seconds_raises_no_false_alarm_beside_the_event() -> None:
    """The vLLM pool is full 6 s after it was empty; on SGLang's, which empties by itself, nobody is woken."""
    result = backtest([read_recording(path) for path in sorted(FOLDER.glob("*.jsonl"))])

    assert result.events == 1
    assert result.groups["sglang 0.5.23"].alarms_per_hour == 0
