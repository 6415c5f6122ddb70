"""TensorRT-LLM in a worker of NVIDIA Dynamo."""
