"""The matrices of a layer's feed-forward part: an MLP, or a router and its experts."""

from collections.abc import Iterator
from typing import Literal

from agent.memory.matrices import Matrix, vector


def mlp(
    name: str,
    hidden: int,
    width: int,
    *,
    matrices: int = 3,
    bias: bool = False,
    count: int = 1,
    over: Literal["tp", "experts"] = "tp",
) -> Iterator[Matrix]:
    """Gate, up and down, or up and down alone; ``count`` of them for experts."""
    for part in ("gate_proj", "up_proj")[3 - matrices :]:
        yield Matrix(name=f"{name}.{part}", rows=width, columns=hidden, count=count, split="rows", over=over)
        if bias:
            yield Matrix(name=f"{name}.{part}.bias", rows=width, count=count, split="rows", over=over, stored="plain")
    yield Matrix(name=f"{name}.down_proj", rows=hidden, columns=width, count=count, split="columns", over=over)
    if bias:
        yield Matrix(name=f"{name}.down_proj.bias", rows=hidden, count=count, over=over, stored="plain")


def router(hidden: int, experts: int, *, bias: bool) -> Iterator[Matrix]:
    """On every rank, and never quantised."""
    yield Matrix(name="mlp.gate", rows=experts, columns=hidden, stored="plain")
    if bias:
        yield vector("mlp.gate.bias", experts)


def shared_gate(hidden: int) -> Matrix:
    """How much of the shared expert a token takes."""
    return Matrix(name="mlp.shared_expert_gate", rows=1, columns=hidden, stored="plain")
