"""Settings files: whatever stands in one, it is settings or one sentence."""

import pytest
import yaml
from hypothesis import strategies as st

from agent.errors import InputError
from agent.settings import parse_settings
from tests.fuzz.mutations import damaged_bytes, damaged_json, json_values
from tests.fuzz.trying import outcome, tried

RIGHT = {
    "listen": "127.0.0.1:10175",
    "intervals": {"memory": 0.5, "processes": 5, "endpoints": 1},
    "servers": [
        {
            "url": "http://127.0.0.1:8000",
            "name": "chat",
            "engine": "vllm",
            "model": "/models/llama",
            "arguments": {"tensor-parallel-size": 2, "gpu-memory-utilization": 0.9, "enforce-eager": True},
            "devices": ["GPU-11111111-2222-3333-4444-555555555555"],
            "api_key_file": "/run/key",
        },
        {"url": "https://[::1]:8443/llm"},
    ],
}
TEXT = yaml.safe_dump(RIGHT).encode()
ODD = (
    b"a: &a [1]\nservers: [*a, *a]\n",
    b"servers: &s [*s]\n",
    b"listen: !!binary aGVsbG8=\n",
    b"listen: !!timestamp 2001-01-01\nintervals: {<<: {memory: 1}}\n",
    b"--- 1\n--- 2\n",
    b"%YAML 9.9\n---\nlisten: x\n",
)


def check(content: bytes) -> None:
    """No traceback, no second line, and the file is named."""
    settings, sentence = outcome(lambda: parse_settings(content, where="vramscope.yml"), InputError)

    assert settings is not None or sentence.startswith("vramscope.yml: ")
    assert "\n" not in sentence


@tried(
    damaged_json([RIGHT]).map(lambda document: yaml.dump(document, allow_unicode=True).encode("utf-8", "replace"))
    | json_values.map(lambda document: yaml.safe_dump(document).encode("utf-8", "replace"))
    | damaged_bytes([TEXT, *ODD])
    | st.binary(max_size=200),
    briefly=100,
)
def test_settings_are_right_or_one_sentence(content: bytes) -> None:
    """Whatever stands in the file."""
    check(content)


@pytest.mark.parametrize(
    "content", [b"? '\n\n'", b"!!timestamp", b"listen: 2001-99-99", b"!!int", b"!!bool x", b"!!float"]
)
def test_settings_that_were_once_not(content: bytes) -> None:
    """What such a search has found."""
    check(content)
