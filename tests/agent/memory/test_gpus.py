"""GPUs by name."""

import pytest

from agent.memory.budget import Device
from agent.memory.gpus import GPUS, find_gpu, find_gpus

H100 = Device(name="NVIDIA H100 80GB HBM3", total_bytes=85_520_809_984, cuda_bytes=85_018_542_080)


@pytest.mark.parametrize("text", ["h100", "H100", "NVIDIA H100 80GB HBM3", "h100-80gb", "H100 80GB HBM3"])
def test_names_and_aliases(text: str) -> None:
    """81,559 MiB of which the driver reserves 479."""
    assert find_gpu(text) == H100


def test_bytes() -> None:
    """A number is an NVML total; what the driver reserves of it is not known."""
    assert find_gpu("85520809984") == Device(total_bytes=85_520_809_984)


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_every_row_is_found_by_each_of_its_names(gpu: object) -> None:
    """No alias is taken twice, and none hides a product name."""
    row = next(row for row in GPUS if row is gpu)

    assert {find_gpu(name).name for name in (row.name, *row.aliases)} == {row.name}


@pytest.mark.parametrize(
    ("name", "gib"),
    [("h200", 139.80), ("h100", 79.18), ("a100", 79.25), ("b200", 178.35), ("l4", 21.95), ("rtx4090", 23.64)],
)
def test_cuda_totals(name: str, gib: float) -> None:
    """Total less reserve is what CUDA was seen to show."""
    assert (find_gpu(name).cuda_bytes or 0) / (1 << 30) == pytest.approx(gib, abs=0.01)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("h1000", "unknown GPU 'h1000'; close names: NVIDIA H100 80GB HBM3,"),
        ("toaster", "unknown GPU 'toaster'; known names: h200, h100,"),
        ("80", "unknown GPU '80'; "),
    ],
)
def test_unknown_names(text: str, said: str) -> None:
    """Close names, or all of them."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared
        find_gpu(text)

    assert str(caught.value).startswith(said)
    assert str(caught.value).endswith("; or give its NVML total in bytes")


@pytest.mark.parametrize(
    ("text", "name", "count"),
    [
        ("h100x8", "NVIDIA H100 80GB HBM3", 8),
        ("8xH100", "NVIDIA H100 80GB HBM3", 8),
        ("rtx4090", "NVIDIA GeForce RTX 4090", 1),
        ("rtx4090x2", "NVIDIA GeForce RTX 4090", 2),
        ("2 x rtx4090", "NVIDIA GeForce RTX 4090", 2),
        ("H100 MIG 3g.40gb", "NVIDIA H100 MIG 3g.40gb", 1),
        ("85520809984x4", None, 4),
    ],
)
def test_several(text: str, name: str | None, count: int) -> None:
    """A number before or after an x; an x of a name is none."""
    device, found = find_gpus(text)

    assert (device.name, found) == (name, count)


def test_a_gpu_without_a_total() -> None:
    """NVML tells none of a GB10, CUDA sees the host's memory."""
    assert find_gpu("gb10") == Device(name="NVIDIA GB10", total_bytes=None, cuda_bytes=127_600_748 * 1024)


@pytest.mark.parametrize(
    ("text", "said"),
    [("h100x0", "expected 1 to 1024 GPUs, got 'h100x0'"), ("h1000x8", "unknown GPU 'h1000'; close names: ")],
)
def test_unknown_numbers(text: str, said: str) -> None:
    """One sentence."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared
        find_gpus(text)

    assert str(caught.value).startswith(said)
