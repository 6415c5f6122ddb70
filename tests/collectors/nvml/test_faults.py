"""The table that turns NVML's codes into words."""

import re

import pytest

from collectors.nvml import faults
from collectors.nvml.faults import MEANINGS, OTHER, explain
from collectors.readings import Fault

DOCUMENTED = (1, 2, 3, 4, 6, 7, 9, 10, 12, 13, 15, 16, 17, 18, 19, 20, 23, 25, 26, 27, 28, 29, 999)
OWN = (faults.INCONSISTENT, faults.PROCESS_STRUCTS, faults.CHILD_DIED, faults.PROTOCOL)


@pytest.mark.parametrize("code", [*DOCUMENTED, *OWN])
def test_every_code_has_words(code: int) -> None:
    """Each code a driver is known to answer has a reason fit for a label, a sentence and a hint."""
    reason, sentence, hint = MEANINGS[code]

    assert re.fullmatch(r"[a-z][a-z_0-9]*", reason)
    assert sentence
    assert hint
    assert not sentence.endswith(".")


def test_reasons_are_distinct() -> None:
    """A reason stands for one code."""
    reasons = [meaning.reason for meaning in (*MEANINGS.values(), OTHER)]

    assert len(set(reasons)) == len(reasons)


def test_explained() -> None:
    """The message is one sentence: what is wrong, the code and the detail, what to do."""
    fault = Fault(**explain(15, "GPU is lost"))

    assert fault.reason == "gpu_lost"
    assert fault.message == (
        "the GPU has fallen off the bus (NVML error 15, GPU is lost): see the kernel log for Xid 79; reset it or reboot"
    )


def test_unknown_code_is_named() -> None:
    """A code that is not in the table still tells its number."""
    fault = Fault(**explain(4711))

    assert fault.reason == "other"
    assert "NVML error 4711" in fault.message
