"""The bytes of a checkpoint's tensors by layer, module and type, from their names, one tensor after another."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from collectors.errors import Unreadable
from collectors.safetensors import Tensor

MAX_TENSORS = 1_000_000
"""DeepSeek V3 has 92 thousand; 384 experts in 60 layers, with four tensors to a matrix, are 280 thousand."""
MAX_LAYERS = 10_000
MAX_SUMS = 20_000
MAX_NAME = 1000

K = TypeVar("K")
_LAYER = re.compile(r"(?:^|\.)(?:layers|blk|h)\.(\d+)\.(?!engram\.embed\b)")  # tables that stay on the host
_ENGRAM = re.compile(r"\.engram\.embed\b")
_WRAPPERS = frozenset({"model", "language_model", "transformer"})


class TensorSums:
    """Sums of bytes; the tensors are not kept."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.by_dtype: dict[str, int] = {}
        self._layers: dict[tuple[str, int], int] = {}  # by the stack that a layer is of
        self._modules: dict[tuple[str | None, str], int] = {}  # likewise, None: of no stack

    def add(self, tensors: Iterable[Tensor], path: Path) -> None:
        """Count tensors of a file or folder that messages name.

        Raises:
            Unreadable: there are more tensors, layers, modules or types than a model has.
        """
        for tensor in tensors:
            self._add(tensor, path)
            sums = len(self._layers) + len(self._modules) + len(self.by_dtype)
            if self.count > MAX_TENSORS or sums > MAX_SUMS or len(tensor.name) > MAX_NAME:
                raise Unreadable(
                    "absurd",
                    f"{path}: expected the weights of one model, at most {MAX_TENSORS:,} tensors in {MAX_SUMS:,} "
                    f"layers and modules, with names of at most {MAX_NAME:,} letters; got more",
                )

    def _add(self, tensor: Tensor, path: Path) -> None:
        stack = None
        if found := _LAYER.search(tensor.name):
            stack, number = tensor.name[: found.start()], int(found[1][:9])
            if number >= MAX_LAYERS:
                raise Unreadable(
                    "absurd", f"{path}: a tensor of layer {number}; expected fewer than {MAX_LAYERS} layers"
                )
            _count(self._layers, (stack, number), tensor.bytes)
        _count(self._modules, (stack, _module(tensor.name)), tensor.bytes)
        _count(self.by_dtype, tensor.dtype, tensor.bytes)
        self.count += 1
        self.total += tensor.bytes

    def by_layer(self) -> tuple[int, ...] | None:
        """Those of each decoder layer; None where there are no layers."""
        decoder = self._decoder()
        layers = {number: count for (stack, number), count in self._layers.items() if stack == decoder}
        return tuple(layers.get(number, 0) for number in range(max(layers) + 1)) if layers else None

    def by_other_module(self) -> dict[str, int]:
        """Those outside of the decoder's layers."""
        decoder, sums = self._decoder(), dict[str, int]()
        for (stack, module), count in self._modules.items():
            if stack is None or stack != decoder:
                _count(sums, module, count)
        return sums

    def _decoder(self) -> str | None:
        """Of several stacks of layers (text, vision, multi-token prediction) the largest is the decoder."""
        stacks: dict[str, int] = {}
        for (stack, _), count in self._layers.items():
            _count(stacks, stack, count)
        return max(stacks, key=lambda stack: stacks[stack], default=None)


def _module(name: str) -> str:
    """The first part of a tensor's name that says something: ``model.embed_tokens.weight`` is of ``embed_tokens``."""
    if _ENGRAM.search(name):
        return "engram"
    parts = name.split(".")
    return next((part for part in parts[:-1] if part not in _WRAPPERS), parts[-1])


def _count(sums: dict[K, int], key: K, count: int) -> None:
    sums[key] = sums.get(key, 0) + count
