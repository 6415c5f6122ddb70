"""``python -Im agent``, and the console script."""

import sys

from agent.cli import run


def main() -> int:
    """0 done, 1 failed at run time, 2 wrong usage, settings or input."""
    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
