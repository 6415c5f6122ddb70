"""The operator's ladder on real configs, with figures derived beside them; what is recommended does fit."""

import shlex
from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.memory.arguments import Arguments, from_flags
from agent.memory.budget import Device, compute
from agent.memory.fitting import HEADROOM, largest
from agent.memory.gpus import find_gpus
from agent.memory.plan import Choice, Plan, Rung, Target, plan
from agent.memory.serving import ENGINES
from collectors.readings import ModelFiles
from tests.agent.memory.models import GIB, config

K128 = 131_072


@lru_cache
def files(name: str) -> ModelFiles:
    return ModelFiles(path=f"/models/{name}", config=config(name))


def planned(name: str, gpu: str, context: int, concurrency: int, /, **base: object) -> Plan:
    device, gpus = find_gpus(gpu)
    target = Target(gpus=gpus, context=context, concurrency=concurrency)
    engine = str(base.pop("engine", "vllm"))
    return plan(files(name), from_flags(base, engine=engine), device, target)


def rungs(decided: Plan, name: str) -> list[Rung]:
    return [rung for rung in decided.ladder if rung.rung == name]


def test_a_target_that_fits() -> None:
    """Need, fit and architecture, and one choice: the question is answered.

    Llama-3.1-8B: 32 layers x 8 heads x 256 x 2 B = 131,072 B a token; multi-head attention would have 32 heads.
    """
    decided = planned("llama-3.1-8b", "h100", K128, 2)

    assert decided.fits is True
    assert [(rung.rung, rung.fits, rung.bytes) for rung in decided.ladder] == [
        ("need", None, 2 * K128 * 131_072),
        ("fit", True, 2 * K128 * 131_072),
        ("architecture", None, K128 * 131_072),
    ]
    assert decided.ladder[2].saves_bytes == K128 * 32 * (32 - 8) * 256 * 2
    assert [choice.why for choice in decided.choices] == ["fits as it is"]


def test_smaller_kv_formats_in_order() -> None:
    """FP8 before INT8 before INT4, each with what it saves and its warning, up to the first that fits.

    Bytes a token: fp8 65,536; with two fp32 scales for each of 8 heads of 32 layers: int8 67,584, int4 34,816.
    """
    decided = planned("llama-3.1-8b", "h100", K128, 8)

    need = 8 * K128 * 131_072
    found = [
        (rung.finding.split(":")[0], rung.fits, rung.bytes, rung.saves_bytes) for rung in rungs(decided, "kv_format")
    ]
    assert decided.fits is False
    assert found == [
        ("fp8", False, 8 * K128 * 65_536, need - 8 * K128 * 65_536),
        ("int8_per_token_head", False, 8 * K128 * 67_584, need - 8 * K128 * 67_584),
        ("int4_per_token_head", True, 8 * K128 * 34_816, need - 8 * K128 * 34_816),
    ]
    assert all(
        "K" in (rung.warning or "") and "long contexts" in (rung.warning or "") for rung in rungs(decided, "kv_format")
    )


def test_every_rung_in_order() -> None:
    """The whole ladder where nothing fits as it is; H2O keeps a fifth of the tokens, StreamingLLM 4 + 2,044."""
    decided = planned("llama-3.1-70b", "h100x8", K128, 16)

    assert [rung.rung for rung in decided.ladder] == [
        *("need", "fit", "architecture", "kv_format", "gpus", "concurrency", "context", "evict", "evict"),
    ]
    streaming, heavy = rungs(decided, "evict")
    assert streaming.bytes == 16 * 2048 * 327_680
    assert heavy.bytes == 16 * 26_214 * 327_680
    assert streaming.finding.endswith("no flag in this engine")
    assert heavy.finding.endswith("no flag in this engine")
    assert {(choice.gpus, choice.tp, choice.pp, choice.kv_cache_dtype) for choice in decided.choices} == {
        (8, 8, 1, "fp8"),
        (16, 8, 2, "bfloat16"),
        (8, 8, 1, "bfloat16"),
    }


def test_latent_attention() -> None:
    """MLA is told in bytes against multi-head attention: 61 x 128 heads x (192 + 128) x 2 B = 4,997,120 a token; TP
    does not divide it, data-parallel attention does; and vLLM has FP8 alone for it."""
    decided = planned("deepseek-v3", "h200x8", K128, 64)

    architecture = rungs(decided, "architecture")[0]
    assert (architecture.bytes, architecture.saves_bytes) == (70_272 * K128, (4_997_120 - 70_272) * K128)
    assert "each rank keeps all of the KV" in rungs(decided, "gpus")[0].finding
    assert [rung.finding.split(":")[0] for rung in rungs(decided, "kv_format")] == ["fp8"]
    more = next(choice for choice in decided.choices if choice.gpus > 8)
    assert more.dp > 1
    assert "--data-parallel-size" in more.engine_flags


def test_weights_that_do_not_fit() -> None:
    """Said as that; no concurrency and no context helps, more GPUs do."""
    decided = planned("deepseek-v3", "h100x8", K128, 1)

    assert "leave no room for KV" in rungs(decided, "fit")[0].finding
    assert rungs(decided, "concurrency")[0].fits is False
    assert rungs(decided, "context")[0].fits is False
    assert [choice.gpus for choice in decided.choices] == [16]


def test_fewer_gpus() -> None:
    """Where it fits, the fewest GPUs are a choice of their own."""
    decided = planned("llama-3.1-8b", "h100x8", 8192, 4)

    assert [(choice.gpus, choice.why) for choice in decided.choices] == [
        (8, "fits as it is"),
        (1, "fewest GPUs: 1 of 8"),
    ]


def test_an_unknown_architecture() -> None:
    """No number, no choice, and the reason."""
    content = {"model_type": "tomorrow", "num_hidden_layers": 4, "hidden_size": 64, "vocab_size": 100}
    device, _ = find_gpus("h100")

    decided = plan(
        ModelFiles(path="/m", config=content), Arguments(), device, Target(gpus=1, context=1024, concurrency=1)
    )

    assert (decided.fits, decided.choices) == (None, ())
    assert rungs(decided, "need")[0].bytes is None
    assert any("tomorrow" in text for text in decided.unknown)


def test_what_is_given_is_kept() -> None:
    """A KV format that is given is not argued with, nor is a share of the device."""
    decided = planned("llama-3.1-8b", "h100", K128, 8, kv_cache_dtype="fp8", gpu_memory_utilization=0.8)

    assert rungs(decided, "need")[0].bytes == 8 * K128 * 65_536
    assert "no smaller KV format" in rungs(decided, "kv_format")[0].finding
    assert all("--gpu-memory-utilization 0.8 --kv-cache-dtype fp8" in choice.engine_flags for choice in decided.choices)


def test_more_sequences_than_the_default() -> None:
    """A concurrency above the engine's default asks for it."""
    decided = planned("llama-3.2-1b", "h200", 512, 2000)

    assert "--max-num-seqs 2000" in decided.choices[0].engine_flags


def test_need_and_room_are_of_one_arithmetic() -> None:
    """Need, room and reserve are those of the engine's own step: Gemma 3's windows hold what is in flight.

    A request's need in a pool of exactly that size has room for one.
    """
    decided = planned("gemma-3-27b", "h100", 32_768, 8)
    device, _ = find_gpus("h100")
    alone = compute(files("gemma-3-27b"), Arguments(max_model_len=32_768), device).ranks[0].kv.request_bytes or 0

    need = rungs(decided, "need")[0]
    assert need.bytes == 8 * alone
    assert "of a request being the engine's in-flight reserve for steps of 8,192 tokens" in need.finding
    assert (rungs(decided, "architecture")[0].bytes, rungs(decided, "fit")[0].bytes) == (alone, 8 * alone)


def test_a_smaller_step() -> None:
    """Less in flight is offered where the reserve is what does not fit, before more GPUs; the step keeps FP8 enough."""
    decided = planned("gemma-3-27b", "h100", 32_768, 8)

    rung = rungs(decided, "step")[0]
    assert rung.fits is True
    assert rung.finding.startswith("2,048 tokens instead of 8,192 with fp8 KV: ")
    choice = decided.choices[0]
    assert choice.why == "steps of 2,048 tokens and fp8 KV on the GPUs there are"
    assert "--max-num-batched-tokens 2048 --kv-cache-dtype fp8" in choice.engine_flags
    assert not rungs(planned("gemma-3-27b", "h100", 32_768, 8, max_num_batched_tokens=8192), "step")
    assert not rungs(planned("llama-3.1-8b", "h100", K128, 8), "step")


@pytest.mark.parametrize(
    ("engine", "said"),
    [("vllm", "vLLM refuses more"), ("sglang", "SGLang refuses more"), ("llama_cpp", "llama-server cuts slots to it")],
)
def test_beyond_the_models_limit(engine: str, said: str) -> None:
    """Said first; nothing longer than the model's own 131,072 tokens is offered, in no engine."""
    device, _ = find_gpus("h100")
    target = Target(gpus=1, context=1 << 20, concurrency=1)

    decided = plan(files("llama-3.1-8b"), Arguments(engine=engine), device, target, others=ENGINES)

    assert [(rung.rung, rung.fits) for rung in decided.ladder] == [
        ("limit", False),
        ("need", None),
        ("fit", False),
        ("architecture", None),
        ("context", True),
    ]
    assert said in decided.ladder[0].finding
    assert decided.fits is False
    assert [choice.context for choice in decided.choices] == [K128]


def test_more_slots_than_llama_cpp_has() -> None:
    """256 sequences are its most (LLAMA_MAX_SEQ), so no choice has more."""
    decided = planned("llama-3.1-8b", "h200", 512, 2000, engine="llama_cpp")

    assert "llama.cpp refuses 2,000 slots" in rungs(decided, "fit")[0].finding
    assert "llama.cpp refuses 2,000 slots" in rungs(decided, "context")[0].finding
    assert [choice.concurrency for choice in decided.choices] == [256]
    device, _ = find_gpus("h200")
    target = Target(gpus=1, context=512, concurrency=2000)
    elsewhere = plan(files("llama-3.2-1b"), Arguments(), device, target, others=("llama_cpp",))
    assert {choice.engine for choice in elsewhere.choices} == {"vllm"}


def test_more_gpus_and_a_smaller_format() -> None:
    """Fewer GPUs with FP8 than without: 320 GiB of KV and 131 GiB of weights on 8 x 79 GiB."""
    decided = planned("llama-3.1-70b", "h100x2", K128, 16)

    assert [(rung.fits, rung.finding.split(":")[0]) for rung in rungs(decided, "gpus")] == [
        (True, "16 GPUs (TP 8 x PP 2, nodes of 8)"),
        (True, "8 GPUs (TP 8) with fp8 KV"),
    ]
    combined = next(choice for choice in decided.choices if choice.gpus == 8)
    assert (combined.kv_cache_dtype, combined.why) == ("fp8", "8 GPUs with fp8 KV")
    assert "evaluate" in (combined.warning or "")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("llama-3.1-8b", "a GGUF file of bf16 weights; give the .gguf or --weights-bytes for a quantised one"),
        ("deepseek-v3", "a GGUF file of bf16 weights (GGUF has no FP8); give the .gguf"),
        ("gpt-oss-20b", "a GGUF file of MXFP4 weights"),
    ],
)
def test_weights_of_a_gguf_file(name: str, said: str) -> None:
    """What llama.cpp's weights are counted as is said; GGUF has no FP8, so 671 x 10^9 of them are of 2 B there."""
    device, _ = find_gpus("h200")
    target = Target(gpus=16, context=4096, concurrency=1)

    decided = plan(files(name), Arguments(), device, target, others=("llama_cpp",))

    found = next(choice for choice in decided.choices if choice.engine == "llama_cpp")
    assert said in found.why
    assert any(said in text for text in planned(name, "h200x16", 4096, 1, engine="llama_cpp").warnings)
    if name == "deepseek-v3":
        assert 16 * (found.weights_bytes or 0) > 2 * 650 * 10**9


def test_weights_of_a_gguf_file_as_given() -> None:
    """Given bytes are those of the file."""
    decided = planned("deepseek-v3", "h200x4", 4096, 1, engine="llama_cpp", weights_bytes=400 * 10**9)

    assert decided.fits is True
    assert any("weights' bytes as given" in text for text in decided.warnings)


def test_bytes_of_all_gpus_and_of_one() -> None:
    """Each figure says whose it is: of all GPUs, of one copy where GPUs can't share it, or of a GPU."""
    decided = planned("llama-3.1-70b", "h100x2", K128, 16)

    assert rungs(decided, "need")[0].finding.startswith("640.00 GiB over 2 GPUs for ")
    assert "40.00 GiB a request over 2 GPUs" in rungs(decided, "architecture")[0].finding
    assert any("needs 20.00 GiB of KV a GPU, the pool holds 2.57 GiB a GPU" in text for text in decided.warnings)
    latent = planned("deepseek-v3", "h200x8", 8192, 4)
    assert "in one copy on 8 GPUs" in rungs(latent, "need")[0].finding


@pytest.mark.parametrize(
    ("most", "step", "limit", "expected"),
    [(100, 1, 1000, 100), (100, 1, 37, 37), (100, 1, 0, None), (1000, 256, 600, 512), (1000, 256, 999, 768)],
)
def test_largest(most: int, step: int, limit: int, expected: int | None) -> None:
    """All of it, else the largest multiple of the step up to the limit."""
    assert largest(most, step, lambda count: count <= limit) == expected


MODELS = (
    *("llama-3.1-8b", "llama-3.1-70b", "qwen3-30b-a3b", "deepseek-v2-lite", "deepseek-v3"),
    *("gpt-oss-120b", "gemma-3-27b", "qwen3.5-35b-a3b", "deepseek-v4-flash", "nemotron-3-nano-30b-a3b"),
)
TARGETS = {
    "name": st.sampled_from(MODELS),
    "context": st.integers(512, 160_000),
    "concurrency": st.integers(1, 400),
}


ELSEWHERE = ("--gpu-layers", "--split-mode", "--flash-attn")


def put_back(name: str, choice: Choice, device: Device) -> None:
    """The flags of a choice, read as its engine's, make a budget that holds its target with the headroom.

    llama.cpp spreads layers over the GPUs it sees, and what is not about memory is left out.
    """
    words = shlex.split(choice.engine_flags)
    flags: dict[str, object] = {}
    for word, after in zip(words, [*words[1:], "--"], strict=True):
        if word.startswith("--"):
            flags[word] = True if after.startswith("--") else after
    if choice.engine == "llama_cpp":
        flags = {name: value for name, value in flags.items() if name not in ELSEWHERE} | {"pp": choice.pp}
    budget = compute(files(name), from_flags(flags, engine=choice.engine), device)

    held = min(int(rank.kv.max_concurrency or 0) for rank in budget.ranks) * choice.dp
    headroom = min(rank.headroom_bytes or 0 for rank in budget.ranks) / (device.total_bytes or 1)
    assert budget.fits
    assert held >= choice.concurrency
    assert headroom >= HEADROOM


@given(
    **TARGETS, gpu=st.sampled_from(("h100", "h100x2", "h200x8", "l40s", "rtx4090x2")), engine=st.sampled_from(ENGINES)
)
@settings(max_examples=40, deadline=None)
def test_flags_put_back_fit(name: str, context: int, concurrency: int, gpu: str, engine: str) -> None:
    """Every choice is a promise that the budget keeps, in each engine's own flags."""
    device, _ = find_gpus(gpu)

    for choice in planned(name, gpu, context, concurrency, engine=engine).choices:
        put_back(name, choice, device)


@given(**TARGETS, gib=st.integers(8, 300), more=st.integers(1, 200))
@settings(max_examples=25, deadline=None)
def test_a_bigger_gpu_never_fits_less(name: str, context: int, concurrency: int, gib: int, more: int) -> None:
    """At the same step of the engine, whose default grows with the device: what fits keeps fitting."""
    base = Arguments(max_num_batched_tokens=8192, max_num_seqs=512)
    target = Target(gpus=2, context=context, concurrency=concurrency)
    small, large = (Device(total_bytes=size * GIB) for size in (gib, gib + more))

    if plan(files(name), base, small, target).fits:
        assert plan(files(name), base, large, target).fits
