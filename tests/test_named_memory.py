"""What is neither weights nor KV on a device: sleep, adapters, offloaded KV, drafts. Whole nodes, each byte by hand."""

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agent.snapshot import Snapshot
from agent.terminal import print_snapshot
from collectors.readings import LogReading, RankLog, RankTitle
from tests.collectors.replay import vllm
from tests.test_engine_nodes import Served, llama_cpp_documents, observed, one_gpu, sglang_page, vllm_documents
from tests.test_nodes import BLOCK, GIB, LLAMA_8B, MIB, RESERVED, RESIDUAL, WHOLE, closed

BLOCKS = 8000
POOL = BLOCKS * BLOCK
TITLES = {100: "vllm serve m", 101: "VLLM::EngineCore"}
SGLANG = {100: "sglang serve", 101: "sglang::scheduler"}
AWAKE = WHOLE + POOL + 3 * GIB
SMALL = 1000 * BLOCK  # the pool of the fixtures, a quarter of it in use
BUSY = WHOLE + SMALL + 3 * GIB
IDLE = vllm_documents(blocks=BLOCKS, used=0)["/metrics"].replace("num_requests_running", "num_requests_waiting")


def state_of(**states: int) -> str:
    return "".join(
        f'vllm:engine_sleep_state{{engine="0",model_name="m",sleep_state="{name}"}} {value}\n'
        for name, value in {"awake": 0, "weights_offloaded": 0, "discard_all": 0, **states}.items()
    )


def served(*pages: str, **more: Any) -> Served:
    documents = vllm_documents(blocks=BLOCKS, used=0) | {"/metrics": "".join(pages)}
    return Served(engine="vllm", titles=TITLES, documents=documents, **more)


def of_the_server(found: Snapshot) -> dict[str, int]:
    """Its components on the only device, whose sum is the device's total."""
    return {name.split()[0]: size for name, size in closed(found.devices[0]).items() if name.endswith(" chat")}


WHOLE_SERVER = {"weights": WHOLE, "kv_used": 0, "kv_available": POOL, "runtime": 3 * GIB}


@pytest.mark.parametrize("level", ["weights_offloaded", "discard_all"])
def test_a_vllm_falls_asleep_and_wakes(tmp_path: Path, level: str) -> None:
    """Asleep it has no weights and no pool: what it still holds is its runtime. Awake they are back."""
    asleep = observed(tmp_path, one_gpu(2 * GIB), served(IDLE, state_of(**{level: 1})))
    awake = observed(tmp_path, one_gpu(AWAKE), served(IDLE, state_of(awake=1)))

    assert closed(asleep.devices[0]) == {
        "runtime chat": 2 * GIB,
        "other_processes": 0,
        "reserved": RESERVED,
        "hidden": RESIDUAL,
        "free": 81559 * MIB - RESERVED - RESIDUAL - 2 * GIB,
    }
    assert (asleep.servers[0].state, asleep.servers[0].pools) == ("sleeping", ())
    assert asleep.devices[0].unexplained_bytes == {}
    assert asleep.servers[0].ranks[0].pool_bytes == {}
    assert of_the_server(awake) == WHOLE_SERVER
    assert awake.servers[0].state == "serving"


def test_a_vllm_that_is_woken_in_part_claims_nothing_yet(tmp_path: Path) -> None:
    """With the weights back and no pool it still calls itself asleep: which are back is not told."""
    found = observed(tmp_path, one_gpu(WHOLE + 3 * GIB), served(IDLE, state_of(weights_offloaded=1)))

    assert of_the_server(found) == {"runtime": WHOLE + 3 * GIB}
    assert "woken in part" in found.servers[0].notes[0]


def test_a_paused_vllm_keeps_what_its_processes_hold(tmp_path: Path) -> None:
    """A pause frees nothing; a release of the pool on top has the same state, and is seen by what is held."""
    page = served(IDLE, state_of())
    paused = observed(tmp_path, one_gpu(AWAKE), page)
    released = observed(tmp_path, one_gpu(AWAKE - POOL), page)

    assert (of_the_server(paused), paused.servers[0].state) == (WHOLE_SERVER, "serving")
    assert of_the_server(released) == {"runtime": AWAKE - POOL}
    assert (released.servers[0].state, released.servers[0].pools) == ("sleeping", ())
    assert "it has released memory, which it does not say itself" in released.servers[0].notes[-1]
    assert released.devices[0].overattributed_bytes == {"": 0, "chat": 0}


def test_an_old_vllm_that_is_woken_in_part(tmp_path: Path) -> None:
    """Up to 0.31 it calls itself awake as soon as its weights are back: that it may sleep, its command line says."""
    command = {"enable-sleep-mode": True}
    size = WHOLE + 3 * GIB
    found = observed(tmp_path, one_gpu(size), served(IDLE, state_of(awake=1), command=command))
    plain = observed(tmp_path, one_gpu(size), served(IDLE, state_of(awake=1)))

    assert (of_the_server(found), found.servers[0].state) == ({"runtime": size}, "sleeping")
    assert plain.servers[0].state == "serving"
    assert plain.devices[0].overattributed_bytes["chat"] == POOL - 3 * GIB


def sglang(*lines: str, info: str = '"enable_memory_saver": true', **more: Any) -> Served:
    documents = sglang_page(
        "max_total_num_tokens||16000",
        "kv_used_tokens||0",
        "kv_evictable_tokens||1600",
        "kv_available_tokens||14400",
        "page_size||16",
        *lines,
    )
    documents["/server_info"] = f'{{"version": "0.5.23", "page_size": 16, {info}}}'
    return Served(engine="sglang", titles=SGLANG, documents=documents, **more)


SGLANG_POOL = 16_016 * BLOCK // 16
IDLE_LINES = ("num_running_reqs||0", "num_queue_reqs||0")


def test_an_sglang_that_released_its_memory(tmp_path: Path) -> None:
    """Its figures stand as before: what its processes hold says that weights and pool are gone, or back."""
    released = observed(tmp_path, one_gpu(GIB), sglang(*IDLE_LINES))
    back = observed(tmp_path, one_gpu(WHOLE + SGLANG_POOL + GIB), sglang(*IDLE_LINES))

    assert (of_the_server(released), released.servers[0].state) == ({"runtime": GIB}, "sleeping")
    assert back.servers[0].state == "serving"
    assert of_the_server(back) == {
        "weights": WHOLE,
        "kv_used": 0,
        "kv_cached": 1600 * BLOCK // 16,
        "kv_free": (14_400 + 16) * BLOCK // 16,
        "runtime": GIB,
    }


@pytest.mark.parametrize(
    ("info", "running"), [('"enable_memory_saver": true', "1"), ('"enable_memory_saver": false', "0")]
)
def test_wrong_figures_are_cut_and_shown_where_nothing_can_be_released(tmp_path: Path, info: str, running: str) -> None:
    """An SGLang that computes, or has no memory saver, does not sleep: then the figures are wrong, which is said."""
    lines = (f"num_running_reqs||{running}", "num_queue_reqs||0")
    found = observed(tmp_path, one_gpu(GIB), sglang(*lines, info=info))

    assert found.servers[0].state == "serving"
    assert found.devices[0].overattributed_bytes["chat"] == WHOLE + SGLANG_POOL - GIB


def test_a_llama_cpp_asleep_holds_what_it_holds(tmp_path: Path) -> None:
    """It has given back its model and cache; the rest of its process is its runtime."""
    documents = llama_cpp_documents(context=8192, held=((False, 0),))
    documents["/props"] = documents["/props"].replace("{", '{"is_sleeping": true, ', 1)
    found = observed(tmp_path, one_gpu(300 * MIB, pid=200), _llama_cpp(documents))

    assert of_the_server(found) == {"runtime": 300 * MIB}
    assert (found.servers[0].state, found.servers[0].pools) == ("sleeping", ())


@pytest.mark.parametrize("shape", ["offload_native", "offload_simple", "lmcache", "multimodal"])
def test_kv_off_the_device_is_in_none_of_its_components(tmp_path: Path, shape: str) -> None:
    """Tiers in host memory and on disk, and the cache of images: named beside, and every component as without them."""
    plain = observed(tmp_path, one_gpu(BUSY), served(vllm("0.33.0/metrics.txt")))
    found = observed(tmp_path, one_gpu(BUSY), served(vllm(f"shapes/{shape}.txt")))

    assert closed(found.devices[0]) == closed(plain.devices[0])
    assert found.servers[0].pools == plain.servers[0].pools
    assert of_the_server(found)["kv_used"] == 250 * BLOCK
    named = {(one.by, one.tier) for one in found.servers[0].offload}
    assert (
        named
        == {
            "offload_native": {("kv_offload", "host")},
            "offload_simple": {("simple_kv_offload", "disk"), ("hisparse", "host")},
            "lmcache": {("LMCache", "host"), ("LMCache", "disk")},
            "multimodal": set(),
        }[shape]
    )
    items = (found.servers[0].replicas[0].multimodal_hits, found.servers[0].replicas[0].multimodal_queries)
    assert items == ((30, 40) if shape == "multimodal" else (None, None))


def test_the_host_tier_of_sglang_is_in_no_component(tmp_path: Path) -> None:
    """Eight times its pool in host memory changes nothing on the device."""
    size = WHOLE + SGLANG_POOL + GIB
    tier = ("hicache_host_used_tokens||100000", "hicache_host_total_tokens||128000")
    plain, found = (observed(tmp_path, one_gpu(size), sglang(*lines)) for lines in (IDLE_LINES, (*IDLE_LINES, *tier)))

    assert closed(found.devices[0]) == closed(plain.devices[0])
    (one,) = found.servers[0].offload
    assert (one.by, one.tier, one.used_tokens, one.capacity_tokens) == ("HiCache", "host", 100_000, 128_000)
    assert found.servers[0].pools == plain.servers[0].pools


H, M, V = 4096, 14_336, 128_256
LORA_LAYER = 2 * H + 2 * (H + 1024) + 2 * H + 3 * (H + M)
LORA = 4 * 64 * 2 * (32 * LORA_LAYER + 2 * (V + H))  # four slots of rank 64 of Llama 8B
ADAPTERS = {"enable_lora": True, "max_loras": 4, "max_lora_rank": 64}


FIRST = RankTitle(tp_rank=0, pp_rank=0, replica="0")


def log_of(weights: int) -> LogReading:
    return LogReading(at=1.0, engine="vllm", ready=True, ranks=(RankLog(rank=FIRST, weights_bytes=weights),))


def test_slots_of_adapters_are_runtime_where_the_weights_are_the_checkpoints(tmp_path: Path) -> None:
    """They are in the budget of the runtime then, so they are not unexplained; the adapters of requests are named."""
    config = {**LLAMA_8B, "architectures": ["LlamaForCausalLM"]}
    page = vllm("shapes/lora.txt")
    found = observed(tmp_path, one_gpu(BUSY + LORA), served(page, config=config, flags=ADAPTERS))
    without = observed(tmp_path, one_gpu(BUSY + LORA), served(page, config=config))

    assert of_the_server(found)["weights"] == WHOLE
    assert of_the_server(found)["runtime"] == 3 * GIB + LORA
    bounds = {line.bound: line.bytes for line in found.devices[0].budget if line.component == "runtime"}
    plain = {line.bound: line.bytes for line in without.devices[0].budget if line.component == "runtime"}
    assert {bound: size - plain[bound] for bound, size in bounds.items()} == dict.fromkeys(bounds, LORA)
    (adapters,) = found.servers[0].adapters
    assert (adapters.slots, adapters.running, adapters.waiting) == (4, ("chat", "sql"), ())


def test_slots_of_adapters_are_weights_where_the_log_counts_them_so(tmp_path: Path) -> None:
    """vLLM says what loading the model took, slots included: so do its weights here, and their budget."""
    config = {**LLAMA_8B, "architectures": ["LlamaForCausalLM"]}
    server = served(vllm("shapes/lora.txt"), config=config, flags=ADAPTERS, log=log_of(WHOLE + LORA))
    found = observed(tmp_path, one_gpu(BUSY + LORA), server)

    assert of_the_server(found)["weights"] == WHOLE + LORA
    assert of_the_server(found)["runtime"] == 3 * GIB
    budget = {line.component: line.bytes for line in found.devices[0].budget if line.bound == "likely"}
    assert budget["weights"] == WHOLE + LORA


DRAFT = 20 * GIB


@pytest.mark.parametrize(("algorithm", "unexplained"), [("null", True), ('"NGRAM"', True), ('"EAGLE3"', False)])
def test_a_draft_model_is_not_called_unexplained(tmp_path: Path, algorithm: str, unexplained: bool) -> None:
    """Its weights and KV are in the runtime of an SGLang, whose figures are those of the model it serves."""
    info = f'"speculative_algorithm": {algorithm}, "speculative_draft_model_path": "/draft", "model_path": "/m"'
    lines = (*IDLE_LINES, f"kv_cache_memory_usage_gb||{SGLANG_POOL / GIB!r}")
    found = observed(tmp_path, one_gpu(WHOLE + SGLANG_POOL + DRAFT), sglang(*lines, info=info))

    assert of_the_server(found)["runtime"] == DRAFT
    assert ("chat" in found.devices[0].unexplained_bytes) is unexplained


def test_what_a_llama_cpp_loads_beside_its_model_is_not_called_unexplained(tmp_path: Path) -> None:
    """Its slots say that it speculates, its properties that it sees: the bytes of both are in its runtime."""
    documents = llama_cpp_documents(context=8192, held=((False, 0),))
    plain = _llama_cpp(documents)
    more = _llama_cpp(
        {
            **documents,
            "/props": documents["/props"].replace("{", '{"modalities": {"vision": true, "audio": false}, ', 1),
            "/slots": documents["/slots"].replace("{", '{"speculative": true, ', 1),
        }
    )
    (without, found) = (observed(tmp_path, one_gpu(60 * GIB, pid=200), server) for server in (plain, more))

    assert of_the_server(found) == of_the_server(without)
    assert without.devices[0].unexplained_bytes["chat"] > 20 * GIB
    assert found.devices[0].unexplained_bytes == {}
    assert "a model that speculates and a projector of images or sound" in found.servers[0].notes[-1]


def _llama_cpp(documents: dict[str, str]) -> Served:
    return Served(
        engine="llama_cpp", titles={200: "llama-server -m m.gguf"}, documents=documents, flags={"kv-unified": True}
    )


def test_a_draft_model_is_weights_where_the_log_counts_it_so(tmp_path: Path) -> None:
    """vLLM loads it with the model; its KV is in the pool, whose size the log has."""
    draft = 2 * GIB
    log = LogReading(
        at=1.0,
        engine="vllm",
        ready=True,
        ranks=(RankLog(rank=FIRST, weights_bytes=WHOLE + draft, kv_pool_bytes=SMALL),),
    )
    flags = {"speculative": "draft:3"}
    found = observed(tmp_path, one_gpu(BUSY + draft), served(vllm("0.33.0/metrics.txt"), flags=flags, log=log))

    assert of_the_server(found)["weights"] == WHOLE + draft
    assert of_the_server(found)["kv_used"] == SMALL // 4
    assert of_the_server(found)["runtime"] == 3 * GIB
    assert found.devices[0].unexplained_bytes == {"chat": 0}


def test_weights_on_the_host_are_not_claimed_on_the_device(tmp_path: Path) -> None:
    """Of 15 GiB some stay in host memory: the checkpoint does not say which, the log says how much was loaded."""
    flags = {"cpu-offload-gb": 10.0}
    size = WHOLE - 10 * GIB
    page = vllm("0.33.0/metrics.txt")
    unknown = observed(tmp_path, one_gpu(BUSY - 10 * GIB), served(page, flags=flags))
    known = observed(tmp_path, one_gpu(BUSY - 10 * GIB), served(page, flags=flags, log=log_of(size)))

    assert "weights" not in of_the_server(unknown)
    assert of_the_server(known)["weights"] == size
    assert of_the_server(known)["runtime"] == 3 * GIB
    assert known.devices[0].overattributed_bytes["chat"] == 0


def test_the_terminal_names_what_is_beside_the_pools(tmp_path: Path) -> None:
    """KV elsewhere by its tier and adapters by name, also without being asked to explain."""
    tier = ("hicache_host_used_tokens||100000", "hicache_host_total_tokens||128000")
    slots = ("lora_pool_slots_used||2", "lora_pool_slots_total||8")
    found = observed(tmp_path, one_gpu(WHOLE + SGLANG_POOL + GIB), sglang(*IDLE_LINES, *tier, *slots))
    out = StringIO()
    print_snapshot(found, explain=False, console=Console(file=out, width=200, highlight=False))

    assert "KV elsewhere, host: HiCache, 100,000 tokens of 128,000 tokens, 78.1% used" in out.getvalue()
    assert "LoRA adapters: 2 slots of 8 slots" in out.getvalue()


def test_an_lmdeploy_that_sleeps_does_not_claim_its_weights(tmp_path: Path) -> None:
    """Its page says nothing of sleep: idle, its process holds less than its weights."""
    page = "".join(
        f'lmdeploy:{name}{{model_name="m",engine="0"}} 0\n'
        for name in ("num_requests_running", "num_requests_waiting", "gpu_cache_usage_perc")
    )
    server = Served(
        engine="lmdeploy", titles={200: "lmdeploy serve api_server m"}, documents={"/metrics": page}, log=log_of(WHOLE)
    )
    asleep, awake = (observed(tmp_path, one_gpu(size, pid=200), server) for size in (2 * GIB, WHOLE + 2 * GIB))

    assert (of_the_server(asleep), asleep.servers[0].state) == ({"runtime": 2 * GIB}, "sleeping")
    assert of_the_server(awake) == {"weights": WHOLE, "runtime": 2 * GIB}
