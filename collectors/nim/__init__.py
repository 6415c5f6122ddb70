"""NVIDIA NIM for LLMs."""
