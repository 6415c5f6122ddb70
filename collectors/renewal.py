"""When figures were renewed that an engine writes only now and then: at the reading that first shows others."""

FRESH_SECONDS = 10.0


class Renewal:
    """Of one server. Figures that never changed are of an unknown age, and so not fresh."""

    def __init__(self) -> None:
        self._shown: object = None
        self._at: float | None = None

    def seen(self, figures: object, at: float) -> float | None:
        """The time from which these figures are, on the clock of ``at``; None where that is not known."""
        if self._shown is not None and figures != self._shown:
            self._at = at
        self._shown = figures
        return self._at

    def lost(self) -> None:
        """The server may have been started anew."""
        self._shown = self._at = None


def is_fresh(renewed_at: float | None, at: float) -> bool:
    return renewed_at is not None and at - renewed_at <= FRESH_SECONDS
