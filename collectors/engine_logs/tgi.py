"""TGI's log: how many tokens its pool holds; of bytes it says nothing. Its shards' first one speaks for all. Source:
huggingface/text-generation-inference 2.0 to 3.3.7, ``launcher/src/main.rs``, ``router/src/server.rs`` and
``backends/v3/src/lib.rs``, ``server/text_generation_server/models/flash_causal_lm.py``.
"""

from collectors.engine_logs.shapes import LogFormat, Where, shape
from collectors.readings import RankTitle


def _where(line: str) -> Where:
    return RankTitle(tp_rank=0, pp_rank=0, replica="0")


FORMAT = LogFormat(
    title="TGI",
    starts=(b"text_generation_launcher: Args {", b'"message":"Args {'),
    ready=(b": Connected", b'"message":"Connected"'),
    where=_where,
    shapes=(shape("Setting max batch total tokens to", r"Setting max batch total tokens to (?P<kv_count>\d{1,15})"),),
)
