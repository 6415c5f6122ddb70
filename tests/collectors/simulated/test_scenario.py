"""Scenario files: the ones that come along hold together, and every mistake is one sentence."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from collectors.simulated.scenario import load_scenario, parse_scenario, scenario_names
from collectors.simulated.sizing import rank_sizes

SMALL: dict[str, Any] = {
    "devices": [{"uuid": "GPU-a", "name": "Card", "total_mib": 4096, "reserved_mib": 96}],
    "servers": [
        {
            "name": "chat",
            "model": {"name": "m", "total_size": 1 << 30, "kv_bytes_per_token": 65536, "config": {}},
            "arguments": {"max_model_len": 1024, "gpu_memory_utilization": 0.8},
            "overheads": {"activations_mib": 100, "graphs_mib": 20},
        }
    ],
}


def changed(path: str, value: Any) -> str:
    """The small scenario as YAML with one value replaced; the path's parts are keys and positions."""
    document = yaml.safe_load(yaml.safe_dump(SMALL))
    *parents, last = (int(part) if part.isdigit() else part for part in path.split("."))
    place = document
    for part in parents:
        place = place[part]
    place[last] = value
    return yaml.safe_dump(document)


def test_scenarios_that_come_along_load() -> None:
    """Each is found by its name and passes its own checks."""
    assert scenario_names() == ("eight", "idle", "reasoning", "upgrade")
    assert [len(load_scenario(name).devices) for name in scenario_names()] == [8, 1, 1, 1]


@pytest.mark.parametrize("name", ["eight", "idle", "reasoning"])
def test_stated_kv_bytes_are_those_of_the_config(name: str) -> None:
    """K and V of every layer, the heads divided over the ranks, two bytes each: what the scenario states by hand."""
    (server,) = load_scenario(name).servers
    config, ranks = server.model.config, server.arguments.tensor_parallel_size

    heads = max(1, config["num_key_value_heads"] // ranks)

    assert config["num_hidden_layers"] * heads * 2 * config["head_dim"] * 2 == server.model.kv_bytes_per_token
    assert config["hidden_size"] // config["num_attention_heads"] == config["head_dim"]


@pytest.mark.parametrize(("name", "parameters"), [("reasoning", 8_030_261_248), ("eight", 70_553_706_496)])
def test_checkpoint_bytes_are_those_of_the_config(name: str, parameters: int) -> None:
    """Embedding and head, per layer attention, three MLP matrices and two norms, and the last norm; two bytes each."""
    (server,) = load_scenario(name).servers
    config = server.model.config
    hidden, heads, kv, size = (
        config["hidden_size"],
        config["num_attention_heads"],
        config["num_key_value_heads"],
        config["head_dim"],
    )

    attention = hidden * size * (2 * heads + 2 * kv)
    layer = attention + 3 * hidden * config["intermediate_size"] + 2 * hidden
    counted = config["num_hidden_layers"] * layer + 2 * config["vocab_size"] * hidden + hidden

    assert counted == parameters
    assert server.model.total_size == 2 * parameters


def test_blocks_follow_the_engines_arithmetic() -> None:
    """(ceil(cuda total x fraction) - weights - activations - graphs) // bytes per block, all by hand."""
    scenario = load_scenario("reasoning")

    sizes = rank_sizes(scenario.servers[0], scenario.devices)

    requested = 34_007_416_832  # (81559 - 479) MiB x 0.4
    weights = 16_062_087_168  # 16,060,522,496 in steps of 2 MiB: 7659 of them
    assert (sizes.requested_bytes, sizes.weights_bytes) == (requested, weights)
    assert sizes.blocks == (requested - weights - (1290 + 420) * 2**20) // (131_072 * 16) == 7702
    assert sizes.pool_bytes == 7702 * 2_097_152


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("servers.0.model.total_size", "big", "Expected `int`, got `str` - at `$.servers[0].model.total_size`"),
        ("servers.0.model.total_size", 0, "Expected `int` >= 1 - at `$.servers[0].model.total_size`"),
        ("servers.0.speed", 3, "Object contains unknown field `speed` - at `$.servers[0]`"),
        ("servers.0.name", "a/b", "Expected `str` matching regex"),
        ("servers.0.start_seconds", float("nan"), "Expected `float` >= 0.0 - at `$.servers[0].start_seconds`"),
        ("devices.0.uuid", "two words", "Expected `str` matching regex"),
        ("devices.0.reserved_mib", 4096, "device GPU-a reserves 4096 MiB of 4096 MiB: nothing is left"),
        ("devices", [SMALL["devices"][0]] * 2, "device GPU-a is given twice"),
        ("servers", [SMALL["servers"][0]] * 2, "server chat is given twice"),
        ("servers.0.devices", [1], "server chat: there is no device 1, the node has 1"),
        (
            "servers.0.devices",
            [0, 0],
            "server chat: tensor_parallel_size 1 needs 1 device, each once, got [0, 0]",
        ),
        (
            "servers.0.arguments.max_model_len",
            65536,
            "server chat: max_model_len 65536 needs 4096 blocks and the pool has 2055: "
            "raise gpu_memory_utilization or lower max_model_len",
        ),
        (
            "servers.0.arguments.gpu_memory_utilization",
            1.0,
            "server chat: gpu_memory_utilization 1.0 leaves no room for the CUDA context",
        ),
        (
            "servers.0.workload",
            {"reasoning_chains": [{"start_seconds": 1, "prompt_tokens": 24, "output_tokens": 1001}]},
            "server chat: a request of 1025 tokens exceeds max_model_len 1024",
        ),
        (
            "processes",
            [{"device": 1, "start_seconds": 1, "end_seconds": 2, "mib": 2}],
            "processes[0] is on device 1, the node has 1",
        ),
        (
            "processes",
            [{"start_seconds": 3, "end_seconds": 2, "mib": 2}],
            "processes[0] ends at 2 s, before it starts at 3 s",
        ),
    ],
)
def test_a_mistake_is_one_sentence(path: str, value: Any, sentence: str) -> None:
    """It says where, what was expected and what was there."""
    with pytest.raises(ValueError, match=r"^story: ") as caught:
        parse_scenario(changed(path, value), source="story")

    assert str(caught.value).startswith(f"story: {sentence}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("addition", "sentence"),
    [
        ({"crashes": [{"at_seconds": 70}]}, "server chat: what happens at 70 s is after the period of 60 s"),
        ({"crashes": [{"at_seconds": 59}]}, None),
    ],
)
def test_a_story_that_repeats_must_end_before_it_begins_again(addition: dict[str, Any], sentence: str | None) -> None:
    """A moment after the period would never come, or come in the next round."""
    document = SMALL | {"period_seconds": 60, "servers": [SMALL["servers"][0] | addition]}
    if sentence is None:
        parse_scenario(yaml.safe_dump(document))
    else:
        with pytest.raises(ValueError, match=sentence):
            parse_scenario(yaml.safe_dump(document))


def test_a_key_given_twice_is_refused() -> None:
    """The second value would silently replace the first."""
    with pytest.raises(
        ValueError, match=r"^scenario: is not YAML: line 2, column 1: key 'driver' stands twice; keep one$"
    ):
        parse_scenario("driver: a\ndriver: b\ndevices: []\n")


@pytest.mark.parametrize("text", ["", "- 1", "devices: [", "devices: !!python/name:os.system ''", "[" * 500])
def test_what_is_no_scenario_is_one_sentence(text: str) -> None:
    """Whatever the text is: empty, a list, cut off, a Python object, or too deep."""
    with pytest.raises(ValueError, match=r"^scenario: ") as caught:
        parse_scenario(text)

    assert "\n" not in str(caught.value)


def test_unknown_names_and_files_are_one_sentence(tmp_path: Path) -> None:
    """An unknown name lists the known ones; a file says why it can't be read."""
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe")

    with pytest.raises(ValueError, match=r"^unknown scenario 'x': expected eight, idle, reasoning, upgrade or a path"):
        load_scenario("x")
    with pytest.raises(ValueError, match="can't be read"):
        load_scenario(tmp_path / "missing.yaml")
    with pytest.raises(ValueError, match="is not UTF-8 text"):
        load_scenario(tmp_path / "binary.yaml")


def test_a_scenario_of_ones_own_is_read_from_its_path(tmp_path: Path) -> None:
    """Anything that ends in .yaml is a path."""
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(SMALL), encoding="utf-8")

    assert load_scenario(path) == load_scenario(str(path))
