"""The installers of all engines: where they look, and that a complete environment is used as it is."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engines import install_llama_cpp, install_sglang
from tests.engines.environments import CACHE_VARIABLE, Echo

INSTALLERS: dict[str, tuple[str, str, Callable[[Echo], Path]]] = {
    "llama.cpp": ("llama_cpp-b7710", "0.2.9", lambda echo: install_llama_cpp.install("b7710", echo=echo)),
    "sglang": ("sglang-0.5.23", "0.5.23", lambda echo: install_sglang.install(echo=echo)),
}


@pytest.mark.parametrize("engine", INSTALLERS)
def test_complete_environment_is_used_as_it_is(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment in the given cache that an earlier run completed: no step is run, nothing is said."""
    folder, version, install = INSTALLERS[engine]
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "vramscope-installed").write_text(f"{version}\n")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    said: list[str] = []

    python = install(said.append)

    assert python == tmp_path / folder / "bin" / "python"
    assert said == []
