"""Which rank an SGLang process title names."""

import pytest

from collectors.readings import RankTitle
from collectors.sglang.titles import rank_of


@pytest.mark.parametrize(
    ("title", "tp_rank", "pp_rank", "replica"),
    [
        ("sglang::scheduler", 0, 0, "0"),
        ("sglang::scheduler_TP3", 3, 0, "0"),
        ("sglang::scheduler_PP1_TP3", 3, 1, "0"),
        ("sglang::scheduler_DP1_TP5_EP5", 5, 0, "1"),
        ("sglang::scheduler_DP2_PP1_ATTN_CP1_MOE_DP3_TP5_EP5", 5, 1, "2"),
        ("sglang::scheduler_TP1  ", 1, 0, "0"),
    ],
)
def test_titles_of_ranks(title: str, tp_rank: int, pp_rank: int, replica: str) -> None:
    """A part that the title leaves out is 0; the data-parallel rank of experts is not that of the replica."""
    assert rank_of(title) == RankTitle(tp_rank=tp_rank, pp_rank=pp_rank, replica=replica)


@pytest.mark.parametrize(
    "title",
    [
        "",
        "sglang::detokenizer",
        "sglang::data_parallel_controller",
        "sglang::tokenizer_worker:77",
        "python -m sglang.launch_server --model-path m",
        "sglang::scheduler_",
        "sglang::scheduler_TP",
    ],
)
def test_titles_of_others(title: str) -> None:
    """Tokenizers, detokenizers and controllers hold no device."""
    assert rank_of(title) is None
