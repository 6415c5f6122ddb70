"""What a log adds to a reading: capacity in tokens where the engine does not export it, and a calibrated budget."""

from msgspec.structs import replace

from agent.reported import calibration_of, completed, tokens_of
from collectors.readings import LogReading, PoolReading, RankLog, RankTitle, ServerReading

POOL = PoolReading(
    replica="0",
    used_ratio=0.5,
    capacity_tokens=16_000,
    used_tokens=8_000,
    available_tokens=8_000,
    blocks=1_000,
    used_blocks=500,
    block_size_tokens=16,
    capacity_is_estimate=True,
)
READING = ServerReading(at=1.0, engine="vllm", state="serving", version="0.20.2", pools=(POOL,))


def rank(replica: str = "0", tp: int = 0, **fields: int) -> RankLog:
    return RankLog(rank=RankTitle(tp_rank=tp, pp_rank=0, replica=replica), **fields)


LOG = LogReading(at=1.0, engine="vLLM", version="0.20.2+cu129", ready=True, ranks=(rank(kv_tokens=12_000),))


def test_an_estimate_gives_way_to_the_tokens_of_the_log() -> None:
    """Hybrid models take several blocks for a token; blocks stay what they are."""
    (pool,) = completed(READING, LOG).pools

    assert (pool.capacity_tokens, pool.used_tokens, pool.available_tokens) == (12_000, 6_000, 6_000)
    assert (pool.blocks, pool.used_blocks, pool.capacity_is_estimate) == (1_000, 500, False)


def test_a_pool_without_blocks_is_filled_by_its_ratio() -> None:
    """Where the page has no cache_config_info."""
    bare = PoolReading(replica="0", used_ratio=0.25)

    (pool,) = completed(replace(READING, pools=(bare,)), LOG).pools

    assert (pool.capacity_tokens, pool.used_tokens, pool.available_tokens) == (12_000, 3_000, 9_000)


def test_what_the_engine_exports_itself_stays() -> None:
    """And so does everything beside a log of another version, or one that has no tokens."""
    exported = replace(READING, pools=(replace(POOL, capacity_is_estimate=False),))

    assert completed(exported, LOG) == exported
    assert completed(READING, replace(LOG, version="0.21.0")) == READING
    assert completed(READING, replace(LOG, ranks=())) == READING
    assert completed(READING, None) == READING


def test_replicas_have_their_own_tokens() -> None:
    """The smallest rank decides; a replica under another name is only the one there is."""
    log = replace(LOG, ranks=(rank("0", kv_tokens=9), rank("0", tp=1, kv_tokens=7), rank("1", kv_tokens=8)))
    pools = (replace(POOL, replica="0"), replace(POOL, replica="1"), replace(POOL, replica="2"))

    assert tokens_of(log) == {"0": 7, "1": 8}
    assert [pool.capacity_tokens for pool in completed(replace(READING, pools=pools), log).pools] == [7, 8, 16_000]

    ray = replace(READING, pools=(replace(POOL, replica="abc/0"),))
    assert completed(ray, LOG).pools[0].capacity_tokens == 12_000
    assert completed(ray, log).pools[0].capacity_tokens == 16_000


def test_calibration_is_that_of_the_rank_that_needs_most() -> None:
    """Once the start is over, and of this run only; what no rank says stays a range."""
    log = replace(LOG, ranks=(rank(cuda_graphs_bytes=5, activation_peak_bytes=7), rank(tp=1, cuda_graphs_bytes=6)))

    found = calibration_of(log, READING)

    assert found is not None
    assert (found.source, found.activations, found.cuda_graphs, found.non_torch, found.context) == (
        "the start-up log of vLLM 0.20.2+cu129",
        7,
        6,
        None,
        None,
    )
    for none in (None, LOG, replace(log, ready=False), replace(log, version="0.9.1")):
        assert calibration_of(none, READING) is None
