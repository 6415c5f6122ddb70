"""Which rank a vLLM process title names: ``VLLM::Worker_DP1_PP0_TP3_EP3``, ``VLLM::EngineCore_DP1``, ``VllmWorker-3``.

The prefix can be set by the server's owner (``VLLM_PROCESS_NAME_PREFIX``). Source: vllm-project/vllm,
``v1/executor/multiproc_executor.py`` and ``v1/engine/core.py``, 0.9 to 0.33.
"""

import re

from collectors.readings import RankTitle

_TITLE = re.compile(r"^\S+::(?P<role>EngineCore|DPEngineCore|Worker)(?P<ranks>(?:_[A-Z]*\d+)*)\s*$")
_NUMBERED = re.compile(r"^VllmWorker-(?P<rank>\d+)\s*$")
_RANK = re.compile(r"_([A-Z]*)(\d+)")


def rank_of(title: str) -> RankTitle | None:
    """The rank, or None for a process that is no rank (API server, coordinator, resource tracker) or has no such title.

    An engine core counts as rank 0 of its replica: without tensor or pipeline parallelism it holds the device itself.
    ``VllmWorker-n`` numbers all workers of a replica; n is the tensor rank as long as there is no pipeline.
    """
    numbered = _NUMBERED.match(title)
    if numbered:
        return RankTitle(tp_rank=int(numbered["rank"][:6]), pp_rank=0, replica="0")
    named = _TITLE.match(title)
    if not named:
        return None
    ranks = {kind or "DP": int(number[:6]) for kind, number in _RANK.findall(named["ranks"])}
    return RankTitle(tp_rank=ranks.get("TP", 0), pp_rank=ranks.get("PP", 0), replica=str(ranks.get("DP", 0)))
