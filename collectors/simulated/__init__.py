"""A simulated node: GPUs behind the NVML door, a process table, and a vLLM server on a real loopback socket."""
