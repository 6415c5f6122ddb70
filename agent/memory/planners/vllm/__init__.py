"""vLLM: its defaults and rules by version, and how it sizes its KV pool."""

from agent.memory.planners.vllm.account import explain
from agent.memory.planners.vllm.pool import plan, runtime
from agent.memory.planners.vllm.settings import resolve

__all__ = ["explain", "plan", "resolve", "runtime"]
