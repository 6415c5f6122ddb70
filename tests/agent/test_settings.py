"""Settings: what is accepted, and one sentence for every mistake."""

import itertools
import os
from pathlib import Path

import pytest

from agent.errors import InputError
from agent.memory.arguments import Arguments
from agent.memory.units import shown
from agent.settings import (
    DEFAULT_LISTEN,
    Intervals,
    RecorderSettings,
    ServerSettings,
    Settings,
    ThresholdSettings,
    as_yaml,
    check_keys,
    check_server,
    load_settings,
    parse_listen,
    parse_settings,
    read_api_key,
    state_directory,
)
from collectors.registry import ENGINES

PROMISED = Path(__file__).parents[1] / "fixtures" / "settings" / "every_key.yml"


def test_an_empty_file_is_the_default() -> None:
    """Everything is optional."""
    assert parse_settings(b"", where="s.yml") == Settings(listen=DEFAULT_LISTEN, intervals=Intervals(), servers=())


def test_a_full_file() -> None:
    """Every key that exists."""
    text = b"""
    listen: "127.0.0.1:9000"
    intervals: {memory: 0.5, processes: 10, endpoints: 2}
    servers:
      - url: http://127.0.0.1:8000
        engine: vllm
        name: chat
        model: /models/llama
        arguments: {tensor-parallel-size: 8}
        devices: [GPU-1, GPU-2]
        api_key_file: /run/key
    """

    settings = parse_settings(text, where="s.yml")

    assert settings.intervals == Intervals(memory=0.5, processes=10, endpoints=2)
    assert settings.servers[0].label == "chat"
    assert settings.servers[0].devices == ("GPU-1", "GPU-2")


def test_the_file_that_operators_were_promised_loads() -> None:
    """Key by key: each is known."""
    settings = load_settings(PROMISED)

    assert settings.servers[0].devices == ("GPU-uuid", "...")
    assert settings.recorder == RecorderSettings()
    assert settings.thresholds == ThresholdSettings(headroom_ratio=0.10)


@pytest.mark.parametrize(
    ("server", "label"),
    [
        (ServerSettings(url="http://h:8000", engine="vllm"), "vllm:8000"),
        (ServerSettings(url="http://h:8000"), "server:8000"),
        (ServerSettings(url="http://h"), "server:80"),
        (ServerSettings(url="https://h", model="/models/llama-3.1-8b/"), "llama-3.1-8b:443"),
        (ServerSettings(url="http://h:1", model="/models/qwen/config.json"), "qwen:1"),
        (ServerSettings(url="http://h:1", model="/m/qwen/model.safetensors.index.json"), "qwen:1"),
        (ServerSettings(url="http://h:1", model="/configs/llama-3.1-8b.json"), "llama-3.1-8b:1"),
        (ServerSettings(url="http://h:1", name="chat", model="/m/x"), "chat"),
    ],
)
def test_a_server_is_named_after_model_and_port(server: ServerSettings, label: str) -> None:
    """A name that was not given is made of what was."""
    assert server.label == label


MISTAKES = {
    "listn: x": "s.yml: unknown key 'listn'; did you mean listen?",
    "colour: blue": (
        "s.yml: unknown key 'colour'; expected one of listen, intervals, discovery, servers, web_config_file, "
        "state_directory, probe_directory, recorder, thresholds"
    ),
    "listen: 5": ('s.yml: listen: expected text, got 5; write HOST:PORT, such as "0.0.0.0:10175"'),
    "listen: nowhere": "s.yml: listen: expected HOST:PORT with a port of 0 to 65535, got 'nowhere'",
    "listen: a:99999": "s.yml: listen: expected HOST:PORT with a port of 0 to 65535, got 'a:99999'",
    "listen: x:1\nlisten: y:2": "s.yml: not valid YAML: line 2, column 1: key 'listen' stands twice; keep one",
    "intervals: {memory: 0}": "s.yml: intervals.memory: expected a number >= 0.1, got 0",
    "intervals: {memory: fast}": "s.yml: intervals.memory: expected a number, got 'fast'",
    "intervals: {memroy: 1}": "s.yml: intervals: unknown key 'memroy'; did you mean memory?",
    "recorder: {minutes: -1}": "s.yml: recorder.minutes: expected a number >= 0.0, got -1",
    "recorder: {max_bytes: 5}": "s.yml: recorder.max_bytes: expected a whole number >= 1048576, got 5",
    "recorder: {minuts: 5}": "s.yml: recorder: unknown key 'minuts'; did you mean minutes?",
    "thresholds: {headroom_ratio: 0}": "s.yml: thresholds.headroom_ratio: expected a number > 0.0, got 0",
    "thresholds: {headroom_ratio: 1}": "s.yml: thresholds.headroom_ratio: expected a number < 1.0, got 1",
    "thresholds: {headroom_ratio: .nan}": (
        "s.yml: thresholds.headroom_ratio: expected a number > 0.0, got what is no number"
    ),
    "thresholds: {headroom_ratio: 10%}": "s.yml: thresholds.headroom_ratio: expected a number, got '10%'",
    "thresholds: {headroom: 0.1}": "s.yml: thresholds: unknown key 'headroom'; did you mean headroom_ratio?",
    "recorder: off": "s.yml: recorder: expected a mapping, got False",
    "servers: {}": "s.yml: servers: expected a list, got an object; write one - url: ... for each",
    "servers: [{}]": "s.yml: servers[0]: key 'url' is missing; add it",
    "servers: [{url: ftp://x}]": "s.yml: servers[0].url: 'ftp://x' is not the URL of a server; expected the form http://HOST:PORT",
    "servers: [{url: 'http://x/metrics'}]": (
        "s.yml: servers[0].url: expected a base URL such as http://127.0.0.1:8000, got 'http://x/metrics'"
    ),
    "servers: [{url: 'http://é☃.x'}]": (
        "s.yml: servers[0].url: the server's URL can't be parsed; expected the form http://HOST:PORT"
    ),
    "servers: [{url: 'u:p@x:80'}]": (
        "s.yml: servers[0].url: the server's URL carries a user name or password; put a key into api_key_file instead"
    ),
    "servers: [{url: 'http://x?key=secret'}]": (
        "s.yml: servers[0].url: the server's URL has a query or fragment; expected the form http://HOST:PORT"
    ),
    "servers: [{url: 'http://u:p@x'}]": (
        "s.yml: servers[0].url: the server's URL carries a user name or password; put a key into api_key_file instead"
    ),
    "servers: [{url: 'http://x:99999'}]": (
        "s.yml: servers[0].url: 'http://x:99999' is not the URL of a server; expected the form http://HOST:PORT"
    ),
    "servers: [{url: http://x, engine: vlm}]": (
        f"s.yml: servers[0].engine: expected one of {', '.join(ENGINES)}, got 'vlm'"
    ),
    "servers: [{url: http://x:1, name: a}, {url: http://x:1/, name: b}]": (
        "s.yml: servers[1]: url 'http://x:1/' is that of servers[0] too; keep one of them"
    ),
    "servers: [{url: 'http://127.0.0.1:8000', name: a}, {url: 'http://localhost:8000', name: b}]": (
        "s.yml: servers[1]: url 'http://localhost:8000' is that of servers[0] too; keep one of them"
    ),
    "servers: [{url: 'http://[::1]', name: a}, {url: 'http://LOCALHOST:80/', name: b}]": (
        "s.yml: servers[1]: url 'http://LOCALHOST:80/' is that of servers[0] too; keep one of them"
    ),
    "servers: [{url: http://x:1, name: a}, {url: http://x:2, name: a}]": (
        "s.yml: servers[1]: name 'a' is that of servers[0] too; keep one of them"
    ),
    "servers: [{url: http://x, modle: y}]": "s.yml: servers[0]: unknown key 'modle'; did you mean model?",
    "- a": "s.yml: expected a mapping, got a list of 1 entries",
    f"listen: {'x' * 900_000}": f"s.yml: listen: expected HOST:PORT with a port of 0 to 65535, got '{'x' * 60}'...",
    f"{'x' * 900}: 1": (
        f"s.yml: unknown key '{'x' * 60}'...; expected one of listen, intervals, discovery, servers, web_config_file, "
        "state_directory, probe_directory, recorder, thresholds"
    ),
    f"listen: !{'x' * 900}": (
        f"s.yml: not valid YAML: line 1, column 9: could not determine a constructor for the tag '!{'x' * 152}"
    ),
    'listen: "\\ud800"': "s.yml: not valid YAML: line 1, column 9: half of a surrogate pair, which is no character",
    "listen: 'a..b:80'": "s.yml: listen: expected an address or a name of this host, got 'a..b'",
    "1: 2": "s.yml: not valid YAML: line 1, column 1: a key that is not text; put it in quotes",
    "on: 2": "s.yml: not valid YAML: line 1, column 1: a key that is not text; put it in quotes",
    f"listen: !!binary {'eHh4' * 900}": (
        f's.yml: listen: expected text, got b\'{"x" * 798}...; write HOST:PORT, such as "0.0.0.0:10175"'
    ),
    "? [a]\n: 2": "s.yml: not valid YAML: line 1, column 3: a key that is not text; put it in quotes",
    "intervals: {<<: {memory: 1, memory: 2}}": (
        "s.yml: not valid YAML: line 1, column 29: key 'memory' stands twice; keep one"
    ),
    "&a {listen: *a}": "s.yml: not valid YAML: line 1, column 1: an alias stands inside what it names",
    "servers: [{url: http://x, log: ''}]": "s.yml: servers[0].log: expected the path of a file, got ''",
    "web_config_file: ''": "s.yml: web_config_file: expected the path of a file, got ''",
    'web_config_file: "/x\\0y"': "s.yml: web_config_file: expected the path of a file, got '/x\\x00y'",
    "servers: [{url: http://x, model: ''}]": "s.yml: servers[0].model: expected the path of a file, got ''",
    'servers: [{url: http://x, api_key_file: "\\0"}]': (
        "s.yml: servers[0].api_key_file: expected the path of a file, got '\\x00'"
    ),
    'servers: [{url: http://x, name: "a\\nb"}]': (
        "s.yml: servers[0].name: expected at most 200 characters that can be printed, got 'a\\nb'"
    ),
    "servers: [{url: 'http://a..b'}]": (
        "s.yml: servers[0].url: the server's URL names no host that could be looked up; "
        "expected the form http://HOST:PORT"
    ),
    "a: [": "s.yml: not valid YAML: line 1, column 5: expected the node content, but found '<stream end>'",
    "a: !!python/object/apply:os.system [ls]": (
        "s.yml: not valid YAML: line 1, column 4: could not determine a constructor for the tag "
        "'tag:yaml.org,2002:python/object/apply:os.system'"
    ),
}


@pytest.mark.parametrize("text", MISTAKES, ids=[text.replace("\n", " / ")[:80] for text in MISTAKES])
def test_every_mistake_is_one_sentence(text: str) -> None:
    """File, key, expected and got; what to do where it is not plain."""
    with pytest.raises(InputError) as caught:
        parse_settings(text.encode(), where="s.yml")

    assert caught.value.message == MISTAKES[text]
    assert caught.value.exit_code == 2


def test_wrong_engine_argument_is_one_sentence() -> None:
    """The engine's own flags are checked where they stand."""
    with pytest.raises(InputError) as caught:
        parse_settings(b"servers: [{url: http://x, arguments: {tensor-paralel-size: 8}}]", where="s.yml")

    assert caught.value.message.startswith("s.yml: servers[0].arguments: ")
    assert "tensor-parallel-size" in caught.value.message


def test_flags_of_an_engine_that_is_found_are_those_of_some_engine() -> None:
    """Which it is is seen later; what no engine has is refused at once."""
    text = "servers: [{url: http://x, arguments: {%s}}]"

    (server,) = parse_settings((text % "mem-fraction-static: 0.8").encode(), where="s.yml").servers

    assert server.engine is None
    with pytest.raises(InputError, match="unknown argument 'mem-faction-static'"):
        parse_settings((text % "mem-faction-static: 0.8").encode(), where="s.yml")


def test_flags_of_every_engine_are_checked() -> None:
    """Also those of an engine without a planner: ranks count, flags for its reader are let be, others are refused."""
    text = "servers: [{url: http://x, engine: tgi, arguments: {num-shard: 4, max-batch-total-tokens: 9000%s}}]"
    (server,) = parse_settings((text % "").encode(), where="s.yml").servers

    assert check_server(server, "x") == Arguments(engine="tgi", tp=4)
    with pytest.raises(InputError) as caught:
        parse_settings((text % ", num-shards: 4").encode(), where="s.yml")
    assert (
        caught.value.message == "s.yml: servers[0].arguments: unknown argument 'num-shards'; did you mean 'num-shard'?"
    )


def test_printed_settings_can_be_given_again() -> None:
    """Defaults included, and a key is named by its file only."""
    text = b"servers: [{url: 'http://127.0.0.1:8000', api_key_file: /run/key, arguments: {tensor-parallel-size: 8}}]"
    settings = parse_settings(text, where="s.yml")

    printed = as_yaml(settings)

    assert parse_settings(printed.encode(), where="again") == settings
    assert "memory: 1.0" in printed
    assert "/run/key" in printed


def test_binary_settings_are_one_sentence() -> None:
    """A wrong file given as settings."""
    with pytest.raises(InputError, match=r"^s\.yml: not valid YAML: "):
        parse_settings(bytes(range(256)), where="s.yml")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """Path, reason and what to check."""
    path = tmp_path / "none.yml"

    with pytest.raises(InputError) as caught:
        load_settings(path)

    assert caught.value.message == f"{path}: can't read the settings file: No such file or directory; check --config"


def test_a_file_that_is_far_too_large(tmp_path: Path) -> None:
    """Somebody gave a checkpoint as settings: it is not read into memory."""
    path = tmp_path / "large.yml"
    path.write_bytes(b"#" * (2 << 20))

    with pytest.raises(InputError, match="more than 1048576 bytes; check --config"):
        load_settings(path)


@pytest.mark.parametrize("name", ["pipe", "device"])
def test_settings_and_keys_are_regular_files(tmp_path: Path, name: str) -> None:
    """What blocks or never ends is one sentence, at once."""
    path = tmp_path / name
    if name == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")

    with pytest.raises(InputError, match="not a regular file; check --config"):
        load_settings(path)
    with pytest.raises(InputError, match="not a regular file; check path and permission"):
        read_api_key(ServerSettings(url="http://x:1", api_key_file=str(path)))


def test_aliases_do_not_multiply_what_was_written() -> None:
    """A few hundred bytes would stand for billions of values."""
    lines = ["a: &a [x,x,x,x,x,x,x,x,x]"]
    lines += [f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]" for old, new in itertools.pairwise("abcdefghij")]

    with pytest.raises(InputError, match="aliases stand for more than 4194304 characters"):
        parse_settings("\n".join([*lines, "listen: *j"]).encode(), where="s.yml")


def test_a_merge_takes_what_it_does_not_have_itself() -> None:
    """The key of its own counts, wherever the anchor stands; that is no key twice."""
    text = b"""
    intervals: &slow {memory: 10, processes: 20}
    servers:
      - {url: http://x, arguments: &a {max-model-len: 5}}
      - {url: http://y:1, arguments: {<<: *a, max-model-len: 6}}
    """

    settings = parse_settings(text, where="s.yml")

    assert [server.arguments["max-model-len"] for server in settings.servers] == [5, 6]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        (":10175", ("0.0.0.0", 10175)),
        ("[::1]:0", ("::1", 0)),
        ("node-7:9", ("node-7", 9)),
    ],
)
def test_listen_forms(text: str, expected: tuple[str, int]) -> None:
    """Host and port, IPv6 in brackets, or the port alone."""
    assert parse_listen(text, where="listen") == expected


@pytest.mark.parametrize("text", ["::1:80", "host", "host:", "host:-1", "host:٣", "host:1x", "host:" + "9" * 5000])
def test_listen_mistakes(text: str) -> None:
    """Anything else is one sentence with what was got."""
    with pytest.raises(InputError) as caught:
        parse_listen(text, where="--listen")

    assert caught.value.message == f"--listen: expected HOST:PORT with a port of 0 to 65535, got {shown(text)}"


def test_api_key_comes_from_its_file(tmp_path: Path) -> None:
    """Surrounding blanks are not part of it."""
    path = tmp_path / "key"
    path.write_text("secret-1\n")

    assert read_api_key(ServerSettings(url="http://x:1", api_key_file=str(path))) == "secret-1"


def test_a_key_that_can_not_be_read_is_named_by_file_and_key(tmp_path: Path) -> None:
    """So that the line in the settings is found."""
    missing = tmp_path / "key"
    text = f"servers: [{{url: http://x:1}}, {{url: http://x:2, api_key_file: '{missing}'}}]"
    settings = parse_settings(text.encode(), where="s.yml")

    with pytest.raises(InputError) as caught:
        check_keys(settings, where="s.yml")

    assert caught.value.message == (
        f"s.yml: servers[1].api_key_file: {missing}: can't read it: No such file or directory; "
        "check path and permission"
    )
    missing.write_text("secret")
    assert check_keys(settings, where="s.yml") is settings


@pytest.mark.parametrize("content", [b"", b"two\nlines-of-canary", b"\xff\xfe-canary"])
def test_unusable_key_is_never_shown(tmp_path: Path, content: bytes) -> None:
    """The sentence names the file, not what is in it."""
    path = tmp_path / "key"
    path.write_bytes(content)

    with pytest.raises(InputError) as caught:
        read_api_key(ServerSettings(url="http://x:1", api_key_file=str(path)))

    assert "canary" not in caught.value.message
    assert str(path) in caught.value.message


@pytest.mark.parametrize(
    ("given", "environment", "is_root", "expected"),
    [
        ("/srv/state", {"STATE_DIRECTORY": "/var/lib/x"}, True, "/srv/state"),
        (None, {"STATE_DIRECTORY": "/var/lib/x:/var/lib/y"}, False, "/var/lib/x"),
        (None, {"XDG_STATE_HOME": "/home/a/s"}, True, "/var/lib/vramscope"),
        (None, {"XDG_STATE_HOME": "/home/a/s", "STATE_DIRECTORY": ""}, False, "/home/a/s/vramscope"),
        (None, {"XDG_STATE_HOME": "not/absolute", "HOME": "/home/a"}, False, "/home/a/.local/state/vramscope"),
        (None, {"HOME": "/root"}, True, "/var/lib/vramscope"),
        (None, {}, False, "/var/lib/vramscope"),  # a user of a container, without a home
    ],
)
def test_where_state_is_kept(given: str | None, environment: dict[str, str], is_root: bool, expected: str) -> None:
    """As settings say, then systemd, then the place of root or of this user."""
    found = state_directory(Settings(state_directory=given), environment, is_root=is_root)

    assert found == Path(expected)
