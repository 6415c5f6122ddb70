"""What a full pool means, engine by engine."""

from agent.memory.exhaustion import ENGINES, UNKNOWN, exhaustion_of
from collectors.registry import ENGINES as KNOWN

REPLACED = {"nim"}  # stands for the engine that it starts


def test_every_engine_has_a_row() -> None:
    """But those that are another in a wrapper."""
    assert set(KNOWN) - REPLACED == set(ENGINES)


def test_a_state_is_taken_at_admission() -> None:
    """Whatever the engine: new requests wait, and nothing grows."""
    found = exhaustion_of("vllm", "state")

    assert (found.outcome, found.reserves) == ("queue", True)


def test_an_engine_that_is_not_known_is_believed_nothing() -> None:
    assert exhaustion_of("another", "full") == UNKNOWN
