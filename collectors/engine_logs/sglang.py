"""SGLang's log, 0.4.6 to 0.5.23: what it prints as GB are GiB. Source: sgl-project/sglang,
``srt/model_executor/model_runner.py``, ``srt/model_executor/runner``, ``srt/mem_cache/memory_pool.py``.
"""

import re

from collectors.engine_logs.shapes import LogFormat, Where, shape
from collectors.readings import RankTitle

_SIZE = r"-?\d{1,7}(?:\.\d{1,20})?"
_TIME = re.compile(r"\[[\d :,.-]{8,30}(?P<ranks>(?: [A-Z]{2,7}\d{1,6}){0,8})\]")
_RANK = re.compile(r" ([A-Z]+)(\d+)")


def _where(line: str) -> Where:
    """The ranks behind the time: ``[2025-01-01 00:00:00 DP0 TP1 PP0]``."""
    found = _TIME.search(line[:200])
    ranks = {kind: int(number) for kind, number in _RANK.findall(found["ranks"])} if found else {}
    return RankTitle(tp_rank=ranks.get("TP", 0), pp_rank=ranks.get("PP", 0), replica=str(ranks.get("DP", 0)))


FORMAT = LogFormat(
    title="SGLang",
    starts=(b"server_args=",),
    ready=(b"The server is fired up and ready to roll",),
    where=_where,
    from_free_memory=True,
    shapes=(
        shape(
            "Load weight end.",
            rf"Load weight end\..{{1,400}}?mem usage=(?P<weights_gib>{_SIZE}) GB",
            combine="sum",  # a draft model has a line of its own
        ),
        shape(
            "is allocated. ",
            rf"KV Cache is allocated\..{{1,120}}?K size: (?P<kv_pool_gib>{_SIZE}) GB,"
            rf" V size: (?P<kv_pool_more_gib>{_SIZE}) GB",
            combine="sum",  # one line for each pool
        ),
        shape(
            "is allocated. ",
            rf"KV Cache is allocated\..{{1,120}}?KV size: (?P<kv_pool_gib>{_SIZE}) GB",
            combine="sum",
        ),
        shape(
            "Post-capture KV sizing:",
            rf"KV cache allocated\. dtype: .{{1,40}}?, #tokens: \d{{1,12}}, KV size: (?P<kv_pool_gib>{_SIZE}) GB",
            combine="sum",
            versions="0.5.18 and newer; the line before it then is only an upper bound",
        ),
        shape(
            "Mamba Cache is allocated",
            rf"conv_state size: (?P<state_gib>{_SIZE})GB, ssm_state size: (?P<state_more_gib>{_SIZE})GB",
            combine="sum",
            versions="0.5.3 and newer",
        ),
        shape(
            "Capture ",
            rf"Capture .{{1,80}}? end\..{{0,600}}?mem usage=(?P<cuda_graphs_gib>{_SIZE}) GB",
            combine="sum",  # prefill, decode and draft capture apart
        ),
        shape(
            "max_total_num_tokens=",
            r"max_total_num_tokens=(?P<kv_count>\d{1,15}), chunked_prefill_size=",
            combine="last",
        ),
    ),
)
