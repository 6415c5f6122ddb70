"""What a real vLLM said, recorded: the product reads every scrape as the server meant it, and plans as it planned."""

import json
import re
from pathlib import Path

import pytest

from agent.memory.arguments import Arguments
from agent.memory.budget import Device, compute
from collectors.model_files import read_model
from collectors.readings import RankTitle
from collectors.vllm.page import parse_page
from collectors.vllm.pools import arguments_of, pools_of
from collectors.vllm.titles import rank_of
from tests.engines.record import FIXTURES
from tests.engines.scrape import Scrape
from tests.engines.vllm_server import CACHE_BYTES, MAX_MODEL_LEN

RECORDED = sorted(FIXTURES.glob("recorded-*"))
SCRAPES = [scrape for folder in RECORDED for scrape in sorted(folder.glob("metrics_*.txt"))]
STAGES = {"idle", "growing", "nearfull", "preempting", "preempted", "after"}


def _name(path: Path) -> str:
    return path.name if path.is_dir() else f"{path.parent.name}/{path.name}"


def test_recordings_are_complete() -> None:
    """Each recording has all six stages of a load."""
    stages = {folder: {path.stem.removeprefix("metrics_") for path in folder.glob("metrics_*")} for folder in RECORDED}

    assert len(stages) >= 2
    assert set(map(frozenset, stages.values())) == {frozenset(STAGES)}


@pytest.mark.parametrize("path", SCRAPES, ids=_name)
def test_pool_is_read_as_the_server_exposed_it(path: Path) -> None:
    """Used tokens are usage x (blocks - 1) x block size, to the token; capacity is what the server says it is."""
    text = path.read_text()
    exposed = Scrape(text)
    labels = exposed.labels("vllm:cache_config_info")
    blocks, block_size = int(labels["num_gpu_blocks"]), int(labels["block_size"])
    usage = exposed.value("vllm:kv_cache_usage_perc")

    page = parse_page(text, source=path.name)
    (pool,) = pools_of(page)

    assert pool.used_tokens == round(usage * (blocks - 1)) * block_size
    assert pool.used_blocks == round(usage * (blocks - 1))
    assert (pool.capacity_tokens, pool.used_ratio) == (int(labels["kv_cache_size_tokens"]), usage)
    assert page.values["preemptions"] == {"0": exposed.value("vllm:num_preemptions_total")}
    assert page.values["generation_tokens"] == {"0": exposed.value("vllm:generation_tokens_total")}
    assert arguments_of(page)["block_size"] == block_size


@pytest.mark.parametrize("folder", RECORDED, ids=_name)
def test_budget_has_the_blocks_that_the_server_logged(folder: Path) -> None:
    """From the config alone: the blocks of 1 GiB, and with the override the tokens and concurrency of the log."""
    log = (folder / "server.log").read_text()
    planned, override = _logged(r"Overriding num_gpu_blocks=(\d+) with num_gpu_blocks_override=(\d+)", log)
    tokens, concurrency = _logged(r"KV cache size: ([\d,]+) tokens, .* per request: ([\d.]+)x", log)
    block_size = int(Scrape((folder / "metrics_idle.txt").read_text()).labels("vllm:cache_config_info")["block_size"])
    model = read_model(folder / "config.json")

    def kv(num_gpu_blocks: int | None) -> tuple[int | None, int | None, float | None]:
        arguments = Arguments(
            engine_version="0.32.0",
            block_size=block_size,
            max_model_len=MAX_MODEL_LEN,
            kv_pool_bytes=CACHE_BYTES,
            num_gpu_blocks=num_gpu_blocks,
            enforce_eager=True,
        )
        (rank,) = compute(model, arguments, Device()).ranks
        return rank.kv.blocks, rank.kv.pool_tokens, rank.kv.max_concurrency

    assert kv(None)[0] == int(planned)
    blocks, pool_tokens, max_concurrency = kv(int(override))
    assert (blocks, pool_tokens) == (int(override), int(tokens.replace(",", "")))
    assert max_concurrency is not None
    assert f"{max_concurrency:.2f}" == concurrency


@pytest.mark.parametrize("folder", RECORDED, ids=_name)
def test_process_titles_name_the_rank(folder: Path) -> None:
    """Engine core and worker are rank 0; the API server, which listens, and its resource tracker are none."""
    processes = json.loads((folder / "processes.json").read_text())

    ranks = {process["name"]: rank_of(" ".join(process["command_line"])) for process in processes}

    first = RankTitle(tp_rank=0, pp_rank=0, replica="0")
    assert ranks == {"vllm": None, "python": None, "VLLM::EngineCore": first, "VLLM::Worker": first}


def _logged(pattern: str, log: str) -> tuple[str, ...]:
    found = re.search(pattern, log)
    assert found is not None
    return found.groups()
