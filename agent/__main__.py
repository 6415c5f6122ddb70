"""``python -Im agent``, and the console script."""

import signal
import sys


def main() -> int:
    """0 done, 1 failed at run time, 2 wrong usage, settings or input, 128 + N ended by signal N before it could listen.

    Imports come after the handlers: they take a while, in which a signal is answered as at any other time.
    """
    if sys.argv[1:2] == ["run"]:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})  # until there is something to reload
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        from agent.cli import run

        return run(sys.argv[1:])
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
