"""Which command lines start a vLLM server, and what they say."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from collectors.discovery.command import ServerCommand, Value
from collectors.vllm.command import read_command
from collectors.vllm.flags import ALIASES, KINDS, OTHER_SWITCHES
from collectors.vllm.parsing import words_of

SERVE = ("vllm", "serve", "m")


def no_file(name: str) -> bytes:
    raise FileNotFoundError(2, "No such file or directory", name)


def read(*argv: str) -> ServerCommand:
    command = read_command(argv, no_file)
    assert command is not None
    return command


def arguments(*words: str) -> dict[str, Value]:
    return read(*SERVE, *words).arguments


@pytest.mark.parametrize(
    ("argv", "programs"),
    [
        (["vllm", "serve", "m"], ("vllm",)),
        (["/opt/venv/bin/vllm", "serve", "m"], ("/opt/venv/bin/vllm",)),
        (["/venv/bin/python3.11", "/venv/bin/vllm", "serve", "m"], ("/venv/bin/python3.11", "/venv/bin/vllm")),
        (["python", "-u", "-X", "dev", "/venv/bin/vllm", "serve", "m"], ("python", "/venv/bin/vllm")),
        (["python3", "-m", "vllm.entrypoints.cli.main", "serve", "m"], ("python3",)),
        (["python3", "-Im", "vllm.entrypoints.cli.main", "serve", "--model", "m"], ("python3",)),
        (["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"], ("python3",)),
        (["python3", "-m", "vllm.entrypoints.openai.api_server", "--model=m", "stray"], ("python3",)),
        (["python", "/src/vllm/entrypoints/openai/api_server.py", "--model", "m"], ("python",)),
    ],
)
def test_command_lines_that_start_a_server(argv: list[str], programs: tuple[str, ...]) -> None:
    """By console script or module, with or without an interpreter in front."""
    command = read(*argv)

    assert command == ServerCommand(model="m", served_name="m", port=8000, programs=programs)


@pytest.mark.parametrize(
    "argv",
    [
        [],
        [""],
        ["vllm"],
        ["vllm", "bench", "serve"],
        ["vllm", "chat", "--url", "http://127.0.0.1:8000"],
        ["vllm", "run-batch", "-i", "x"],
        ["bash", "-c", "vllm serve m"],
        ["sh", "/usr/bin/vllm", "serve", "m"],
        ["docker", "run", "vllm/vllm-openai", "--model", "m"],
        ["nice", "-n", "10", "vllm", "serve", "m"],
        ["vim", "vllm", "serve"],
        ["python", "-c", "import vllm", "serve", "m"],
        ["python", "-m", "pytest", "vllm", "serve"],
        ["python", "train.py", "vllm", "serve"],
        ["python", "vllm.py", "serve"],
        ["python", "-m"],
        ["python", "-W"],
        ["tail", "-f", "vllm.entrypoints.openai.api_server"],
        ["VLLM::EngineCore"],
        ["VLLM::Worker_TP0"],
        ["VLLM::APIServer", "serve"],
    ],
)
def test_command_lines_that_start_none(argv: list[str]) -> None:
    """Other commands, other programs that speak of one, and ranks."""
    assert read_command(argv, no_file) is None


@pytest.mark.parametrize(
    ("title", "rank"),
    [("VLLM::APIServer", None), ("VLLM::APIServer_0", None), ("mine::APIServer_12 ", None), ("VLLM::APIServer_DP3", 3)],
)
def test_titles(title: str, rank: int | None) -> None:
    """A process that has overwritten its command line tells its role, and its rank below a supervisor."""
    assert read(title) == ServerCommand(named_by_title=True, rank=rank)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--tensor-parallel-size", "8"], {"tensor-parallel-size": 8}),
        (["--tensor_parallel_size=8"], {"tensor-parallel-size": 8}),
        (["-tp", "8", "-pp=2", "-dp", "4", "-q", "fp8"],
         {"tensor-parallel-size": 8, "pipeline-parallel-size": 2, "data-parallel-size": 4, "quantization": "fp8"}),
        (["-tp", "2", "--tensor-parallel-size", "4"], {"tensor-parallel-size": 4}),
        (["--gpu-memory-utilization", ".85"], {"gpu-memory-utilization": 0.85}),
        (["--gpu-memory-utilization", "nan"], {}),
        (["--max-model-len", "32k"], {"max-model-len": 32_000}),
        (["--max-model-len", "32K"], {"max-model-len": 32_768}),
        (["--max-model-len", "25.6k"], {"max-model-len": 25_600}),
        (["--max-model-len", "25.6K"], {}),
        (["--max-model-len", "-1"], {"max-model-len": "auto"}),
        (["--max-model-len", "auto"], {"max-model-len": "auto"}),
        (["--max-model-len", "x"], {}),
        (["--max-model-len"], {}),
        (["--max-model-len", "9" * 5000], {}),
        (["--kv-cache-memory-bytes", "24G"], {"kv-cache-memory-bytes": 24 * 2**30}),
        (["--kv-cache-memory", "7"], {"kv-cache-memory-bytes": 7}),
        (["--enforce-eager"], {"enforce-eager": True}),
        (["--no-enable-prefix-caching"], {"enable-prefix-caching": False}),
        (["--enable-chunked-prefill=False", "--enforce-eager", "true"],
         {"enable-chunked-prefill": False, "enforce-eager": True}),
        (["-ep", "--no-enforce_eager"], {"enable-expert-parallel": True, "enforce-eager": False}),
        (["-O3"], {"optimization-level": 3}),
        (["-O", "2"], {"optimization-level": 2}),
        (["-O=1"], {"optimization-level": 1}),
        (["-O.level=3"], {"compilation-config": '{"level": 3}'}),
        (["--compilation-config", '{"cudagraph_mode":"NONE"}'], {"compilation-config": '{"cudagraph_mode": "NONE"}'}),
        (["-cc.cudagraph_mode", "NONE", "--compilation-config.pass_config.fuse=true"],
         {"compilation-config": '{"cudagraph_mode": "NONE", "pass_config": {"fuse": true}}'}),
        (["-cc.sizes+", "1,2", "-cc.sizes+=4", "-cc.limit", "1k"],
         {"compilation-config": '{"sizes": ["1", "2", "4"], "limit": 1000}'}),
        (["--speculative-config", "not json"], {}),
        (["--speculative-config", "[1]"], {}),
        (["--speculative-config", '{"a": NaN}'], {}),
        (["--speculative-config", "[" * 3000], {}),
        (["--cudagraph-capture-sizes", "1", "2", "4", "-tp", "2"],
         {"cudagraph-capture-sizes": "1,2,4", "tensor-parallel-size": 2}),
        (["--cudagraph-capture-sizes"], {}),
        (["--cudagraph-capture-sizes", "1", "x"], {}),
        (["--seed", "1", "--chat-template", "x", "--unheard-of=1"], {}),
        (["--", "-", "=", "--=", "--.=1", "-tp"], {}),
    ],
)  # fmt: skip
def test_flags(words: list[str], expected: dict[str, Value]) -> None:
    """Every way of writing a flag gives its full name and a typed value; what can't be its value is left out."""
    assert arguments(*words) == expected


def test_identity_is_apart_from_arguments() -> None:
    """Model, names and address have fields of their own."""
    flags = (
        "--host 0.0.0.0 --port 9000 --served-model-name chat chat-2 --revision v1 --download-dir /d --ssl-certfile c"
    )

    assert read("vllm", "serve", "org/m", *flags.split()) == ServerCommand(
        model="org/m",
        revision="v1",
        download_directory="/d",
        served_name="chat",
        host="0.0.0.0",
        port=9000,
        tls=True,
        programs=("vllm",),
    )


@pytest.mark.parametrize(
    ("words", "model"),
    [
        ("m --port 1", "m"),
        ("--port 1 m", "m"),
        ("--enforce-eager m", "m"),
        ("--trust-remote-code m", "m"),
        ("--model m --port 1", "m"),
        ("--served-model-name a b", None),
        ("--lora-modules a=b c=d", None),
        ("--unheard-of value more", None),
        ("--port 1", None),
    ],
)
def test_where_the_model_stands(words: str, model: str | None) -> None:
    """A bare word is the model only where no flag can claim it."""
    assert read("vllm", "serve", *words.split()).model == model


@pytest.mark.parametrize(
    "words",
    [
        ["--api-key", "sesame-1", "sesame-2"],
        ["--api_key=sesame"],
        ["--hf-token", "sesame"],
        ["--unheard-of", "x", "sesame"],
        ["--tokenizer", "https://user:sesame@host/x"],
        ["--served-model-name", "https://user:sesame@host/x"],
        ["--hf-overrides", '{"api_key": "sesame"}'],
        ["--hf-overrides.api_key", "sesame"],
        ["--kv-transfer-config", '{"extra": {"secret_key": "sesame"}}'],
        ["--quantization", "hf_sesamesesame"],
    ],
)
def test_secrets_stay_where_they_are(words: list[str]) -> None:
    """No key, no token and nothing that redaction would mask is taken from a command line."""
    assert "sesame" not in repr(read("vllm", "serve", *words))
    assert "sesame" not in repr(read("vllm", "serve", "m", *words))


@pytest.mark.parametrize(
    ("words", "note"),
    [
        (["--headless"], "it runs with --headless: its metrics are those of the server on the first node"),
        (["--uds", "/run/x"], "it listens on a Unix socket (--uds), which is not read: its metrics are not known"),
        (["--grpc"], "it serves gRPC instead of HTTP (--grpc): its metrics are not known"),
    ],
)
def test_servers_without_an_endpoint(words: list[str], note: str) -> None:
    """They are servers all the same: their processes hold memory."""
    command = read(*SERVE, *words)

    assert not command.has_endpoint
    assert command.notes == (note,)


@pytest.mark.parametrize(
    ("words", "rank"),
    [("-dpl 4", 0), ("-dpl 4 -r 2", 8), ("-dpl 4 -dpr 6", 6)],
)
def test_a_supervisor_of_one_server_for_each_rank(words: str, rank: int) -> None:
    """Its first rank is that of the first port."""
    command = read(*SERVE, "-dpm", "-dp", "16", *words.split())

    assert (command.supervises, command.rank, command.port) == (True, rank, 8000)


def with_config(text: str, *words: str) -> ServerCommand:
    command = read_command(["vllm", "serve", *words, "--config", "c.yaml"], {"c.yaml": text.encode()}.__getitem__)
    assert command is not None
    return command


def test_a_settings_file_comes_before_the_command_line() -> None:
    """Flat and nested settings count, and a flag on the command line wins."""
    text = """
        model: org/m
        port: 9000
        tensor-parallel-size: 4
        enforce-eager: true
        enable_prefix_caching: false
        cudagraph-capture-sizes: [1, 2]
        api-key: [sesame, sesame]
        speculative-config: {method: mtp, num_speculative_tokens: 1}
    """
    command = with_config(text, "-tp", "8")

    assert (command.model, command.port) == ("org/m", 9000)
    assert command.arguments == {
        "tensor-parallel-size": 8,
        "enforce-eager": True,
        "enable-prefix-caching": False,
        "cudagraph-capture-sizes": "1,2",
        "speculative-config": json.dumps({"method": "mtp", "num_speculative_tokens": 1}),
    }
    assert "sesame" not in repr(command)
    assert with_config("model: org/m", "x").model == "x"


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("a: [", "it is not YAML as vLLM reads it"),
        ("a: 1\na: 2", "it is not YAML as vLLM reads it"),
        ("\xff\x00", "it is not YAML as vLLM reads it"),
        ("[" * 5000, "it is not YAML as vLLM reads it"),
    ],
)
def test_a_settings_file_that_can_not_be_used(text: str, note: str) -> None:
    """The rest of the command line counts, and a note says so."""
    command = with_config(text, "m", "-tp", "2")

    assert command.arguments == {"tensor-parallel-size": 2}
    assert command.notes == (f"the flags in its --config c.yaml are not known: {note}",)


def test_a_settings_file_that_is_not_there() -> None:
    """The reason is the system's own."""
    assert read(*SERVE, "--config", "c.yaml").notes == (
        "the flags in its --config c.yaml are not known: no such file or directory",
    )


@pytest.mark.parametrize("text", ["", "null", "just text", "[1, 2]", "1: 2", "? [a]\n: 1"])
def test_a_settings_file_without_settings(text: str) -> None:
    """Nothing of it, and nothing breaks."""
    assert with_config(text, "m").arguments == {}


def test_a_settings_file_that_grows_without_bound() -> None:
    """Aliases that double at each level, or hold themselves: its flags are not known, with a note."""
    levels = "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
    for text in (f"a0: &a0 [x, x]\n{levels}hf-overrides: {{deep: *a59}}", "hf-overrides: &h {a: *h}"):
        command = with_config(f"{text}\nblock-size: 16", "m")

        assert command.arguments == {}
        assert any("not YAML" in note for note in command.notes)


def test_the_tables_agree() -> None:
    """Short forms lead to known flags, and no flag is in two tables."""
    assert set(ALIASES.values()) <= set(KINDS)
    assert not set(ALIASES) & set(KINDS)
    assert not OTHER_SWITCHES & set(KINDS)


words = st.one_of(
    st.sampled_from(sorted(KINDS)).map("--{}".format),
    st.sampled_from(sorted(ALIASES)).map("-{}".format),
    st.tuples(st.sampled_from(sorted(KINDS)), st.text(max_size=12)).map("--{0[0]}={0[1]}".format),
    st.tuples(st.sampled_from(sorted(KINDS)), st.text(max_size=6)).map("--{0[0]}.{0[1]}".format),
    st.sampled_from(("-O", "-O3", "-cc.a", "--config", "c.yaml", "--", "true", "1k", "-1", "{}", "[", "x::APIServer")),
    st.text(max_size=12),
)  # fmt: skip
starts = st.sampled_from(
    ((), ("vllm", "serve"), ("python", "-m", "vllm.entrypoints.openai.api_server"), ("python3", "/v/bin/vllm", "serve"))
)


@settings(max_examples=300, deadline=None)
@given(starts, st.lists(words, max_size=10), st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
@example(("vllm", "serve"), ["--api-key", "sesame", "x"], b"")
def test_any_words_and_any_settings_file(start: Sequence[str], rest: list[str], content: bytes) -> None:
    """A command line is somebody else's text: it is read or not, but never breaks anything."""
    command = read_command([*start, *rest], lambda _: content)

    if command is not None:
        assert all(isinstance(value, int | float | str) for value in command.arguments.values())
        assert set(command.arguments) <= set(KINDS)
        json.dumps(command.arguments, allow_nan=False)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.text(max_size=6) | st.integers() | st.none(), values, max_size=5))
def test_any_settings(document: dict[object, object]) -> None:
    """Whatever YAML can hold becomes words."""
    assert all(isinstance(word, str) for word in words_of(document))
