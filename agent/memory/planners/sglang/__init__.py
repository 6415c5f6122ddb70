"""SGLang: its share of what is free before the weights, and the pools it divides that into."""

from agent.memory.planners.sglang.account import explain
from agent.memory.planners.sglang.pool import plan, runtime
from agent.memory.planners.sglang.settings import resolve

__all__ = ["explain", "plan", "resolve", "runtime"]
