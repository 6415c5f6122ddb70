"""Values on a page that are old although the page is new: left over from an earlier run, or standing still."""

from collectors.errors import CollectorError
from collectors.vllm.page import Page

STILL_SECONDS = 60.0
_LEFT_OVER = (
    "nothing listened for a while, yet the counters went on from where they were: values of an earlier run, when "
    "PROMETHEUS_MULTIPROC_DIR was not emptied before the start"
)
_STILL = (
    "the KV pool has stood at {ratio:.1%} for {seconds:.0f} s with no request running or waiting: "
    "it may be an old value"
)


class Doubts:
    """Remembers what the last pages of one server said; a doubt is a note, the values are passed on."""

    def __init__(self) -> None:
        self._last: Page | None = None
        self._gone = False
        self._left_over = False
        self._still: tuple[float, float] | None = None  # since when the pool has been at which ratio

    def lost(self, error: CollectorError) -> None:
        """There was no page; where nothing listened, the server's run has ended."""
        self._gone = self._gone or error.reason == "refused"
        self._still = None

    def about(self, page: Page, at: float) -> tuple[str, ...]:
        """What makes this page, read at ``at``, doubtful."""
        if self._gone:
            self._left_over = page.started_at is None and _went_on(self._last, page)
        self._last, self._gone = page, False
        notes = (_LEFT_OVER,) if self._left_over else ()
        return (*notes, *self._about_still(page, at))

    def _about_still(self, page: Page, at: float) -> tuple[str, ...]:
        """Blocks that no request holds are freed within a step; a transfer to another server may keep them longer."""
        ratio = max(page.values["used_ratio"].values(), default=0.0)
        requests = [*page.values["running"].values(), *page.values["waiting"].values()]
        if not 0 < ratio <= 1 or not requests or any(requests):
            self._still = None
            return ()
        since, before = self._still or (at, ratio)
        self._still = (since, ratio) if before == ratio else (at, ratio)
        seconds = at - self._still[0]
        return (_STILL.format(ratio=ratio, seconds=seconds),) if seconds >= STILL_SECONDS else ()


def _went_on(before: Page | None, after: Page) -> bool:
    """Whether no counter began anew, although a fresh process counts from 0."""
    if before is None:
        return False
    counts = [(page.values["prompt_tokens"], page.values["generation_tokens"]) for page in (before, after)]
    sums = [sum(sum(values.values()) for values in pair) for pair in counts]
    return 0 < sums[0] <= sums[1]
