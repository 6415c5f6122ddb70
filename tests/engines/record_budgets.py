"""Record what real engines say of their memory: ``python -m tests.engines.record_budgets [ENGINE|CASE ...]``.

One folder for each engine and version: ``recorded.json`` with every case and what was said, the models' configs, and
the lines it was found in. Seconds for llama.cpp, about a minute a case for the others.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.engines import install_llama_cpp, install_sglang, install_vllm
from tests.engines.budget_cases import CASES, Case, Said, hear

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


def record(case: Case) -> None:
    """Start the engine of a case, and put what it said in the place of what it said before."""
    folder = folder_of(case.engine, case.version)
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{case.engine} {case.version} {case.name} ...", flush=True)
    with tempfile.TemporaryDirectory() as workplace:
        heard = hear(case, command_of(case.engine, case.version), Path(workplace))
    for suffix, text in heard.texts.items():
        (folder / f"{case.name}.{suffix}").write_text(text.replace(f"{workplace}/", ""), "utf-8")
    _write(folder / f"{case.model}.config.json", case.config())
    keep(case, heard.said)


def keep(case: Case, said: Said) -> None:
    """The list of a folder, with this case as it is now and without those that are no more."""
    path = folder_of(case.engine, case.version) / "recorded.json"
    before = json.loads(path.read_text(encoding="utf-8"))["cases"] if path.exists() else []
    known = {one["name"]: one for one in before}
    known[case.name] = {"name": case.name, "model": case.model, "arguments": case.arguments, "said": said}
    names = [one.name for one in CASES if (one.engine, one.version) == (case.engine, case.version)]
    cases = [known[name] for name in names if name in known]
    _write(path, {"engine": case.engine, "version": case.version, "cases": cases})


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def main(wanted: list[str]) -> int:
    for case in CASES:
        if not wanted or case.engine in wanted or case.name in wanted:
            record(case)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
