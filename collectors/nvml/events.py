"""Xid events: each GPU is waited on in a thread of its own, since the wait is a call of the driver that may hang."""

import threading
import time
from collections.abc import Callable

from collectors.nvml import faults
from collectors.nvml.driver import Driver, NvmlFault
from collectors.nvml.xids import XIDS

WAIT_SECONDS = 5.0
PAUSE_SECONDS = 5.0  # after a wait that failed, as it does at once while a GPU is lost


class XidEvents:
    """Hands over ``(UUID, Xid)`` as they happen, those that concern memory; ``report`` is called in other threads."""

    def __init__(self, driver: Driver, report: Callable[[str, int], None]) -> None:
        self._driver = driver
        self._report = report
        self._watched: dict[str, bool] = {}

    def watch(self, index: int, uuid: str) -> bool:
        """Wait for a GPU's events from now on; False where it has none to wait for.

        Raises:
            NvmlFault: the driver as a whole does not answer.
        """
        if uuid not in self._watched:
            self._watched[uuid] = self._begin(index, uuid)
        return self._watched[uuid]

    def _begin(self, index: int, uuid: str) -> bool:
        try:
            wait = self._driver.events(index)
        except NvmlFault as fault:
            if fault.code in faults.WHOLE_DRIVER:
                raise
            return False
        threading.Thread(target=self._follow, args=(uuid, wait), daemon=True, name=f"events {index}").start()
        return True

    def _follow(self, uuid: str, wait: Callable[[float], int | None]) -> None:
        while True:
            try:
                xid = wait(WAIT_SECONDS)
            except NvmlFault as fault:
                if fault.code in faults.WHOLE_DRIVER:
                    return
                time.sleep(PAUSE_SECONDS)
                continue
            if xid in XIDS:
                self._report(uuid, xid)
