"""What a pool holds: blocks and tokens from a ratio and a handful of labels, computed by hand beside each case."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.readings import PoolReading
from collectors.vllm.page import parse_page
from collectors.vllm.pools import arguments_of, notes_of, pools_of, used_blocks
from tests.collectors.replay import vllm


def pools(name: str) -> tuple[PoolReading, ...]:
    return pools_of(parse_page(vllm(name), source="page"))


def notes(name: str) -> tuple[str, ...]:
    return notes_of(parse_page(vllm(name), source="page"))


@pytest.mark.parametrize(
    ("capture", "blocks"),
    [
        ("idle_cold", 0),  # usage 0
        ("growing", 53),  # 0.5353535353535354 x 99
        ("nearfull", 98),  # 0.98989898989899 x 99
        ("preempting", 48),  # 0.48484848484848486 x 99
        ("after", 0),  # blocks kept for prefix reuse count as free
    ],
)
def test_recorded_pages_give_whole_blocks(capture: str, blocks: int) -> None:
    """100 blocks of 32 tokens, one of them the placeholder; kv_cache_size_tokens says 3200."""
    (pool,) = pools(f"0.32.0/metrics_{capture}.txt")

    assert pool == PoolReading(
        replica="0",
        kind="full",
        used_ratio=pool.used_ratio,
        capacity_tokens=3200,
        used_tokens=blocks * 32,
        available_tokens=3200 - blocks * 32,
        blocks=100,
        used_blocks=blocks,
        block_size_tokens=32,
        capacity_is_estimate=False,
    )
    assert pool.used_ratio == pytest.approx(blocks / 99)


@pytest.mark.parametrize(
    ("version", "estimate"),
    [
        ("0.6.6", True),  # 250/1000: no placeholder
        ("0.8.5", True),  # 251/1000: the placeholder counts as used
        ("0.9.2", True),
        ("0.10.2", True),  # 250/999 from here on
        ("0.11.2", True),
        ("0.19.1", True),
        ("0.20.2", True),
        ("0.24.0", False),  # kv_cache_size_tokens from here on
        ("0.33.0", False),
    ],
)
def test_every_release_gives_the_same_pool(version: str, estimate: bool) -> None:
    """1000 blocks of 16, 250 held: 4000 of 16000 tokens, whichever formula the release has for usage."""
    (pool,) = pools(f"{version}/metrics.txt")

    assert (pool.blocks, pool.used_blocks, pool.block_size_tokens) == (1000, 250, 16)
    assert (pool.capacity_tokens, pool.used_tokens, pool.available_tokens) == (16000, 4000, 12000)
    assert pool.capacity_is_estimate is estimate


def test_blocks_of_four_replicas_are_a_sum_that_is_repeated() -> None:
    """num_gpu_blocks is 4000 under each of four engines: 1000 each, and each has its own usage."""
    found = pools("shapes/dp4.txt")

    assert [pool.replica for pool in found] == ["0", "1", "2", "3"]
    assert [pool.blocks for pool in found] == [1000] * 4
    assert [pool.used_blocks for pool in found] == [0, 250, 500, 999]
    assert [pool.capacity_tokens for pool in found] == [16000] * 4


def test_a_sum_that_does_not_divide_evenly_is_said() -> None:
    """4002 blocks over four replicas: which has more is not known."""
    assert [pool.blocks for pool in pools("shapes/dp4_uneven.txt")] == [1000] * 4
    assert "4002 KV blocks do not divide evenly over the replicas: each is given the same share" in notes(
        "shapes/dp4_uneven.txt"
    )


@pytest.mark.parametrize(("used", "expected"), [(0.0, 0), (0.25, 250), (0.251, 251), (1.0, 1000)])
def test_v0_has_no_placeholder_block(used: float, expected: int) -> None:
    """Usage x blocks, all of which requests can hold."""
    assert used_blocks(used, 1000, v0=True) == expected


def test_a_rank_behind_an_external_balancer_has_its_own_blocks() -> None:
    """Its label is no sum; how many ranks there are is not said."""
    found = parse_page(vllm("shapes/dp_external.txt"), source="page")

    assert [(pool.replica, pool.blocks) for pool in pools_of(found)] == [("3", 1000)]
    assert "dp" not in arguments_of(found)


def test_two_models_share_no_sum_of_blocks() -> None:
    """Whose the one configuration is can't be told apart: it is taken for both, and the note names them."""
    found = pools("shapes/two_models.txt")

    assert [(pool.replica, pool.blocks, pool.used_blocks) for pool in found] == [
        ("org/a/0", 1000, 250),
        ("org/b/0", 1000, 500),
    ]
    assert notes("shapes/two_models.txt") == (
        "2 models on one page ('org/a', 'org/b'): each is shown as a replica of its own",
    )


def test_blocks_that_are_disputed_are_not_known() -> None:
    """Values of an earlier run: only the ratio is left, and the note names the likely cause."""
    (pool,) = pools("shapes/multiproc_left_over.txt")

    assert (pool.used_ratio, pool.blocks) == (1 - 749 / 999, None)
    assert notes("shapes/multiproc_left_over.txt")[0] == (
        "two cache_config_info of one engine differ in num_gpu_blocks: values of an earlier run, when "
        "PROMETHEUS_MULTIPROC_DIR was not emptied before the start"
    )


def test_a_note_is_one_line_whatever_the_models_are_called() -> None:
    """Their names come from outside."""
    text = "".join(f'vllm:num_requests_running{{model_name="{name}\\n"}} 1\n' for name in "ab")

    assert all("\n" not in note for note in notes_of(parse_page(text, source="page")))


@pytest.mark.parametrize(("values", "contested"), [((0.25, 0.0), False), ((0.25, 0.25), False), ((0.25, 0.9), True)])
def test_api_servers_that_disagree_are_a_note(values: tuple[float, float], contested: bool) -> None:
    """All but one say 0; another value may be that of a process that has ended, whose file is still there."""
    text = "".join(f'vllm:kv_cache_usage_perc{{engine="0",pid="{pid}"}} {value}\n' for pid, value in enumerate(values))
    found = parse_page(text, source="page")

    assert [pool.used_ratio for pool in pools_of(found)] == [max(values)]
    assert any("two processes of the server report another usage" in note for note in notes_of(found)) is contested


def test_each_ray_replica_has_the_blocks_its_own_label_says() -> None:
    """Two Ray replicas on one page do not share a sum."""
    assert [pool.blocks for pool in pools("shapes/ray_replicas.txt")] == [1000, 1000]


@pytest.mark.parametrize(
    ("shape", "got"),
    [("blocks_none", "'None'"), ("blocks_empty", "''"), ("blocks_zero", "'0'"), ("no_blocks_label", "'nothing'")],
)
def test_unknown_blocks_leave_only_the_ratio(shape: str, got: str) -> None:
    """No capacity and no tokens are made up, and the note says why."""
    (pool,) = pools(f"shapes/{shape}.txt")

    assert pool.used_ratio == 1 - 749 / 999
    assert (pool.blocks, pool.used_blocks, pool.capacity_tokens, pool.used_tokens) == (None, None, None, None)
    assert notes(f"shapes/{shape}.txt") == (
        f"cache_config_info gives {got} for num_gpu_blocks, so the number of KV blocks is not known",
    )


def test_without_cache_config_only_the_ratio_is_known() -> None:
    """The Rust front end does not export it."""
    (pool,) = pools("shapes/rust_frontend.txt")

    assert pool == PoolReading(replica="0", used_ratio=1 - 749 / 999)
    assert notes("shapes/rust_frontend.txt") == (
        "no cache_config_info on the metrics page, so the size of the KV pool is not known",
    )


def test_tokens_of_a_hybrid_model_are_a_share_of_the_reported_capacity() -> None:
    """320 blocks of "8" hold 463459 tokens: 160 used blocks are 160 x 463459 / 320 = 231729 tokens, not 1280."""
    (pool,) = pools("shapes/hybrid.txt")

    assert (pool.blocks, pool.used_blocks) == (320, 160)
    assert (pool.capacity_tokens, pool.used_tokens) == (463459, 231729)
    assert not pool.capacity_is_estimate


@given(st.integers(2, 2_000_000), st.data())
def test_used_blocks_are_exact_under_both_formulae(blocks: int, data: st.DataObject) -> None:
    """1 - free / (blocks - 1), and the older 1 - free / blocks in which the placeholder counts as used."""
    used = data.draw(st.integers(0, blocks - 1))
    free = blocks - 1 - used

    assert used_blocks(1 - free / (blocks - 1), blocks) == used
    assert used_blocks(1 - free / blocks, blocks) == used


def test_arguments_come_under_the_budgets_names() -> None:
    """What is "None" is left out; blocks are an argument only where an operator overrode them."""
    recorded = arguments_of(parse_page(vllm("0.32.0/metrics_growing.txt"), source="page"))
    replicas = arguments_of(parse_page(vllm("shapes/dp4.txt"), source="page"))

    assert recorded == {
        "block_size": 32,
        "kv_cache_dtype": "auto",
        "gpu_memory_utilization": 0.92,
        "num_gpu_blocks": 100,
        "kv_cache_memory_bytes": 1073741824,
        "dp": 1,
    }
    assert replicas == {
        "block_size": 16,
        "kv_cache_dtype": "auto",
        "gpu_memory_utilization": 0.9,
        "dp": 4,
    }


@pytest.mark.parametrize("label", ["1e9", "-5", "٣", "9" * 30, "12.5", "nan"])
def test_labels_that_are_no_counts_are_not_known(label: str) -> None:
    """A label is text from outside."""
    text = f'vllm:cache_config_info{{num_gpu_blocks="{label}",block_size="{label}",gpu_memory_utilization="inf"}} 1\n'

    assert arguments_of(parse_page(text, source="page")) == {"dp": 1}


@pytest.mark.parametrize(
    ("label", "capacity", "blocks"),
    [("num_gpu_blocks", 3200, None), ("block_size", 3200, 100), ("kv_cache_size_tokens", 3200, 100)],
)
def test_absurd_sizes_are_not_known(label: str, capacity: int, blocks: int | None) -> None:
    """A pool that no memory could hold is none: the rest is still shown, and a note says what was given."""
    text = re.sub(f'{label}="[^"]*"', f'{label}="{"9" * 18}"', vllm("0.32.0/metrics_growing.txt"))
    page = parse_page(text, source="page")

    (pool,) = pools_of(page)

    assert (pool.capacity_tokens, pool.blocks) == (capacity, blocks)
    assert label == "block_size" or any("'999999999999999999'" in note for note in notes_of(page))


def test_absurd_values_are_a_note() -> None:
    """Counters of 309 digits and a start at the end of time are absent."""
    lines = vllm("0.32.0/metrics_growing.txt").splitlines()
    text = "".join(
        f"{line.rpartition(' ')[0]} 1e308\n" for line in lines if "cache_config" not in line and line[0] != "#"
    )
    page = parse_page(text, source="page")

    assert not any(page.values.values())
    assert page.started_at is None
    assert "values beyond what can be" in notes_of(page)[0]
