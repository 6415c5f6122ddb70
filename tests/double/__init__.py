"""A driver for tests: ``libnvidia-ml.so.1`` as the real ``pynvml`` loads it, answering from a node state file."""
