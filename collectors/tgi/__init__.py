"""Text Generation Inference (TGI)."""
