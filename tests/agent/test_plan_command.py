"""``vramscope plan``: the JSON that scripts rely on, what a person reads, and one sentence for each mistake."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent.cli import run as run_program
from agent.plan_command import plan_command
from tests.agent.memory.models import DIRECTORY
from tests.engines.tiny_ggufs import llama


def _config(name: str) -> str:
    return str(DIRECTORY / "configs" / f"{name}.json")


def _run(*arguments: str, columns: int = 80) -> Result:
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(plan_command, arguments)


def _target(gpu: str = "h100x8", context: str = "128K", concurrency: str = "16") -> tuple[str, ...]:
    return "--gpu", gpu, "--context", context, "--concurrency", concurrency


def _json(*arguments: str) -> dict[str, Any]:
    result = _run(*arguments, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_the_contract() -> None:
    """``vramscope.plan/1``: names and types."""
    document = _json(_config("llama-3.1-70b"), *_target(), "--engine", "vllm")

    assert (document["schema"], document["fits"]) == ("vramscope.plan/1", False)
    assert (document["gpus"], document["context"], document["concurrency"]) == (8, 131_072, 16)
    for choice in document["choices"]:
        assert {
            *("engine_flags", "gpus", "tp", "pp", "kv_cache_dtype", "context", "concurrency"),
            *("kv_bytes", "weights_bytes", "headroom_ratio", "why"),
        } <= set(choice)
        assert all(isinstance(choice[name], int) for name in ("gpus", "tp", "pp", "kv_bytes", "weights_bytes"))
        assert 0.1 <= choice["headroom_ratio"] < 1
    assert {"rung", "finding", "fits", "bytes", "saves_bytes", "warning"} == set(document["ladder"][0])
    assert "--tensor-parallel-size 8 --max-model-len 131072" in document["choices"][0]["engine_flags"]


@pytest.mark.parametrize("columns", [80, 120])
def test_text_fits_the_terminal(columns: int) -> None:
    """All but the flags, which are one line each so that they can be copied."""
    result = _run(_config("llama-3.1-70b"), *_target(), columns=columns)

    lines = result.stdout.splitlines()
    assert (result.exit_code, result.stderr) == (0, "")
    assert all(len(line) <= columns for line in lines if " MODEL --" not in line)
    questions = (
        "KV needed",
        "does it fit",
        "architecture",
        "smaller KV",
        "more GPUs",
        "fewer requests",
        "less context",
    )
    starts = [next(number for number, line in enumerate(lines) if line.startswith(question)) for question in questions]
    assert starts == sorted(starts)
    assert "1. fp8 KV on the GPUs there are" in lines


def test_a_directory_is_named(tmp_path: Path) -> None:
    """The line to copy has the model's directory, quoted where a shell needs it."""
    folder = tmp_path / "my model"
    folder.mkdir()
    (folder / "config.json").write_text(Path(_config("llama-3.2-1b")).read_text(encoding="utf-8"), encoding="utf-8")

    for model in (folder, folder / "config.json"):
        result = _run(str(model), *_target("h100", "8K", "4"))

        assert f"   vllm serve '{folder}' --max-model-len 8192" in result.stdout


def test_a_model_that_is_not_known(tmp_path: Path) -> None:
    """An answer too: not known, and why."""
    (tmp_path / "config.json").write_text('{"model_type": "tomorrow", "num_hidden_layers": 2}', encoding="utf-8")

    result = _run(str(tmp_path), *_target())

    assert result.exit_code == 0
    assert "unknown: model_type 'tomorrow' is not known here" in " ".join(result.stdout.split())
    assert result.stdout.count("is not known here") == 1
    assert ["architecture", "not", "known"] in [line.split() for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    ("given", "said"),
    [((), "vLLM 0.33 (assumed) on 8 x"), (("--engine-version", "0.11"), "vLLM 0.11 on 8 x")],
    ids=["assumed", "given"],
)
def test_the_version_that_the_figures_are_of_is_named(given: tuple[str, ...], said: str) -> None:
    """Rules and defaults follow it; other engines' choices name theirs."""
    model = _config("llama-3.1-8b")
    text = _run(model, *_target(), *given, columns=140).stdout
    document = _json(model, *_target(), *given)

    assert said in text
    assert " in SGLang 0.5.23" in text
    assert document["engine_version"] == said.split()[1]
    assert {choice["engine_version"] for choice in document["choices"]} == {said.split()[1], "0.5.23", "b11549"}


@pytest.mark.parametrize(("concurrency", "said"), [("1", ": 1 request of 8,192"), ("2", ": 2 requests of 8,192")])
def test_one_request_is_singular(concurrency: str, said: str) -> None:
    """As a person would say it."""
    assert said in " ".join(
        _run(_config("llama-3.2-1b"), *_target("h100", "8K", concurrency), columns=140).stdout.split()
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (_target(gpu="h1000x8"), "--gpu: unknown GPU 'h1000'; close names: "),
        (_target(gpu="h100x0"), "--gpu: expected 1 to 1024 GPUs, got 'h100x0'"),
        (_target(context="long"), "--context: expected an integer from 1 to 2147483648, got 'long'"),
        (_target(concurrency="0"), "--concurrency: expected an integer from 1 to 1048576, got '0'"),
        ((*_target(), "--engine", "none"), "--engine: expected one of vllm, sglang, llama_cpp, got 'none'"),
        ((*_target(), "--block-size", "7"), "argument '--block-size': vLLM takes multiples of 16, got 7"),
        ((*_target(), "--cuda-bytes", "99999999999"), "--cuda-bytes: expected at most the device's 85520809984 bytes"),
        ((*_target(), "--mem-fraction-static", "0.5"), "--mem-fraction-static is no flag of vllm; give --gpu-memory-"),
        ((*_target(), "--engine", "llama_cpp", "--enforce-eager"), "--enforce-eager is no flag of llama_cpp; only of"),
        (("--gpu", "h100"), "Missing option '--context'"),
    ],
)
def test_wrong_input_is_one_sentence(arguments: tuple[str, ...], said: str) -> None:
    """Exit code 2, the sentence on stderr, nothing on stdout, no traceback."""
    result = _run(_config("llama-3.1-8b"), *arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["plan", "--gpu"], "`vramscope plan --help`"),
        (["budget", "--tpp"], "`vramscope budget --help`"),
        (["x"], "`vramscope --help`"),
    ],
)
def test_usage_errors_point_to_their_command(
    arguments: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The help of the command that was used wrongly."""
    assert run_program(arguments) == 2
    assert capsys.readouterr().err.endswith(f"; see {hint}\n")


def test_every_engine_without_one_given() -> None:
    """Those that hold the target have a choice each, with their own flags."""
    document = _json(_config("llama-3.1-8b"), *_target("h100", "32K", "8"))

    flags = {choice["engine"]: choice["engine_flags"] for choice in document["choices"]}
    assert set(flags) == {"vllm", "sglang", "llama_cpp"}
    assert "--max-model-len 32768" in flags["vllm"]
    assert "--context-length 32768" in flags["sglang"]
    assert "--ctx-size 262144 --parallel 8" in flags["llama_cpp"]


def test_one_engine_alone() -> None:
    """Its ladder, and nothing of others; llama.cpp has something like sinks and a window."""
    document = _json(_config("llama-3.1-8b"), *_target("h100", "32K", "64"), "--engine", "llama_cpp")

    assert {choice["engine"] for choice in document["choices"]} == {"llama_cpp"}
    assert any("--context-shift --keep 4" in rung["finding"] for rung in document["ladder"])
    assert [rung["finding"].split(":")[0] for rung in document["ladder"] if rung["rung"] == "kv_format"] == [
        "q8_0",
        "K q8_0, V q4_0",
        "q4_0",
    ]


def test_a_gguf_file_is_llama_cpps(tmp_path: Path) -> None:
    """Without an engine given; the file is what llama-server is told."""
    path = tmp_path / "tiny.gguf"
    llama().write(path)

    result = _run(str(path), *_target("l4", "4K", "2"))

    assert result.exit_code == 0
    assert result.stdout.splitlines()[1].startswith("llama.cpp b11549 (assumed) on 1 x NVIDIA L4")
    assert f"   llama-server -m {path} --gpu-layers all --ctx-size 8192 --parallel 2" in result.stdout.splitlines()
