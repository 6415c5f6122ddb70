"""The process that calls NVML: ``python -Im collectors.nvml.child``. Its parent is ``collectors.nvml.source``.

Writes JSON lines to stdout: one pass as ``{"reading": NodeReading}``, an error that the driver reported as
``{"xid": XidEvent}``, at any moment, or ``{"fault": Fault}`` before it ends because no pass is possible. Enters
the step it is in before each call, so that the parent knows what hung. Imports only the standard library and pynvml
(the simulated driver on demand). Times are CLOCK_MONOTONIC, which all processes of a host share.
"""

import argparse
import contextlib
import ctypes
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from collectors.nvml import faults
from collectors.nvml.binding import PynvmlDriver
from collectors.nvml.driver import Driver, NvmlFault
from collectors.nvml.events import XidEvents
from collectors.nvml.passes import Passes, no_events, rest_seconds
from collectors.nvml.step import Step

PR_SET_PDEATHSIG = 1


def main() -> int:
    arguments = _arguments()
    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    out = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints must not land between our lines
    one_at_a_time = threading.Lock()

    def write(line: str) -> None:
        rest = line.encode() + b"\n"
        with one_at_a_time:
            while rest:
                rest = rest[os.write(out, rest) :]

    with contextlib.suppress(BrokenPipeError):  # nobody listens any more
        try:
            _run(arguments, write, alive=lambda: os.getppid() == parent)
        except NvmlFault as fault:
            write(json.dumps({"fault": faults.explain(fault.code, fault.text)}))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="collectors.nvml.child", allow_abbrev=False)
    parser.add_argument("--step", type=int, required=True, metavar="DESCRIPTOR", help="where to enter the step")
    parser.add_argument("--memory-interval", type=float, required=True, help="seconds")
    parser.add_argument("--processes-interval", type=float, required=True, help="seconds")
    parser.add_argument("--skip", type=int, action="append", default=[], metavar="INDEX", help="leave this GPU out")
    parser.add_argument("--only", type=int, metavar="INDEX", help="leave all other GPUs out")
    parser.add_argument("--proc", type=Path, default=Path("/proc"), help="where the host's memory figures are")
    parser.add_argument("--simulated", type=Path, metavar="STATE_FILE", help="read a node state file, not the driver")
    return parser.parse_args()


def _run(arguments: argparse.Namespace, write: Callable[[str], None], *, alive: Callable[[], bool]) -> None:
    """Pass after pass while the parent lives."""

    step = Step(arguments.step)

    def announce(entered: str) -> None:
        step.enter(entered, time.monotonic())

    def report(uuid: str, xid: int) -> None:
        with contextlib.suppress(BrokenPipeError):
            write(json.dumps({"xid": {"uuid": uuid, "xid": xid}}))

    driver = _driver(arguments)
    announce("init")
    driver.start()
    passes = Passes(
        driver,
        announce=announce,
        clock=time.monotonic,
        processes_interval_seconds=arguments.processes_interval,
        watch_events=XidEvents(driver, report).watch if arguments.only is None else no_events,
        skip=arguments.skip,
        only=arguments.only,
    )
    while alive():
        started = time.monotonic()
        write(json.dumps({"reading": passes.read()}, separators=(",", ":")))
        passes.rest(rest_seconds(arguments.memory_interval, time.monotonic() - started))


def _driver(arguments: argparse.Namespace) -> Driver:
    if arguments.simulated is None:
        return PynvmlDriver(arguments.proc)
    from collectors.simulated.driver import SimulatedDriver

    return SimulatedDriver(arguments.simulated)


if __name__ == "__main__":
    raise SystemExit(main())
