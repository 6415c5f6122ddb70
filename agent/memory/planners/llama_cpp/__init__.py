"""llama.cpp's server: contexts and slots, and the caches it allocates whole when it starts."""

from agent.memory.planners.llama_cpp.account import explain
from agent.memory.planners.llama_cpp.pool import plan, runtime
from agent.memory.planners.llama_cpp.settings import resolve

__all__ = ["explain", "plan", "resolve", "runtime"]
