"""GGUF metadata under the names of a Hugging Face config, where the mapping is sure.

llama.cpp drops what its graph does not need (head dims of MLA become one key length, biases are only their tensors), so
names of tensors tell what the keys don't. An architecture that is not in ``MODEL_TYPES``, or whose layers differ in
their number of heads, keeps its own name behind ``gguf/``: unknown, with what is known.
Source: ggml-org/llama.cpp ``gguf-py/gguf/constants.py`` and ``convert_hf_to_gguf.py``.
"""

from collections.abc import Mapping, Sequence, Set
from typing import Any

from collectors.gguf import Header

MODEL_TYPES = {
    "command-r": "cohere",
    "cohere2": "cohere2",
    "deepseek2": "deepseek_v2",
    "falcon": "falcon",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
    "glm4moe": "glm4_moe",
    "gpt-oss": "gpt_oss",
    "internlm2": "internlm2",
    "llama": "llama",
    "minicpm3": "minicpm3",
    "minimax-m2": "minimax_m2",
    "mistral3": "mistral",
    "olmo2": "olmo2",
    "phi3": "phi3",
    "qwen2": "qwen2",
    "qwen2moe": "qwen2_moe",
    "qwen2vl": "qwen2",
    "qwen3": "qwen3",
    "qwen3moe": "qwen3_moe",
    "qwen3next": "qwen3_next",
    "qwen3vl": "qwen3",
    "qwen3vlmoe": "qwen3_moe",
}

_KEYS = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "max_position_embeddings": "context_length",
    "vocab_size": "vocab_size",
    "sliding_window": "attention.sliding_window",
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "n_shared_experts": "expert_shared_count",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "first_k_dense_replace": "leading_dense_block_count",
    "num_nextn_predict_layers": "nextn_predict_layers",
    "q_lora_rank": "attention.q_lora_rank",
    "kv_lora_rank": "attention.kv_lora_rank",
    "qk_rope_head_dim": "rope.dimension_count",
    "index_n_heads": "attention.indexer.head_count",
    "index_head_dim": "attention.indexer.key_length",
    "index_topk": "attention.indexer.top_k",
    "full_attention_interval": "full_attention_interval",
    "linear_conv_kernel_dim": "ssm.conv_kernel",
    "linear_key_head_dim": "ssm.state_size",
    "linear_num_key_heads": "ssm.group_count",
    "linear_num_value_heads": "ssm.time_step_rank",
}
_LATENT = {"q_lora_rank", "kv_lora_rank", "qk_rope_head_dim"}
_LINEAR = {name for name in _KEYS if name.startswith("linear_")} | {"full_attention_interval"}


def config_of(headers: Sequence[Header]) -> dict[str, Any]:
    """A config-like object from the headers of all parts, of which the first has the metadata.

    ``quantization_config`` has the mean of all tensors as bits per weight.
    """
    architecture = headers[0].values.get("general.architecture")
    name = architecture if isinstance(architecture, str) else ""
    fields = _fields(headers[0], name)
    tensors = {tensor.name for header in headers for tensor in header.tensors}
    model_type = _model_type(name, fields, tensors)
    size = sum(tensor.bytes for header in headers for tensor in header.tensors)
    elements = sum(header.elements for header in headers)
    return {
        "model_type": model_type,
        "sliding_window": None,  # a file without one has none, whatever the class would take
        **fields,
        **_from_tensors(tensors, model_type),
        **({"quantization_config": _quantization(size, elements)} if elements else {}),
    }


def _fields(header: Header, architecture: str) -> dict[str, Any]:
    values = {
        key.removeprefix(f"{architecture}."): value
        for key, value in header.values.items()
        if key.startswith(f"{architecture}.")
    }
    fields: dict[str, Any] = {name: _even(values[key]) for name, key in _KEYS.items() if key in values}
    tokens = header.lengths.get("tokenizer.ggml.tokens")
    if tokens:
        fields["vocab_size"] = tokens
    layers = values.get("block_count")
    extra = fields.get("num_nextn_predict_layers", 0)
    if isinstance(layers, int):
        fields["num_hidden_layers"] = layers - extra if isinstance(extra, int) else layers
    latent = "kv_lora_rank" in fields
    if latent:
        fields |= _latent(values)
    for name in (set() if latent else _LATENT) | (set() if architecture == "qwen3next" else _LINEAR):
        fields.pop(name, None)
    if architecture == "qwen3next":
        fields["linear_value_head_dim"] = _divided(values.get("ssm.inner_size"), fields.get("linear_num_value_heads"))
    return {name: value for name, value in fields.items() if value is not None}


def _divided(whole: Any, count: Any) -> int | None:
    return whole // count if isinstance(whole, int) and isinstance(count, int) and count > 0 else None


def _even(value: Any) -> Any:
    """A list of one value for all layers is that value."""
    return value[0] if isinstance(value, list) and value and len(set(value)) == 1 else value


def _latent(values: Mapping[str, Any]) -> dict[str, Any]:
    """Key lengths are of the compressed vector in newer files, and of a head in ``..._mla``; older files have these."""
    key = values.get("attention.key_length_mla", values.get("attention.key_length"))
    value = values.get("attention.value_length_mla", values.get("attention.value_length"))
    rope = values.get("rope.dimension_count")
    nope = key - rope if isinstance(key, int) and isinstance(rope, int) else None
    return {"qk_nope_head_dim": nope, "v_head_dim": value, "head_dim": None, "num_key_value_heads": None}


def _model_type(architecture: str, fields: Mapping[str, Any], tensors: Set[str]) -> str:
    known = MODEL_TYPES.get(architecture)
    if known is None or any(isinstance(value, list) for value in fields.values()):
        return f"gguf/{architecture[:60]}"
    if known == "llama" and fields.get("num_experts"):
        return "mixtral"
    if known == "deepseek_v2" and any(name.endswith(".exp_probs_b.bias") for name in tensors):
        return "deepseek_v3"
    return known


def _from_tensors(tensors: Set[str], model_type: str) -> dict[str, Any]:
    """What a config says and GGUF leaves to the presence of a tensor."""
    heads = any(name.endswith(".attn_q_norm.weight") for name in tensors)
    found: dict[str, Any] = {
        "tie_word_embeddings": bool(tensors) and "output.weight" not in tensors,
        "attention_bias": any(name.endswith((".attn_q.bias", ".attn_qkv.bias")) for name in tensors),
        "use_qk_norm": heads,
    }
    if any(name.endswith(".exp_probs_b.bias") for name in tensors):
        found |= {"topk_method": "noaux_tc", "use_routing_bias": True}
    if model_type == "falcon":
        found["new_decoder_architecture"] = any(name.endswith(".attn_norm_2.weight") for name in tensors)
    return found


def _quantization(size: int, elements: int) -> dict[str, Any]:
    return {"quant_method": "gguf", "bits_per_weight": round(8 * size / elements, 3)}
