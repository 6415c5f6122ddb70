"""What the probe sees of PyTorch, on a host that has none: the allocator's statistics, and who asked for what."""

from . import cuda as cuda

__version__ = "2.13.0+cu130"
