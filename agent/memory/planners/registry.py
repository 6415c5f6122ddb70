"""The engines that have a planner, by name, and those whose versions are known to differ in what they hold."""

from collections.abc import Callable, Iterable
from typing import Any

from agent.memory.planners import llama_cpp, ollama, sglang, tensorrt_llm, vllm
from agent.memory.planners.changes import Change
from agent.memory.planners.llama_cpp.changes import changes as llama_cpp_changes
from agent.memory.planners.planner import Planner
from agent.memory.planners.vllm.changes import changes as vllm_changes

PLANNERS: dict[str, Planner[Any]] = {
    "vllm": vllm,
    "sglang": sglang,
    "llama_cpp": llama_cpp,
    "ollama": ollama,
}

CHANGES: dict[str, Callable[[str, str], Iterable[Change]]] = {
    "vllm": vllm_changes,
    "llama_cpp": llama_cpp_changes,
}
WITHOUT_POOL: dict[str, Planner[Any]] = dict.fromkeys(("tensorrt_llm", "dynamo_trtllm", "triton"), tensorrt_llm)
"""Of engines whose tokens are known in bytes, and whose pool is not sized before they run."""
