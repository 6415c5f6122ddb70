"""SGLang's log, 0.4.6 to 0.5.23: what it calls GB are GiB, and pools, drafts and captures have lines of their own."""

# ruff: noqa: E501 - lines as engines write them

import pytest

from collectors.engine_logs.reader import LogReader
from collectors.engine_logs.sglang import FORMAT
from collectors.readings import RankTitle
from tests.collectors.engine_logs.lines import GIB, only, read
from tests.collectors.replay import FIXTURES

AT = "[2026-01-01 10:00:00 TP0]"


def whole(gib: float) -> int:
    return round(gib * GIB)


SHAPES: dict[str, tuple[tuple[str, ...], dict[str, object]]] = {
    "0.4.6 weights": (
        (
            f"{AT} Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=63.87 GB, mem usage=14.99 GB.",
        ),
        {"weights_bytes": whole(14.99)},
    ),
    "0.5.9 weights": (
        (f"{AT} Load weight end. elapsed=3.61 s, type=Qwen, quant=fp8, avail mem=63.87 GB, mem usage=14.99 GB.",),
        {"weights_bytes": whole(14.99)},
    ),
    "a draft model": (
        (
            f"{AT} Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=63.87 GB, mem usage=14.5 GB.",
            f"{AT} Load weight end. type=LlamaEagle3, dtype=torch.bfloat16, avail mem=62.87 GB, mem usage=1.0 GB.",
        ),
        {"weights_bytes": whole(15.5)},
    ),
    "less than nothing": ((f"{AT} Load weight end. type=Llama, avail mem=21.52 GB, mem usage=-0.00 GB.",), {}),
    "0.5.12 pool": (
        (f"{AT} KV Cache is allocated. #tokens: 444880, K size: 27.25 GB, V size: 27.25 GB",),
        {"kv_pool_bytes": whole(54.5)},
    ),
    "0.5.14 pools of a model with windows": (
        (
            f"{AT} SWA KV Cache is allocated. dtype: torch.bfloat16, #tokens: 80000, K size: 1.25 GB, V size: 1.25 GB",
            f"{AT} KV Cache is allocated. dtype: torch.bfloat16, #tokens: 100000, K size: 2.5 GB, V size: 2.5 GB",
        ),
        {"kv_pool_bytes": whole(7.5)},
    ),
    "latent pool": (
        (f"{AT} KV Cache is allocated. dtype: torch.float8_e4m3fn, #tokens: 975424, KV size: 43.67 GB",),
        {"kv_pool_bytes": whole(43.67)},
    ),
    "a pool that is sized after the capture": (
        (
            f"{AT} KV Cache VA upper bound. dtype: torch.bfloat16, #tokens: 975424, KV size: 60.00 GB",
            f"{AT} Post-capture KV sizing: KV cache allocated. dtype: torch.bfloat16, #tokens: 9, KV size: 43.5 GB, avail"
            " mem=3.1 GB",
            f"{AT} Post-capture KV sizing: draft KV cache allocated. dtype: torch.bfloat16, #tokens: 9, KV size: 0.5 GB",
        ),
        {"kv_pool_bytes": 44 * GIB},
    ),
    "states": (
        (f"{AT} Mamba Cache is allocated. max_mamba_cache_size: 9, conv_state size: 0.50GB, ssm_state size: 3.25GB ",),
        {"state_bytes": whole(3.75)},
    ),
    "0.4.6 capture": (
        (f"{AT} Capture cuda graph end. Time elapsed: 9.11 s. avail mem=5.11 GB. mem usage=0.43 GB.",),
        {"cuda_graphs_bytes": whole(0.43)},
    ),
    "0.5.12 capture": (
        (f"{AT} Capture cuda graph end. Time elapsed: 9.11 s. mem usage=0.43 GB. avail mem=5.11 GB.",),
        {"cuda_graphs_bytes": whole(0.43)},
    ),
    "0.5.14 captures": (
        (
            f"{AT} Capture prefill CUDA graph end. elapsed=2.10 s, mem usage=0.25 GB, avail mem=5.36 GB.",
            f"{AT} Capture target decode CUDA graph end. bs=[1, 2, 4, 8, 16], elapsed=9.11 s, mem usage=0.50 GB, avail"
            " mem=5.11 GB.",
        ),
        {"cuda_graphs_bytes": whole(0.75)},
    ),
    "capacity": (
        (f"{AT} max_total_num_tokens=444880, chunked_prefill_size=8192, max_prefill_tokens=16384, context_len=8192",),
        {"kv_tokens": 444_880},
    ),
}


@pytest.mark.parametrize(("lines", "expected"), SHAPES.values(), ids=SHAPES.keys())
def test_every_shape_of_a_line_is_read(lines: tuple[str, ...], expected: dict[str, object]) -> None:
    """Order and separators of fields changed over the versions, sizes did not."""
    assert only(read(FORMAT, *lines)) == expected


def test_ranks_stand_behind_the_time() -> None:
    """And a new start forgets them."""
    line = "Load weight end. type=Llama, dtype=torch.bfloat16, avail mem=63.87 GB, mem usage=1.5 GB."
    reading = read(
        FORMAT,
        f"[2026-01-01 09:00:00 TP7] {line}",
        "[2026-01-01 10:00:00] server_args=ServerArgs(model_path='m')",
        f"[2026-01-01 10:00:00 DP1 TP2 PP3] {line}",
        f"[2026-01-01 10:00:00] {line}",
    )

    assert [one.rank for one in reading.ranks] == [
        RankTitle(tp_rank=0, pp_rank=0, replica="0"),
        RankTitle(tp_rank=2, pp_rank=3, replica="1"),
    ]


@pytest.mark.parametrize("name", ["llama-page-1", "llama-page-16"])
def test_a_recorded_log(name: str) -> None:
    """The real scheduler on a CPU host, with a pool below the printed decimals."""
    reading = LogReader(FORMAT, clock=lambda: 1.0).read([FIXTURES / "sglang" / "budget-0.5.23" / f"{name}.log"])

    assert reading is not None
    assert only(reading) == {"kv_tokens": 3200}
