"""Which rank a process title names."""

import pytest

from collectors.readings import RankTitle
from collectors.vllm.titles import rank_of


@pytest.mark.parametrize(
    ("title", "tp_rank", "pp_rank", "replica"),
    [
        ("VLLM::EngineCore", 0, 0, "0"),
        ("VLLM::EngineCore_DP3", 0, 0, "3"),
        ("VLLM::EngineCore_1", 0, 0, "1"),
        ("VLLM::DPEngineCore_2", 0, 0, "2"),
        ("VLLM::Worker", 0, 0, "0"),
        ("VLLM::Worker_TP7", 7, 0, "0"),
        ("VLLM::Worker_PP1_TP3", 3, 1, "0"),
        ("VLLM::Worker_DP1_PP2_TP3_EP27", 3, 2, "1"),
        ("VLLM::Worker_TP1_DCP1", 1, 0, "0"),
        ("chat-prod::Worker_TP2", 2, 0, "0"),
        ("VllmWorker-0", 0, 0, "0"),
        ("VllmWorker-5", 5, 0, "0"),
        ("VLLM::Worker_TP1  ", 1, 0, "0"),
    ],
)
def test_titles_of_ranks(title: str, tp_rank: int, pp_rank: int, replica: str) -> None:
    """A part that the title leaves out is 0; the prefix may be the operator's."""
    assert rank_of(title) == RankTitle(tp_rank=tp_rank, pp_rank=pp_rank, replica=replica)


@pytest.mark.parametrize(
    "title",
    [
        "",
        "VLLM::APIServer_0",
        "VLLM::DPCoordinator",
        "/usr/bin/python3 /usr/bin/vllm serve meta-llama/Llama-3.1-8B",
        "python -c from multiprocessing.resource_tracker import main;main(31)",
        "VLLM::WorkerPool",
        "VLLM::Worker_TPx",
        "sglang::scheduler_TP0",
        "grep VLLM::Worker_TP0",
        "VllmWorker-x",
    ],
)
def test_titles_of_other_processes(title: str) -> None:
    """API servers, coordinators, trackers and strangers are no rank."""
    assert rank_of(title) is None
