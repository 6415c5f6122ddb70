"""The engines that have a planner, by name."""

from typing import Any

from agent.memory.planners import llama_cpp, ollama, sglang, vllm
from agent.memory.planners.planner import Planner

PLANNERS: dict[str, Planner[Any]] = {
    "vllm": vllm,
    "sglang": sglang,
    "llama_cpp": llama_cpp,
    "ollama": ollama,
}
