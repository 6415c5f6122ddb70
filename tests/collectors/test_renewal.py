"""When figures were renewed that an engine writes only now and then."""

from collectors.renewal import FRESH_SECONDS, Renewal, is_fresh


def test_figures_are_from_the_look_that_first_shows_them() -> None:
    """Before they changed once, and after the server was lost, their age is not known."""
    renewal = Renewal()

    assert [renewal.seen(*look) for look in ((1, 1.0), (1, 2.0), (2, 3.0), (2, 4.0))] == [None, None, 3.0, 3.0]
    renewal.lost()
    assert renewal.seen(3, 5.0) is None


def test_fresh_figures() -> None:
    """For ten seconds; those of an unknown age are not."""
    assert is_fresh(1.0, 1.0 + FRESH_SECONDS)
    assert not is_fresh(1.0, 1.1 + FRESH_SECONDS)
    assert not is_fresh(None, 1.0)
