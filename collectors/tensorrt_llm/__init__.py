"""TensorRT-LLM, served by trtllm-serve."""
