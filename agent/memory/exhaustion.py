"""What it means, engine by engine, that a pool is full: a literal table.

Source: the engines' schedulers (vLLM ``v1/core/sched``, SGLang ``srt/managers/schedule_batch.py``, LightLLM
``router/req_queue``, TGI ``backends/v3``, TensorRT-LLM capacity scheduler, llama.cpp ``tools/server``).
"""

from typing import Literal

from msgspec import Struct

from collectors.readings import PoolKind

Outcome = Literal["preempt", "retract", "pause", "queue", "refuse", "truncate"]


class Exhaustion(Struct, frozen=True, kw_only=True):
    """What happens to requests. ``reserves``: use is set aside at admission and does not grow while decoding.

    ``live_gauges``: use is as of the engine's last step; elsewhere it is renewed every so many steps or seconds.
    """

    outcome: Outcome
    meaning: str
    reserves: bool = False
    live_gauges: bool = True


_PREEMPT = Exhaustion(outcome="preempt", meaning="a running request loses its KV and is computed again")
_QUEUE = Exhaustion(outcome="queue", meaning="new requests wait until others end", reserves=True)

ENGINES: dict[str, Exhaustion] = {
    "vllm": _PREEMPT,
    "sglang": Exhaustion(
        outcome="retract", meaning="running requests are retracted and computed again", live_gauges=False
    ),
    "lightllm": Exhaustion(outcome="pause", meaning="the newest requests are paused"),
    "tgi": _QUEUE,
    "tensorrt_llm": _QUEUE,
    "triton": _QUEUE,
    "dynamo_trtllm": _QUEUE,
    "lmdeploy": Exhaustion(
        outcome="preempt", meaning="a running request loses its KV and is computed again", live_gauges=False
    ),
    "llama_cpp": Exhaustion(outcome="refuse", meaning="all running requests fail: context size has been exceeded"),
    "ollama": Exhaustion(outcome="truncate", meaning="a request loses the beginning of its context"),
}
UNKNOWN = Exhaustion(outcome="queue", meaning="what happens is not known for this engine", live_gauges=False)
STATES = Exhaustion(outcome="queue", meaning="new requests wait for a free state", reserves=True)


def exhaustion_of(engine: str, kind: PoolKind | str) -> Exhaustion:
    """What a full pool of this kind means; a state is taken at admission and never grows."""
    return STATES if kind == "state" else ENGINES.get(engine, UNKNOWN)
