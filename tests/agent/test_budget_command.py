"""``vramscope budget``: tables, JSON, and one sentence for each mistake."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent.budget_command import budget_command
from tests.agent.memory.models import DIRECTORY
from tests.engines.tiny_models import make_llama


def _config(name: str) -> str:
    return str(DIRECTORY / "configs" / f"{name}.json")


def _run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "80"}).invoke(budget_command, arguments)


def _json(*arguments: str) -> dict[str, Any]:
    result = _run(*arguments, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    document: dict[str, Any] = json.loads(result.stdout)
    return document


@pytest.mark.parametrize(
    ("name", "bf16"),
    [
        ("llama-2-7b", 524_288),
        ("llama-3.1-8b", 131_072),
        ("llama-3.1-70b", 327_680),
        ("qwen3-8b", 147_456),
        ("deepseek-v2-lite", 31_104),
        ("deepseek-v3", 70_272),
    ],
)
def test_bytes_per_token(name: str, bf16: int) -> None:
    """In bf16, and half of it in fp8."""
    for dtype, expected in (("auto", bf16), ("fp8", bf16 // 2)):
        document = _json(_config(name), "--kv-cache-dtype", dtype)
        assert document["ranks"][0]["kv"]["bytes_per_token"] == expected


def test_a_directory(tmp_path: Path) -> None:
    """A model's directory is the same as its config, and names the model."""
    shutil.copy(_config("llama-3.1-8b"), tmp_path / "config.json")

    by_directory, by_file = _json(str(tmp_path)), _json(str(tmp_path / "config.json"))

    assert by_directory == by_file
    assert by_directory["model"]["name"] == tmp_path.name


def test_every_option_reaches_the_budget() -> None:
    """Values come out with the source ``given``."""
    given = {
        "--engine-version": "0.20.0",
        "--tp": "2",
        "--pp": "2",
        "--dp": "2",
        "--pp-layers": "20,12",
        "--dtype": "half",
        "--quantization": "fp8",
        "--kv-cache-dtype": "fp8_e5m2",
        "--block-size": "32",
        "--max-model-len": "4k",
        "--gpu-memory-utilization": "0.8",
        "--max-num-batched-tokens": "4096",
        "--max-num-seqs": "64",
        "--num-gpu-blocks": "500",
        "--kv-cache-memory-bytes": "1G",
        "--kv-pool-bytes": "2G",
        "--weights-bytes": "16G",
        "--max-loras": "2",
        "--max-lora-rank": "16",
        "--speculative": "draft:3",
        "--draft-model": _config("llama-3.2-1b"),
    }

    document = _json(_config("llama-3.1-8b"), *(part for pair in given.items() for part in pair), "--enforce-eager")

    values = {name: entry["value"] for name, entry in document["arguments"].items() if entry["source"] == "given"}
    assert document["arguments"]["engine"] == {"value": "vllm", "source": "default"}  # nobody gave it
    assert values == {
        "engine_version": "0.20.0",
        "tp": 2,
        "pp": 2,
        "dp": 2,
        "pp_layers": [20, 12],
        "dtype": "float16",
        "quantization": "fp8",
        "kv_cache_dtype": "fp8_e5m2",
        "block_size": 32,
        "max_model_len": 4000,
        "gpu_memory_utilization": 0.8,
        "max_num_batched_tokens": 4096,
        "max_num_seqs": 64,
        "num_gpu_blocks": 500,
        "kv_cache_memory_bytes": 1 << 30,
        "kv_pool_bytes": 2 << 30,
        "weights_bytes": 16 << 30,
        "max_loras": 2,
        "max_lora_rank": 16,
        "speculative": "draft:3",
        "draft_model": _config("llama-3.2-1b"),
        "enforce_eager": True,
    }


@pytest.mark.parametrize(
    ("options", "pool_tokens"),
    [
        (("--ctx-size", "16K", "--parallel", "4"), 16_384),
        (("--ctx-size", "16K", "--parallel", "4", "--kv-unified"), 16_384),
        (("--ctx-size", "1000", "--parallel", "4", "--no-kv-unified"), 4 * 256),
        (("--ctx-size", "1000", "--no-kv-unified"), 4 * 256),
        (("--ctx-size", "1000"), 1024),
    ],
)
def test_llama_cpp_is_sized_by_its_own_flags(options: tuple[str, ...], pool_tokens: int) -> None:
    """A context for all slots: in one cache, or in parts of whole 256 tokens."""
    (rank,) = _json(_config("llama-3.1-8b"), "--engine", "llama_cpp", *options)["ranks"]

    assert rank["kv"]["pool_tokens"] == pool_tokens


def test_windows_cached_whole() -> None:
    """As if each layer saw all tokens."""
    options = ("--engine", "llama_cpp", "--ctx-size", "32K", "--parallel", "1")
    documents = [_json(_config("gemma-3-27b"), *options, *more) for more in ((), ("--swa-full",))]

    pools = [document["ranks"][0]["kv"]["pool_bytes"] for document in documents]
    assert pools == [8192 * (10 * 32_768 + 52 * (1024 + 512)), 8192 * 62 * 32_768]


def test_devices() -> None:
    """By name; by NVML total with what CUDA shows of it."""
    named = _json(_config("llama-3.1-8b"), "--gpu", "h100")
    by_bytes = _json(_config("llama-3.1-8b"), "--gpu", "85520809984", "--cuda-bytes", "85018542080")

    sizes = {"total_bytes": 85_520_809_984, "cuda_bytes": 85_018_542_080}
    assert named["device"] == {"name": "NVIDIA H100 80GB HBM3", **sizes}
    assert by_bytes["device"] == {"name": None, **sizes}
    assert named["ranks"] == by_bytes["ranks"]


def test_tensor_headers_on_disk(tmp_path: Path) -> None:
    """A tiny model with real safetensors: its ranks hold exactly its tensors, the replicated parts once each."""
    model = make_llama(tmp_path / "tiny")

    alone, split = _json(str(model.path)), _json(str(model.path), "--tp", "2", "--pp", "2")

    assert (alone["ranks"][0]["weights_bytes"], alone["ranks"][0]["weights_evidence"]) == (
        model.tensor_bytes,
        "computed",
    )
    norms = (2 * 2 + 1) * 64 * 2  # two in each of two layers, one at the end, 64 elements of 2 bytes
    assert sum(rank["weights_bytes"] for rank in split["ranks"]) == model.tensor_bytes + norms
    assert alone["ranks"][0]["kv"]["bytes_per_token"] == model.kv_bytes_per_token


def test_weights_of_a_lone_config() -> None:
    """``--weights-bytes`` stands for the checkpoint."""
    rank = _json(_config("llama-3.1-8b"), "--weights-bytes", "16060522496")["ranks"][0]

    assert (rank["weights_bytes"], rank["weights_evidence"]) == (16_060_522_496, "computed")


def test_terms_come_with_explain_only() -> None:
    """A script that doesn't ask gets none."""
    plain = _json(_config("llama-3.1-8b"), "--gpu", "h100")
    explained = _json(_config("llama-3.1-8b"), "--gpu", "h100", "--explain")

    assert plain["terms"] == []
    assert {"name", "value", "formula", "source"} == set(explained["terms"][0])


def test_tables_fit_80_columns() -> None:
    """What a person reads: components with their ranges, the KV cache, notes, the verdict."""
    result = _run(_config("deepseek-v3"), "--gpu", "h200", "--tp", "8", "--explain")

    assert (result.exit_code, result.stderr) == (0, "")
    assert max(map(len, result.stdout.splitlines())) <= 80
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "deepseek-v3 DeepseekV3ForCausalLM 671,026,419,200 parameters" in lines
    assert "61 layers mla: one latent vector of 576" in lines
    assert "memory of a rank (8 alike)" in lines
    assert "weights 79.29 GiB predicted" in lines
    assert "context * 0.51 GiB 0.29 GiB 0.60 GiB range" in lines
    assert "mla 61 64 73,728 2,560" in lines
    assert "= 61 layers × 1,152" in lines
    assert "block_size = 64 (default)" in lines
    assert "note: the latent KV is replicated on all 8 tensor-parallel ranks" in lines
    assert lines[-1] == "It fits, with less than the usual 10 % headroom for temporaries."


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        (  # two groups; what a request holds besides its tokens: 12 layers x 1,033 blocks of 16 x 2,048 B
            "gpt-oss-20b",
            ("--gpu", "h100"),
            [
                "12 layers gqa: 8 KV heads, K 64, V 64, the last 128 tokens",
                "bytes per token 24,576",
                "fixed bytes per request 406,192,128 windows, states, reserve",
                "full 12 16 32,768 8,192",
                "window 12 16 32,768 1,033",
            ],
        ),
        (  # the slope with the padding of blocks, and without
            "deepseek-v4-flash",
            ("--gpu", "h200", "--tp", "8", "--max-model-len", "1M"),
            ["21 layers csa", "bytes per token 3,915 3,850.25 without padding"],
        ),
        (  # 62 caches in 43 layers
            "deepseek-v4-flash",
            ("--gpu", "h200", "--tp", "8"),
            [
                "kind caches tokens a block bytes a page blocks a request",
                "uniform 62 256 1,002,240 4,096",
                "csa: keeps few tokens as one record, and an index over them",
                "hca: keeps many tokens as one record",
                "uniform: caches of different widths in one block table",
            ],
        ),
        ("deepseek-v3.2", ("--gpu", "h200", "--tp", "8"), ["dsa: attends to tokens that an index picks"]),
        ("qwen3.5-27b", ("--gpu", "h100", "--engine", "sglang"), ["48 layers gated_delta_net", "states 7.17 GiB"]),
        (
            "llama-3.1-8b",
            ("--gpu", "l4", "--engine", "llama_cpp", "--parallel", "4", "--kv-cache-dtype-k", "q8_0"),
            ["note: each of the 4 slots has 131,072 tokens of its own", "It does not fit."],
        ),
    ],
)
def test_what_differs_between_layers_and_engines(name: str, options: tuple[str, ...], expected: list[str]) -> None:
    """Groups, fixed bytes, padding, states: all within 80 columns."""
    result = _run(_config(name), *options)

    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert (result.exit_code, result.stderr) == (0, "")
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert [line for line in expected if line not in lines] == []


def test_a_config_without_a_context() -> None:
    """Gemma 3's configs leave it to the class, which is no reason for a note."""
    result = _run(_config("gemma-3-27b"))

    assert "max_position_embeddings" not in result.stdout


def test_stages_have_a_table_each() -> None:
    """Stages differ, so each is shown."""
    result = _run(_config("llama-3.1-70b"), "--gpu", "h100", "--tp", "2", "--pp", "2")

    assert "memory of a rank, stage 0 (2 alike)" in result.stdout
    assert "memory of a rank, stage 1 (2 alike)" in result.stdout


def test_without_a_device() -> None:
    """What is missing, and how to give it."""
    result = _run(_config("llama-3.1-8b"))

    assert "vLLM 0.33 - give --gpu NAME or --gpu BYTES to size the pool" in result.stdout.splitlines()


def test_the_device_is_shown() -> None:
    """What NVML and CUDA say it has."""
    result = _run(_config("llama-3.1-8b"), "--gpu", "h100")

    assert "vLLM 0.33 on NVIDIA H100 80GB HBM3 (NVML 79.65 GiB, CUDA 79.18 GiB)" in result.stdout.splitlines()


def test_a_model_that_is_not_known(tmp_path: Path) -> None:
    """No number, the reason, bounds, and exit code 0: the question was answered."""
    content = json.loads(Path(_config("llama-3.1-8b")).read_text(encoding="utf-8")) | {"sliding_window": 128}
    (tmp_path / "config.json").write_text(json.dumps(content), encoding="utf-8")

    result = _run(str(tmp_path), "--gpu", "h200")

    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert "32 layers of unknown kind" in text
    assert "unknown: model_type 'llama' has layers that keep the last 128 tokens only" in text
    assert "0 to 524,288 bytes a token in 16 bit (at most K and V of all 32 heads, 128 wide, in all 32 layers" in text
    assert text.endswith("Whether it fits is not known.")
    assert _json(str(tmp_path))["ranks"][0]["kv"]["bytes_per_token_bounds"] == [0, 524_288]


def test_layers_that_see_less_than_all_tokens() -> None:
    """The window stands behind the widths, in text and JSON."""
    text = _run(_config("gpt-oss-20b"), "--gpu", "h200").stdout
    layers = _json(_config("gpt-oss-20b"))["model"]["layers"]

    assert "12 layers gqa: 8 KV heads, K 64, V 64, the last 128 tokens\n" in text
    assert "12 layers gqa: 8 KV heads, K 64, V 64\n" in text
    assert [(layer["reach"], layer["tokens"]) for layer in layers] == [("window", 128), (None, None)]


def test_a_model_that_does_not_fit() -> None:
    """That is an answer too."""
    result = _run(_config("llama-3.1-70b"), "--gpu", "h100")

    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "It does not fit.")


def test_an_engine_that_was_given_says_so() -> None:
    """In JSON and in words."""
    given = _json(_config("llama-3.1-8b"), "--engine", "vllm")
    said = [_run(_config("llama-3.1-8b"), "--explain", *engine).stdout for engine in ((), ("--engine", "vllm"))]

    assert given["arguments"]["engine"] == {"value": "vllm", "source": "given"}
    assert ["engine = vllm (default)" in said[0], "engine = vllm (given)" in said[1]] == [True, True]


def test_a_draft_model_that_can_not_be_is_named_as_such(tmp_path: Path) -> None:
    """Its config is at fault, not that of the model."""
    (tmp_path / "config.json").write_text('{"model_type": "llama", "num_hidden_layers": -1}', encoding="utf-8")

    result = _run(_config("llama-3.1-8b"), "--draft-model", str(tmp_path), "--speculative", "draft:1")

    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: --draft-model: {tmp_path / 'config.json'}: ")


def test_names_from_a_config_are_text(tmp_path: Path) -> None:
    """Markup in an architecture's name is shown as it is."""
    content = {"model_type": "[bold]x[/]", "architectures": ["[red]Evil[/]"]}
    (tmp_path / "config.json").write_text(json.dumps(content), encoding="utf-8")

    result = _run(str(tmp_path))

    assert "[red]Evil[/]" in result.stdout
    assert "model_type '[bold]x[/]' is not known here" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--gpu", "h1000"), "--gpu: unknown GPU 'h1000'; close names: NVIDIA H100 80GB HBM3,"),
        (("--gpu", "5"), "--gpu: unknown GPU '5'; known names: h200, "),
        (("--tp", "0"), "argument '--tp': expected an integer from 1 to 1024, got '0'"),
        (
            ("--max-model-len", "long"),
            "argument '--max-model-len': expected an integer from 1 to 2147483648, got 'long'",
        ),
        (
            ("--engine", "llama_cpp", "--kv-cache-dtype-k", "bogus"),
            "argument '--kv-cache-dtype-k': expected one of auto, f32, f16,",
        ),
        (("--kv-cache-dtype", "fp9"), "argument '--kv-cache-dtype': expected one of auto, bfloat16,"),
        (
            ("--engine", "lmdeploy"),
            "engine 'lmdeploy' has no planner; expected one of vllm, sglang, llama_cpp, ollama, tensorrt_llm",
        ),
        (("--engine", "tensorrt-llm"), "engine 'tensorrt-llm' has no planner; did you mean tensorrt_llm?"),
        (("--pp", "64"), "argument '--pp': expected at most the model's 32 layers, got 64"),
        (("--pp-layers", "10,10"), "argument '--pp-layers': expected 1 stage(s) with 32 layers in all, got 2 with 20"),
        (("--draft-model", "/nope"), "--draft-model: /nope: no such file; expected a model directory, config.json,"),
        (
            ("--gpu", "1073741824", "--cuda-bytes", "1073741825"),
            "--cuda-bytes: expected at most the device's 1073741824 bytes, got 1073741825",
        ),
        (
            ("--kv-cache-dtype", "fp9", "--engine", "sglang"),
            "expected one of auto, bfloat16, float16, float32, fp8_e4m3, fp8_e5m2, got 'fp9'",
        ),
        (("--kv-cache-dtype", "q8_0"), "fp8_ds_mla, mxfp8_ds_mla, nvfp4_ds_mla, got 'q8_0'"),
        (("--engine", "llama.cpp"), "engine 'llama.cpp' has no planner; did you mean llama_cpp?"),
        (("--engine", "vLLM"), "engine 'vLLM' has no planner; did you mean vllm?"),
        (
            ("--gpu", "80GB"),
            "--gpu: '80GB' is a size as GPUs are sold; give the GPU's name, or its NVML total in bytes",
        ),
        (
            ("--mem-fraction-static", "0.5"),
            "--mem-fraction-static is no flag of vllm; give --gpu-memory-utilization",
        ),
        (
            ("--engine", "sglang", "--gpu-memory-utilization", "0.5"),
            "--gpu-memory-utilization is no flag of sglang; give --mem-fraction-static",
        ),
        (("--engine", "ollama", "--tp", "2"), "--tp is no flag of ollama; give --pp"),
        (
            ("--engine", "llama_cpp", "--enforce-eager"),
            "--enforce-eager is no flag of llama_cpp; only of vllm and sglang",
        ),
        (("--ctx-size", "8192"), "--ctx-size is no flag of vllm; give --max-model-len"),
        (("--no-kv-unified",), "--kv-unified is no flag of vllm; only of llama_cpp"),
        (("--parallelism", "4"), "No such option"),
        (("--gpu", "h100x8"), "--gpu: 'h100x8' is 8 GPUs; give one, and --tp 8 (or ask `vramscope plan`)"),
        (("--block-size", "7"), "argument '--block-size': vLLM takes multiples of 16, got 7"),
        (
            ("--engine-version", "banana"),
            "argument '--engine-version': expected a version such as 0.33 or b6500, got 'banana'",
        ),
        (("--revision", "main"), "--revision is that of a model by name; a path has none"),
        (("--cuda-bytes", "-1"), "Invalid value for '--cuda-bytes'"),
    ],
)
def test_wrong_input_is_one_sentence(arguments: tuple[str, ...], said: str) -> None:
    """Exit code 2, the sentence on stderr, nothing on stdout, no traceback."""
    result = _run(_config("llama-3.1-8b"), *arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no such file; expected a model directory, config.json, safetensors index or GGUF file"),
        ("", "expected JSON, got an empty file"),
        ("{}", "no model config, it is empty; download the model's config.json"),
        ('{"a": "\n"}', "expected JSON, got a syntax error at line 1, column 8 (invalid control character); download"),
        ("[1]", "expected a JSON object, got list"),
        ('{"model_type": "llama"', "expected JSON, got"),
        ('{"model_type": "llama"}', "config key 'num_hidden_layers' is missing; expected an integer from 1 to 10000"),
        (
            '{"model_type": "llama", "num_hidden_layers": 1000000000000}',
            "config key 'num_hidden_layers': expected an integer from 1 to 10000, got 1000000000000",
        ),
    ],
)
def test_a_config_that_cannot_be_used(tmp_path: Path, content: str | None, said: str) -> None:
    """The sentence names the file, what was expected and what was there."""
    path = tmp_path / "config.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")

    result = _run(str(path))

    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{path}: " in result.stderr
    assert said in result.stderr


def test_the_file_of_a_key_is_named_whatever_was_given(tmp_path: Path) -> None:
    """A directory was given; what to mend is its config."""
    (tmp_path / "config.json").write_text('{"model_type": "llama"}', encoding="utf-8")

    assert f"{tmp_path}/config.json: config key 'num_hidden_layers' is missing" in _run(str(tmp_path)).stderr


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        (
            "whisper-large-v3",
            ("--tp", "8"),
            "vLLM refuses these arguments: tp 8: the model's 20 attention heads are not divisible by it; tp 8: the "
            "model's 20 KV heads are not divisible by it",
        ),
        (
            "llama-3.1-8b",
            ("--tp", "3"),
            "vLLM refuses these arguments: tp 3: the model's 32 attention heads are not divisible by it; tp 3: the "
            "model's 8 KV heads are not divisible by it",
        ),
        (
            "deepseek-v2-lite",
            ("--engine", "llama_cpp", "--kv-cache-dtype-k", "q8_0"),
            "llama.cpp refuses these arguments: cache types q8_0 and f16 for latent attention: its V is a view of "
            "its K",
        ),
    ],
)
def test_refused_arguments_are_the_verdict(name: str, options: tuple[str, ...], said: str) -> None:
    """Memory is not what is wrong, so it is not named; a script still reads ``fits`` false."""
    text = " ".join(_run(_config(name), "--gpu", "h100", *options).stdout.split())

    assert text.endswith(said)
    assert ("It does not fit" in text, text.count("divisible by it") > 2) == (False, False)
    assert _json(_config(name), "--gpu", "h100", *options)["fits"] is False


@pytest.mark.parametrize(
    ("options", "if_high", "said"),
    [
        (("--gpu-memory-utilization", "0.5"), True, "It fits."),
        # outside the share: 6.13 + 0.60 GiB at most, of the 6.33 that 0.92 leaves of 79.18 GiB
        (
            ("--tp", "2"),
            False,
            "It fits, with less than the usual 10 % headroom for temporaries; it may not fit if the runtime is as "
            "high as it may be.",
        ),
        # a pool that is given does not give way: 14.96 + 59.60 + 7.88 GiB at most, of 79.18
        (("--kv-pool-bytes", "64000000000"), False, "it may not fit if the runtime is as high as it may be."),
    ],
)
def test_a_narrow_fit_is_said(options: tuple[str, ...], if_high: bool, said: str) -> None:
    """Less headroom than the usual, and a runtime at its high bound, are part of the verdict."""
    arguments = (_config("llama-3.1-8b"), "--gpu", "h100", *options)

    document = _json(*arguments)

    assert (document["fits"], document["fits_if_high"]) == (True, if_high)
    assert " ".join(_run(*arguments).stdout.split()).endswith(said)


def test_what_headroom_is() -> None:
    """The table's last row is not what the total leaves; the line under it says why, and of what its share is."""
    arguments = (_config("llama-3.1-8b"), "--gpu", "h100")

    lines = _run(*arguments).stdout.splitlines()
    document = _json(*arguments)

    assert "headroom: 79.18 GiB - total + likely activations; % of NVML's 79.65 GiB" in lines
    rank, device = document["ranks"][0], document["device"]
    free = device["cuda_bytes"] - rank["total_bytes"]
    assert rank["headroom_bytes"] == free + rank["runtime"]["activations"]["likely"]
    assert f"{rank['headroom_bytes'] / device['total_bytes']:.1%} of device" in "\n".join(lines)


def test_stages_that_are_alike_are_shown_once() -> None:
    """Embedding and head make the first and last of eight stages differ; the tightest is named."""
    lines = _run(_config("llama-3.1-70b"), "--gpu", "h100", "--pp", "8").stdout.splitlines()

    assert [line for line in lines if line.startswith("memory of")] == [
        "memory of the rank, stage 0",
        "memory of a rank, stages 1-6 (6 alike)",
        "memory of the rank, stage 7",
    ]
    assert "tightest: stage 7, headroom 6.48 GiB" in lines


def test_a_gpu_by_its_gib() -> None:
    """A total as people write it, which is that of NVML."""
    assert _json(_config("llama-3.1-8b"), "--gpu", "80GiB")["device"]["total_bytes"] == 80 << 30


@pytest.mark.parametrize(
    ("engine", "title"), [("llama_cpp", "llama.cpp b11549"), ("ollama", "Ollama (llama.cpp b11549)")]
)
def test_no_states_where_a_model_has_none(engine: str, title: str) -> None:
    """Neither a row for them, nor a version of Ollama that is llama.cpp's."""
    result = _run(_config("llama-3.1-8b"), "--engine", engine, "--gpu", "h100")

    assert "states" not in result.stdout
    assert result.stdout.splitlines()[1].startswith(f"{title} on ")


def test_what_is_wrapped_keeps_its_indent() -> None:
    """Notes and the explanation's lines go on under their own beginning, and no line ends in a space."""
    lines = _run(_config("deepseek-v3"), "--gpu", "h200", "--tp", "8", "--explain").stdout.splitlines()

    assert [line for line in lines if line != line.rstrip()] == []
    explained = lines[lines.index("values used") + 1 : -2]
    begun = ("  ", "note: ", "unknown: ", "terms of rank")
    assert [line for line in explained if line and not line.startswith(begun)] == []
    note = next(number for number, line in enumerate(lines) if line.startswith("note: "))
    assert lines[note + 1].startswith("      ")


def test_the_help_says_what_the_exit_code_means() -> None:
    """A script reads the verdict from the JSON."""
    text = " ".join(_run("--help").stdout.split())

    assert "The exit code is 0 whatever the verdict, which is `fits` in the JSON" in text
