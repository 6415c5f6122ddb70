"""Headers of safetensors files: only what adds up is believed."""

import contextlib
import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collectors.errors import CollectorError, Unreadable
from collectors.safetensors import Tensor, read_header
from tests.collectors.checkpoints import header_of, write_raw, write_safetensors


def test_a_header_gives_names_types_and_bytes(tmp_path: Path) -> None:
    """The metadata entry is no tensor; an empty tensor has no bytes."""
    path = tmp_path / "a.safetensors"
    write_safetensors(path, {"model.norm.weight": ("BF16", 128), "x": ("F8_E4M3", 0)})

    assert list(read_header(path)) == [Tensor("model.norm.weight", "BF16", 128), Tensor("x", "F8_E4M3", 0)]


def test_a_large_header_is_never_held_as_a_whole(tmp_path: Path) -> None:
    """40 thousand tensors: 3 MB of text come in pieces, and all of them come out."""
    path = tmp_path / "a.safetensors"
    write_safetensors(path, {f"model.layers.{number}.weight": ("BF16", number % 7) for number in range(40_000)})
    tracemalloc.start()

    found = sum(tensor.bytes for tensor in read_header(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert found == sum(number % 7 for number in range(40_000))
    assert peak < 1_500_000


def test_a_huge_file_costs_only_its_header(tmp_path: Path) -> None:
    """A terabyte of data, a hole on disk, is never looked at."""
    path = tmp_path / "a.safetensors"
    write_safetensors(path, {"w": ("BF16", 1 << 40)})

    assert list(read_header(path)) == [Tensor("w", "BF16", 1 << 40)]


def entry(begin: object, end: object, dtype: object = "BF16") -> bytes:
    return json.dumps({"w": {"dtype": dtype, "shape": [1], "data_offsets": [begin, end]}}).encode()


@pytest.mark.parametrize(
    ("header", "data_bytes", "reason", "message"),
    [
        (b"{not json", 0, "malformed", "expected a safetensors header in JSON"),
        (b"[]", 0, "malformed", "expected a safetensors header in JSON"),
        (b"\xff\xfe", 0, "malformed", "expected a safetensors header in JSON"),
        (b"{" + b'"a":{' * 3000, 0, "malformed", "expected a safetensors header in JSON"),
        (entry("0", "8"), 8, "malformed", "expected a safetensors header in JSON"),
        (entry(0, 8, dtype=3), 8, "malformed", "expected a safetensors header in JSON"),
        (entry(8, 0), 8, "malformed", "ascending data_offsets of tensor 'w'"),
        (entry(-8, 0), 8, "malformed", "ascending data_offsets of tensor 'w'"),
        (b'{"w": {"dtype": "BF16"}}', 8, "malformed", "ascending data_offsets of tensor 'w'"),
        (b'{"w": {"data_offsets": [0, 8]}}', 8, "malformed", "ascending data_offsets of tensor 'w'"),
        (entry(0, 100), 8, "truncated", "cut off: expected"),
    ],
)
def test_a_header_that_does_not_add_up(
    tmp_path: Path, header: bytes, data_bytes: int, reason: str, message: str
) -> None:
    """One sentence with the file, what was expected and what to do."""
    path = tmp_path / "a.safetensors"
    write_raw(path, header, data_bytes)

    with pytest.raises(Unreadable, match=r"^[^\n]*a\.safetensors: [^\n]*; [^\n]*download it again$|cut off") as caught:
        list(read_header(path))
    assert caught.value.reason == reason
    assert message in str(caught.value)


def test_tensors_that_overlap_are_not_counted_twice(tmp_path: Path) -> None:
    """Two tensors claim the same 8 bytes."""
    path = tmp_path / "a.safetensors"
    header = {name: {"dtype": "BF16", "data_offsets": [0, 8]} for name in "ab"}
    write_raw(path, json.dumps(header).encode(), 8)

    with pytest.raises(Unreadable, match="expected tensors that fit into 8 bytes, got 16"):
        list(read_header(path))


@pytest.mark.parametrize(
    ("content", "reason", "message"),
    [
        (b"", "truncated", "cut off: expected 8 bytes, got 0"),
        (b"\x01\0", "truncated", "cut off"),
        ((1000).to_bytes(8, "little") + b"{}", "truncated", "cut off: expected 1008 bytes, got 10"),
        (b"\xff" * 64, "malformed", "expected a safetensors header of at most 100000000 bytes"),
        (b"GGUF" + b"\x03\0\0\0" * 8, "malformed", "expected a safetensors header of at most"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "lfs_pointer", "run git lfs pull"),
    ],
)
def test_other_files(tmp_path: Path, content: bytes, reason: str, message: str) -> None:
    """Empty, cut off, another format, or the pointer that git leaves in place of a large file."""
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)

    with pytest.raises(Unreadable) as caught:
        list(read_header(path))
    assert caught.value.reason == reason
    assert message in str(caught.value)


names = st.text(max_size=20) | st.just("__metadata__")
numbers = st.integers(-(2**70), 2**70) | st.floats() | st.none() | st.text(max_size=3)
entries = st.dictionaries(
    st.sampled_from(["dtype", "shape", "data_offsets", "x"]), numbers | st.lists(numbers, max_size=3)
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary(max_size=200) | st.dictionaries(names, entries, max_size=4).map(lambda value: json.dumps(value).encode())
)
def test_no_header_raises_anything_but_a_collector_error(tmp_path: Path, header: bytes) -> None:
    """Random bytes, and JSON of nearly the right shape."""
    path = tmp_path / "a.safetensors"
    write_raw(path, header, 16)

    with contextlib.suppress(CollectorError):
        assert sum(tensor.bytes for tensor in read_header(path)) <= 16


def test_the_writer_of_these_tests_writes_what_the_format_says() -> None:
    """Offsets follow each other without a gap."""
    header = header_of({"a": ("BF16", 4), "b": ("F32", 8)})

    assert header["a"]["data_offsets"] == [0, 4]
    assert header["b"]["data_offsets"] == [4, 12]
