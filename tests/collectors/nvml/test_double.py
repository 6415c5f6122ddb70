"""The double as the real binding sees it: what a driver does that the agent must not trip over."""

import json
import subprocess
import sys
from typing import Any

import pytest
from msgspec.structs import replace

from tests.collectors.nvml.node import MIB, ONE, TWO, Node, process
from tests.double.build import environment

PRELUDE = """
import json, pynvml
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)

def code_of(function, *arguments):
    try:
        function(*arguments)
    except pynvml.NVMLError as error:
        return error.value
    return 0
"""


def run(node: Node, program: str) -> Any:
    """What ``answer`` is after the program, in a process whose driver is the double."""
    assert node.library is not None
    text = f"{PRELUDE}\n{program}\nprint(json.dumps(answer))"
    command = [sys.executable, "-Ic", text]
    done = subprocess.run(
        command, env=environment(node.library, node.state_file), check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize(("word", "code"), [("2", 13), ("1", 13), ("pynvml.nvmlMemory_v2 + 1", 13), ("0x02000028", 0)])
def test_version_word(double: Node, word: str, code: int) -> None:
    """Any word but the composite one is answered with FUNCTION_NOT_FOUND, as drivers do."""
    double.write(ONE)

    assert run(double, f"answer = code_of(pynvml.nvmlDeviceGetMemoryInfo, handle, {word})") == code


def test_v1_and_v2(double: Node) -> None:
    """v1 hides reserved in used, v2 shows it apart; free and total are the same."""
    double.write(ONE)

    v1, v2 = run(
        double,
        "v1 = pynvml.nvmlDeviceGetMemoryInfo(handle)\n"
        "v2 = pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2)\n"
        "answer = [[v1.total, v1.free, v1.used], [v2.total, v2.free, v2.used, v2.reserved]]",
    )

    assert v1 == [81559 * MIB, 61080 * MIB, 20479 * MIB]
    assert v2 == [81559 * MIB, 61080 * MIB, 20000 * MIB, 479 * MIB]


def test_process_handshake(double: Node) -> None:
    """The first call tells the size, the second fills it; hidden bytes and no MIG instance are all ones."""
    double.write(replace(ONE, gpu_processes=(process(100, 5), process(200, None))))

    answer = run(
        double,
        "import ctypes\n"
        "fetch = pynvml.nvmlLib.nvmlDeviceGetComputeRunningProcesses_v3\n"
        "count = ctypes.c_uint(0)\n"
        "first = [fetch(handle, ctypes.byref(count), None), count.value]\n"
        "small = (pynvml.c_nvmlProcessInfo_v3_t * 1)()\n"
        "count.value = 1\n"
        "second = [fetch(handle, ctypes.byref(count), small), count.value]\n"
        "room = (pynvml.c_nvmlProcessInfo_v3_t * 4)()\n"
        "count.value = 4\n"
        "third = [fetch(handle, ctypes.byref(count), room), count.value]\n"
        "answer = [first, second, third, [room[1].pid, room[1].usedGpuMemory, room[1].gpuInstanceId]]",
    )

    assert answer == [[7, 2], [7, 2], [0, 2], [200, 2**64 - 1, 2**32 - 1]]


def test_lookup_by_uuid(double: Node) -> None:
    """A handle by UUID is the same device; an unknown UUID is NOT_FOUND, an index beyond the count INVALID_ARGUMENT."""
    double.write(TWO)

    answer = run(
        double,
        "other = pynvml.nvmlDeviceGetHandleByUUID('GPU-b')\n"
        "pci = pynvml.nvmlDeviceGetPciInfo(other)\n"
        "answer = [pynvml.nvmlDeviceGetIndex(other), pynvml.nvmlDeviceGetName(other), pci.busId, pci.bus,\n"
        "          code_of(pynvml.nvmlDeviceGetHandleByUUID, 'GPU-c'), code_of(pynvml.nvmlDeviceGetHandleByIndex, 2),\n"
        "          pynvml.nvmlSystemGetNVMLVersion()]",
    )

    assert answer == [1, "NVIDIA H100 80GB HBM3", "00000000:1B:00.0", 0x1B, 6, 2, "13.0.0"]


def test_calls_outside_a_session(double: Node) -> None:
    """After the shutdown every call is UNINITIALIZED; what the double does not know has words of its own."""
    double.write(ONE)

    answer = run(
        double,
        "pynvml.nvmlShutdown()\n"
        "answer = [code_of(pynvml.nvmlDeviceGetMemoryInfo, handle), code_of(pynvml.nvmlDeviceGetCount),\n"
        "          code_of(pynvml.nvmlShutdown), str(pynvml.NVMLError(77))]",
    )

    assert answer == [1, 1, 1, "Error 77 of the double"]


def test_delay(double: Node) -> None:
    """A slow call takes at least as long as it is told to."""
    double.write(replace(ONE, delays=(("memory", 30000),)))

    took = run(
        double,
        "import time\n"
        "started = time.monotonic()\n"
        "pynvml.nvmlDeviceGetMemoryInfo(handle)\n"
        "answer = time.monotonic() - started",
    )

    assert took >= 0.03
