"""Triton Inference Server with the TensorRT-LLM backend."""
