"""What is current and what is not, on a clock of the test's own."""

from msgspec.structs import replace

from agent.snapshot import Recording
from agent.top.seen import Seen
from tests.agent.top.nodes import eight


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def _seen() -> tuple[Seen, Clock]:
    clock = Clock()
    return Seen("here", clock=clock), clock


def test_figures_that_move_are_current() -> None:
    """However often they are asked for."""
    seen, clock = _seen()
    for tick in range(10):
        seen.took(eight(tick))
        assert seen.shown().problem is None
        clock.now += 1


def test_a_failure_is_said_with_the_age_of_what_is_shown() -> None:
    """Until it answers again."""
    seen, clock = _seen()
    seen.took(eight(0))
    clock.now += 12
    seen.lost("it is gone")
    assert seen.shown().problem == "NOT CURRENT, 12 s old: it is gone"
    assert seen.shown().snapshot == eight(0)

    seen.took(eight(13))
    assert seen.shown().problem is None


def test_before_the_first_answer_only_the_failure_is_said() -> None:
    """There is nothing that could be old."""
    seen, _ = _seen()
    assert seen.shown().problem is None
    seen.lost("it is gone")
    assert seen.shown().problem == "it is gone"


def test_figures_that_stand_still_are_not_current() -> None:
    """After three of their own rhythms, 5 s at least."""
    seen, clock = _seen()
    seen.took(eight(0))
    seen.took(eight(4))
    for problem in (None, "NOT CURRENT: it answers, but its figures stand still for 13 s"):
        clock.now += 11 if problem is None else 2
        seen.took(eight(4))
        assert seen.shown().problem == problem


def test_a_recording_at_its_end_stands_still_rightly() -> None:
    """It says itself that it is no present."""
    seen, clock = _seen()
    seen.took(replace(eight(0), recording=Recording(file="f", started_at=0.0)))
    clock.now += 600
    assert seen.shown().problem is None


def test_it_is_asked_at_the_rhythm_of_its_figures() -> None:
    """Once a second at the default rhythm, and less where figures change less often."""
    seen, _ = _seen()
    for spacing, pause in ((1, 1.0), (6, 3.0), (60, 5.0)):
        seen.took(eight(0))
        seen.took(eight(spacing))
        assert seen.pause_seconds == pause
