"""Record what real engines say of their memory, as fixtures: ``python -m tests.engines.record_budgets [ENGINE ...]``.

One folder for each engine and version: ``recorded.json`` with every case and what was said, the models' configs, and
the lines it was found in. Seconds for llama.cpp, about a minute a case for the others.
"""

import itertools
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.engines import install_llama_cpp, install_sglang, install_vllm
from tests.engines.budget_cases import CASES, Case, hear

FIXTURES = Path(__file__).parents[1] / "fixtures"


def folder_of(engine: str, version: str) -> Path:
    return FIXTURES / engine / f"budget-{version}"


def command_of(engine: str, version: str) -> Path:
    """What starts an engine, installed if it is not."""
    if engine == "llama_cpp":
        return install_llama_cpp.install(version)
    if engine == "sglang":
        return install_sglang.install()
    return install_vllm.install(install_vllm.environment_directory())


def record(cases: list[Case]) -> None:
    """All cases of one engine and version."""
    engine, version = cases[0].engine, cases[0].version
    folder, command = folder_of(engine, version), command_of(engine, version)
    folder.mkdir(parents=True, exist_ok=True)
    found: list[dict[str, Any]] = []
    for case in cases:
        print(f"{engine} {version} {case.name} ...", flush=True)
        with tempfile.TemporaryDirectory() as workplace:
            heard = hear(case, command, Path(workplace))
        for suffix, text in heard.texts.items():
            (folder / f"{case.name}.{suffix}").write_text(text.replace(f"{workplace}/", ""), "utf-8")
        _write(folder / f"{case.model}.config.json", case.config())
        found.append({"name": case.name, "model": case.model, "arguments": case.arguments, "said": heard.said})
    _write(folder / "recorded.json", {"engine": engine, "version": version, "cases": found})


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def main(engines: list[str]) -> int:
    wanted = [case for case in CASES if not engines or case.engine in engines]
    for _, cases in itertools.groupby(wanted, key=lambda case: (case.engine, case.version)):
        record(list(cases))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
