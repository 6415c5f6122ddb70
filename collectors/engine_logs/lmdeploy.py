"""LMDeploy's log: the bytes of TurboMind's pool since 0.15, whose MB are MiB. Before, its blocks are printed in whole
MiB, which is no size; the PyTorch backend prints none. Source: InternLM/lmdeploy 0.15 to 0.17,
``src/turbomind/turbomind.cc`` and ``engine/engine.cc``, ``lmdeploy/serve/async_engine.py``.
"""

from collectors.engine_logs.shapes import LogFormat, Where, shape
from collectors.readings import RankTitle


def _where(line: str) -> Where:
    """One process holds all devices, each with a line of its own that does not name it: only a single one is known."""
    return RankTitle(tp_rank=0, pp_rank=0, replica="0")


FORMAT = LogFormat(
    title="LMDeploy",
    starts=(b"input backend=",),
    ready=(b"Application startup complete",),
    where=_where,
    shapes=(
        shape(
            "Object cache budget:",
            r"Object cache budget: {1,4}(?P<kv_pool_mib>\d{1,9}(?:\.\d{1,6})?) MB from",
            versions="0.15 and newer, TurboMind",
        ),
    ),
)
