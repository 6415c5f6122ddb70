"""Which rank an SGLang process title names: ``sglang::scheduler``, ``sglang::scheduler_DP1_PP0_TP3_EP3``.

Source: SGLang ``srt/managers/scheduler.py``, 0.4.6 to 0.5.23.
"""

import re

from collectors.readings import RankTitle

_TITLE = re.compile(r"^sglang::scheduler(?P<ranks>(?:_[A-Z]+(?:_[A-Z]+)?\d+)*)\s*$")
_RANK = re.compile(r"_((?:[A-Z]+_)?[A-Z]+)(\d+)")


def rank_of(title: str) -> RankTitle | None:
    """The rank of a scheduler, which holds a device; None for any other process. A part that is left out is 0."""
    named = _TITLE.match(title)
    if not named:
        return None
    ranks = {kind: int(number[:6]) for kind, number in _RANK.findall(named["ranks"])}
    return RankTitle(tp_rank=ranks.get("TP", 0), pp_rank=ranks.get("PP", 0), replica=str(ranks.get("DP", 0)))
