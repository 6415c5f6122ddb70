"""What one recurrent layer keeps of a request, however long, for each kind of recurrence, from the fields of a config.

Source: vLLM 0.33 model_executor/layers/mamba/mamba_utils.py; a dtype that a config doesn't give is the model's, except
where a class has one of its own.
"""

from agent.memory.fields import Fields, ModelConfigError
from agent.memory.layers import Layer, State
from agent.memory.units import shown

STATE_DTYPES = ("auto", "float32", "float16", "bfloat16")


def mamba1(fields: Fields) -> Layer:
    """Jamba: channels = expand x hidden; a column of ``d_state`` elements for each."""
    channels = fields.size("mamba_expand") * fields.size("hidden_size")
    return _layer(
        State(
            kind="mamba1",
            heads=channels,
            head_elements=fields.size("mamba_d_state"),
            conv_channels=channels,
            conv_width=fields.size("mamba_d_conv") - 1,
        )
    )


def mamba2(fields: Fields) -> Layer:
    """Heads of P x N elements; the convolution sees heads x P channels, and B and C of each group."""
    heads, width, states = fields.size("mamba_num_heads"), fields.size("mamba_head_dim"), fields.size("ssm_state_size")
    return _layer(
        State(
            kind="mamba2",
            heads=heads,
            head_elements=width * states,
            conv_channels=heads * width,
            conv_width=fields.size("conv_kernel") - 1,
            groups=fields.size("n_groups"),
            group_channels=2 * states,
            state_dtype=_dtype(fields, "mamba_ssm_cache_dtype"),
        )
    )


def gated_delta_net(fields: Fields) -> Layer:
    """Value heads of V x K elements; the convolution sees Q, K and V."""
    key, value = fields.size("linear_key_head_dim"), fields.size("linear_value_head_dim")
    heads = fields.size("linear_num_value_heads")
    return _layer(
        State(
            kind="gated_delta_net",
            heads=heads,
            head_elements=key * value,
            conv_channels=2 * fields.size("linear_num_key_heads") * key + heads * value,
            conv_width=fields.size("linear_conv_kernel_dim") - 1,
            state_dtype=_dtype(fields, "mamba_ssm_dtype"),
        )
    )


def kda(fields: Fields) -> Layer:
    """Kimi delta attention: heads of D x D elements, always in fp32; the convolution sees Q, K and V."""
    heads, width = fields.size("linear_num_heads"), fields.size("linear_head_dim")
    return _layer(
        State(
            kind="kda",
            heads=heads,
            head_elements=width * width,
            conv_channels=3 * heads * width,
            conv_width=fields.size("linear_conv_kernel_dim") - 1,
            state_dtype="float32",
        )
    )


def lightning(fields: Fields) -> Layer:
    """MiniMax linear attention: heads of D x D elements, no convolution."""
    width = fields.size("head_dim")
    return _layer(State(kind="lightning", heads=fields.size("num_attention_heads"), head_elements=width * width))


def _layer(state: State) -> Layer:
    return Layer(kind=state.kind, caches=(state,))


def _dtype(fields: Fields, key: str) -> str | None:
    value = fields.text(key)
    if value is not None and value not in STATE_DTYPES:
        raise ModelConfigError(f"config key {key!r}: expected one of {', '.join(STATE_DTYPES)}, got {shown(value)}")
    return None if value == "auto" else value
