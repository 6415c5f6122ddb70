"""The replicas of one run of a server: how many share the reported sum of blocks does not change with what a page has.

A replica whose process has hung or died may be missing on a page; its series may come back.
"""

from msgspec.structs import replace

from collectors.errors import CollectorError
from collectors.vllm.page import MAX_REPLICAS, Page


class Replicas:
    """Remembers those that the pages of one server had since its start."""

    def __init__(self) -> None:
        self._run: object = None
        self._seen: tuple[str, ...] = ()

    def lost(self, error: CollectorError) -> None:
        """There was no page; where nothing listened, the server's run has ended."""
        if error.reason == "refused":
            self._seen = ()

    def of(self, page: Page) -> Page:
        """The page with those that are missing on it, which have no values.

        Another start, or another sum of blocks, is another run; so is a page of other families than before.
        """
        run = (page.started_at, {labels.get("num_gpu_blocks") for labels in page.cache_config.values()})
        seen, families = self._seen if run == self._run else (), {_family(name) for name in page.replicas}
        missing = tuple(name for name in seen if name not in page.replicas and _family(name) in families)
        self._run, self._seen = run, (*page.replicas, *missing)[:MAX_REPLICAS]
        return replace(page, replicas=self._seen, missing=missing) if missing else page


def _family(replica: str) -> str:
    return replica.rpartition("/")[0]
