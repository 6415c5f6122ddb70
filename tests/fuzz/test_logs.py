"""Logs of engines: no line, however it is made, does anything but give possible sizes; no time runs away."""

import re
from pathlib import Path

from hypothesis import strategies as st

from collectors.containers import container_of, container_of_log, pod_of_folder
from collectors.engine_logs.failures import FAILURES
from collectors.engine_logs.llama_cpp import LLAMA_CPP, OLLAMA
from collectors.engine_logs.parsing import MAX_RANKS, LogParser
from collectors.engine_logs.sglang import FORMAT as SGLANG
from collectors.engine_logs.tail import MAX_LINE_BYTES, marked_lines
from collectors.engine_logs.vllm import FORMAT as VLLM
from collectors.readings import LogReading, RankLog
from tests.collectors.engine_logs.test_failures import LINES
from tests.collectors.engine_logs.test_llama_cpp import BUFFERS
from tests.collectors.engine_logs.test_sglang import SHAPES as SGLANG_SHAPES
from tests.collectors.engine_logs.test_vllm import RANKS
from tests.collectors.engine_logs.test_vllm import SHAPES as VLLM_SHAPES
from tests.collectors.test_containers import GROUPS
from tests.fuzz.mutations import damaged_bytes, damaged_text
from tests.fuzz.trying import tried

FORMATS = (VLLM, SGLANG, LLAMA_CPP, OLLAMA)
FIXTURES = Path(__file__).parent.parent / "fixtures"
WHOLE = [path.read_bytes() for path in sorted(FIXTURES.rglob("*.log"))][:12]
SINGLE = [
    *(f"{prefix} {line}\n".encode() for prefix in RANKS for line, _ in VLLM_SHAPES.values()),
    *("\n".join(lines).encode() + b"\n" for lines, _ in SGLANG_SHAPES.values()),
    *(f"{line}\n".encode() for line, _, _ in LINES.values()),
    "\n".join(BUFFERS).encode(),
]
MARKS = sorted({mark for log in FORMATS for mark in LogParser(log).marks})
pieces = st.lists(st.sampled_from(MARKS) | st.binary(max_size=6) | st.sampled_from([b"\n", b"9" * 30, b" GiB", b"["]))


def parsed(data: bytes) -> list[LogReading]:
    found = []
    for log in FORMATS:
        parser = LogParser(log)
        for line in marked_lines(data, parser.marks):
            assert len(line) <= MAX_LINE_BYTES
            parser.take(line, 1.0)
        found.append(parser.reading(1.0))
    return found


@tried(damaged_bytes(SINGLE) | damaged_bytes(WHOLE) | pieces.map(b"".join))
def test_what_is_read_of_any_log_is_possible(data: bytes) -> None:
    """Sizes and counts of zero and more, of so many ranks at most; failures of kinds there are."""
    for reading in parsed(data):
        assert len(reading.ranks) <= MAX_RANKS
        for rank in reading.ranks:
            sizes = [getattr(rank, name) for name in RankLog.__struct_fields__[2:]]
            assert all(size is None or 0 <= size <= 2**54 for size in sizes)
        assert all(count > 0 for count in reading.failures.values())
        assert (reading.last_failure is None) == (not reading.failures)
        if reading.last_failure is not None:
            assert all(0 <= figure <= 2**50 for figure in reading.last_failure.figures.values())
        assert reading.version is None or re.fullmatch(r"[\w.+-]{1,40}", reading.version)


@tried(
    st.sampled_from(MARKS),
    st.sampled_from([b" ", b"9", b".", b", ", b"GiB ", b"_A1", b" end.", b"(", b"mem usage="]),
)
def test_no_line_takes_long(mark: bytes, filler: bytes) -> None:
    """Repetitions of what a pattern begins with and of what it repeats, as many as a line may have."""
    for line in (mark + filler * 2000, (mark + filler) * 200, filler * 2000 + mark):
        parsed(line)


def test_every_mark_of_a_failure_is_in_no_other_of_another_kind() -> None:
    """The first that matches decides."""
    for one in FAILURES:
        assert {other.kind for other in FAILURES if other.mark in one.mark} == {one.kind}


@tried(damaged_text([text for text, _ in GROUPS.values()]) | st.text())
def test_any_control_group_has_one_container_or_none(text: str) -> None:
    """Ids of their shape and length only, since they become labels and parts of paths."""
    container = container_of(text)

    assert container is None or container.id is None or re.fullmatch(r"[0-9a-f]{64}|[0-9a-f]{32}-\d+", container.id)
    for found in (pod_of_folder(text), container_of_log(text)):
        assert found is None or "/" not in f"{found.pod}{found.namespace}{found.name}"
