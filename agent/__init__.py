"""vramscope: where every byte of GPU memory is beside an LLM inference server, and how long it lasts."""

__version__ = "0.1.0"
