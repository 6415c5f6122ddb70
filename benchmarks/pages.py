"""Metrics pages as large as real ones: the recorded page with its help lines back, and with sixteen replicas on it."""

import re
from pathlib import Path

RECORDED = Path(__file__).parent.parent / "tests" / "fixtures" / "vllm" / "0.32.0" / "metrics_growing.txt"
_HELP_LENGTH = 85  # of vLLM's own help texts, on average
_REPLICA = 'engine="0"'


def page(replicas: int) -> str:
    """A page of one server: each sample of the recorded replica repeated under ``replicas`` ranks.

    The recording has no help lines; they are filled in, since a reader has to pass over them.
    """
    lines: list[str] = []
    for line in RECORDED.read_text(encoding="utf-8").splitlines():
        family = re.match(r"# TYPE (\S+)", line)
        if family:
            lines.append(f"# HELP {family[1]} {'x' * _HELP_LENGTH}")
        count = replicas if _REPLICA in line else 1
        lines += [line.replace(_REPLICA, f'engine="{rank}"') for rank in range(count)]
    return "\n".join(lines) + "\n"
