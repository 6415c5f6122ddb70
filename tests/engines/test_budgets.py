"""The budget against real engines, started now: llama.cpp's builds, SGLang with kernels replaced, vLLM with windows.

vLLM's other shapes have the agent beside them (``test_vllm_budget``).
"""

from pathlib import Path

import pytest

from docs.accuracy import Start, figures
from tests.engines.budget_cases import CASES, Case, hear

pytestmark = pytest.mark.engines


@pytest.mark.parametrize("case", [c for c in CASES if c.engine == "llama_cpp"], ids=lambda c: f"{c.version}-{c.name}")
def test_llama_cpp_allocates_what_the_budget_says(
    case: Case, llama_cpp_pythons: dict[str, Path], tmp_path: Path
) -> None:
    """Context, and sizes of full and window caches and states, as they are printed."""
    _compare(case, llama_cpp_pythons[case.version], tmp_path)


@pytest.mark.parametrize("case", [c for c in CASES if c.engine == "sglang"], ids=lambda c: c.name)
def test_sglang_allocates_what_the_budget_says(case: Case, sglang_python: Path, tmp_path: Path) -> None:
    """Tokens and bytes of the pool."""
    _compare(case, sglang_python, tmp_path)


@pytest.mark.parametrize("case", [c for c in CASES if (c.engine, c.model) == ("vllm", "gemma3")], ids=lambda c: c.name)
def test_vllm_plans_windows_as_the_budget_does(case: Case, vllm_command: Path, tmp_path: Path) -> None:
    """Blocks, tokens of the log and concurrency, where layers with a window share blocks with full ones."""
    _compare(case, vllm_command, tmp_path)


def _compare(case: Case, command: Path, folder: Path) -> None:
    heard = hear(case, command, folder)

    start = Start(
        engine=case.engine,
        version=case.version,
        name=case.name,
        model=case.model,
        arguments=case.arguments,
        said=heard.said,
        config=case.config(),
    )
    found = list(figures(start))
    assert len(found) >= 2
    assert {figure.name: figure.budget for figure in found} == {figure.name: figure.said for figure in found}
