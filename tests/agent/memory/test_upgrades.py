"""Runs of a server side by side: when one has settled, what is compared, what is said of the difference."""

from typing import Any

import pytest
from msgspec.structs import replace

from agent.memory.planners.llama_cpp import changes as llama_cpp_changes
from agent.memory.planners.llama_cpp import rules as llama_cpp_rules
from agent.memory.planners.registry import CHANGES
from agent.memory.planners.vllm import changes as vllm_changes
from agent.memory.planners.vllm import rules as vllm_rules
from agent.memory.units import GIB, MIB
from agent.memory.upgrades import SMALL_BYTES, Record, Run, Settling, Share, advanced, compare, summary

SLACK = 30.0


def run(version: str = "0.19.1", started_at: float | None = 1000.0, uuid: str = "GPU-a", **fields: Any) -> Run:
    """A server on one device with 15 GiB of weights, a pool of 20 GiB and 2 GiB of everything else."""
    sizes = {"weights": 15 * GIB, "kv_pool": 20 * GIB, "runtime": 2 * GIB}
    sizes |= {name: size for name, size in fields.items() if isinstance(size, int) and name != "capacity_tokens"}
    facts = {name: value for name, value in fields.items() if name not in sizes}
    shown = {name: size for name, size in sizes.items() if size >= 0}  # a negative one is not known
    return Run(
        **{
            "engine": "vllm",
            "version": version,
            "model": "llama",
            "started_at": started_at,
            "settled_at": (started_at or 0.0) + 100.0,
            "devices": (Share(uuid=uuid, components=shown),),
        }
        | facts
    )


def advance(known: Record | None, one: Run) -> Record:
    return advanced(known, one, slack_seconds=SLACK)


def deltas(before: Run, after: Run) -> dict[str, int]:
    return {moved.component: moved.delta_bytes for moved in compare(before, after).components}


def settled(*steps: tuple[float, Run | None]) -> list[bool]:
    settling = Settling()
    return [settling.take(one, at, seconds=60.0) for at, one in steps]


def test_a_server_settles_after_a_minute_without_movement() -> None:
    """Counted from its first answer; a pool that fills is no movement, for its parts are one component."""
    assert settled((0, run()), (30, run()), (59, run()), (60, run()), (70, run())) == [False, False, False, True, True]


@pytest.mark.parametrize(
    ("moved", "is_movement"),
    [
        (run(runtime=2 * GIB + SMALL_BYTES), False),
        (run(runtime=2 * GIB + SMALL_BYTES + 1), True),
        (run(runtime=2 * GIB - SMALL_BYTES - 1), True),
        (run(cuda_graphs=0), True),
        (run(uuid="GPU-b"), True),
        (run(arguments={"tp": 2}), True),
        (run(version="0.21.0"), True),
        (None, True),
    ],
)
def test_movement_begins_the_minute_anew(moved: Run | None, is_movement: bool) -> None:
    """Bytes of a component, a component that appears, another device, other facts, a time without serving."""
    before, after = (
        settled((0, run()), (50, moved), (60, moved))[-1],
        settled((0, run()), (50, moved), (110, moved))[-1],
    )

    assert before is not is_movement
    assert after is (moved is not None)


def test_a_creep_is_movement_once_it_has_become_much() -> None:
    """Every step is small, the whole is not: measured is against where the minute began."""
    steps = [(10.0 * number, run(runtime=2 * GIB + 11 * MIB * number)) for number in range(7)]

    assert settled(*steps)[-1] is False


def test_the_first_run_is_beside_nothing() -> None:
    """And settling again as it was changes nothing."""
    record = advance(None, run())

    assert record == Record(current=run())
    assert advance(record, run(runtime=2 * GIB + MIB)) is record


def test_another_version_stands_beside_the_one_before() -> None:
    """Since the start of the later; where that is not known, since it was seen settled."""
    record = advance(advance(None, run()), run("0.21.0", 5000.0))
    assert record == Record(before=run(), current=run("0.21.0", 5000.0), since=5000.0)

    record = advance(advance(None, run()), run("0.21.0", None))
    assert record.since == run("0.21.0", None).settled_at


def test_another_start_stands_beside_the_one_before() -> None:
    """A restart of the same version, with whatever moved."""
    later = run(started_at=5000.0, kv_pool=19 * GIB)

    assert advance(advance(None, run()), later) == Record(before=run(), current=later, since=5000.0)


@pytest.mark.parametrize("started_at", [1000.0 + SLACK, 1000.0 - SLACK, None])
def test_the_same_run_after_the_agents_own_restart(started_at: float | None) -> None:
    """The clocks that date a process may differ a little; what it is compared with stays."""
    record = advance(advance(None, run("0.18.0", 10.0)), run())

    assert advance(record, run(started_at=started_at)) is record


def test_a_run_that_settles_anew_replaces_what_it_was() -> None:
    """After its first load it holds more; the comparison with the run before is made with that."""
    record = advance(advance(None, run("0.18.0", 10.0)), run())
    loaded = run(runtime=3 * GIB)

    assert advance(record, loaded) == replace(record, current=loaded)


def test_what_a_failing_source_hides_does_not_replace_what_was_known() -> None:
    """Without process lists there is no runtime: that is no new state of the server."""
    record = advance(None, run())

    assert advance(record, run(runtime=-1)) is record


def test_a_restart_in_which_nothing_changed_is_no_upgrade() -> None:
    """A plain crash: the run before says nothing that the present one does not."""
    crashed = run(started_at=5000.0)

    assert advance(advance(None, run()), crashed) == Record(current=crashed)


def test_a_restart_in_which_nothing_changed_does_not_hide_an_upgrade() -> None:
    """A crash an hour after an upgrade: the comparison with the version before stays, with its date."""
    upgraded = advance(advance(None, run()), run("0.21.0", 5000.0, kv_pool=19 * GIB))
    crashed = run("0.21.0", 9000.0, kv_pool=19 * GIB)

    assert advance(upgraded, crashed) == Record(before=run(), current=crashed, since=5000.0)
    other = run("0.21.0", 9000.0, kv_pool=18 * GIB)
    assert advance(upgraded, other) == Record(before=upgraded.current, current=other, since=9000.0)


def test_differences_by_component() -> None:
    """Later minus earlier, one by one."""
    after = run("0.21.0", 5000.0, kv_pool=20 * GIB - 1229 * MIB, runtime=2 * GIB + MIB)

    assert deltas(run(), after) == {"weights": 0, "kv_pool": -1229 * MIB, "runtime": MIB}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        # graphs of 1 GiB that got a name: the rest of before had them too
        (run(), run(cuda_graphs=GIB, runtime=GIB), {"weights": 0, "kv_pool": 0, "runtime": 0}),
        (run(cuda_graphs=GIB, runtime=GIB), run(), {"weights": 0, "kv_pool": 0, "runtime": 0}),
        # a model that could not be read: all of it is the rest
        (run(), run(weights=-1, kv_pool=-1, runtime=36 * GIB), {"runtime": -GIB}),
        # processes that can't be seen: there is no rest
        (run(), run(runtime=-1, kv_pool=19 * GIB), {"weights": 0, "kv_pool": -GIB}),
        (run(runtime=-1), run(weights=-1, kv_pool=-1), {}),
    ],
)
def test_what_is_known_in_one_run_only_is_part_of_the_rest(before: Run, after: Run, expected: dict[str, int]) -> None:
    """Never a difference to 0 for a component that is not known."""
    assert deltas(before, after) == expected


def shares(*uuids: str, pool: int = 20 * GIB) -> tuple[Share, ...]:
    return tuple(Share(uuid=uuid, components={"kv_pool": pool + number}) for number, uuid in enumerate(uuids))


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (shares("GPU-b", "GPU-a", pool=GIB), {"GPU-b": 20 * GIB + 1, "GPU-a": 20 * GIB}),  # each with itself
        (shares("GPU-c", "GPU-d", pool=GIB), {"GPU-c": 20 * GIB, "GPU-d": 20 * GIB + 1}),  # rank with rank
        (shares("GPU-c", "GPU-a", pool=GIB), {"GPU-a": 20 * GIB}),
        (shares("GPU-c", pool=GIB), {}),
    ],
)
def test_which_device_is_compared_with_which(after: tuple[Share, ...], expected: dict[str, int]) -> None:
    """A device with itself; on other devices rank by rank, if there are as many."""
    found = compare(run(devices=shares("GPU-a", "GPU-b")), run(started_at=5000.0, devices=after))

    assert {moved.uuid: moved.before_bytes for moved in found.components} == expected


GRAPHS_INSIDE = "CUDA graphs moved inside the fraction, so the pool is smaller by them"


def test_what_is_known_to_have_changed_between_the_versions() -> None:
    """From the planner's own rules; a default that neither run used is no cause."""
    causes = compare(run(), run("0.21.0", 5000.0)).causes
    assert causes == (
        GRAPHS_INSIDE,
        "the default gpu_memory_utilization rose from 0.9 to 0.92",
        "the pool's tokens are counted as concurrency x max_model_len",
    )

    given = {"gpu_memory_utilization": 0.85}
    causes = compare(run(arguments=given), run("0.21.0", 5000.0, arguments=given)).causes
    assert "the default gpu_memory_utilization rose from 0.9 to 0.92" not in causes


def test_a_way_back_is_told_the_other_way_round() -> None:
    """A downgrade."""
    causes = compare(run("0.21.0"), run(started_at=5000.0)).causes

    assert "CUDA graphs moved outside the fraction and come on top of it" in causes
    assert "the default gpu_memory_utilization fell from 0.92 to 0.9" in causes


@pytest.mark.parametrize(
    ("engine", "before", "after"),
    [
        ("vllm", "0.19.1", "0.19.2"),
        ("vllm", "dev", "0.21.0"),
        ("vllm", "0.19.1", "main"),
        ("sglang", "0.4.6", "0.5.23"),
        ("tgi", "2.0", "3.0"),
        ("llama_cpp", "unknown", "b11549"),
    ],
)
def test_nothing_is_guessed_about_versions(engine: str, before: str, after: str) -> None:
    """No rule between them, a version that can't be read, an engine whose versions are not known apart."""
    assert compare(run(before, engine=engine), run(after, engine=engine)).causes == ()


def test_every_rule_of_an_engine_has_words_or_moves_no_memory() -> None:
    """A rule that is added to a planner asks for its words."""
    for words, rules in ((vllm_changes, vllm_rules), (llama_cpp_changes, llama_cpp_rules)):
        assert words.WORDS.keys() | words.SILENT == set(rules.Rules.__struct_fields__)
        assert not words.WORDS.keys() & words.SILENT


@pytest.mark.parametrize("engine", CHANGES)
def test_each_step_of_the_rules_is_told_in_both_directions(engine: str) -> None:
    """From the oldest known version to the newest and back, the same number of changes."""
    rules: Any = {"vllm": vllm_rules, "llama_cpp": llama_cpp_rules}[engine].RULES
    oldest, newest = (
        f"b{one.since}" if isinstance(one.since, int) else ".".join(map(str, one.since))
        for one in (rules[0], rules[-1])
    )
    up, down = list(CHANGES[engine](oldest, newest)), list(CHANGES[engine](newest, oldest))

    assert len(up) == len(down) > 0
    assert {change.text for change in up}.isdisjoint(change.text for change in down)


def test_what_else_is_another() -> None:
    """Model, arguments that both runs tell, tokens, devices."""
    before = run(arguments={"tp": 1, "kv_cache_dtype": "auto", "block_size": 16}, capacity_tokens=1000)
    after = run(
        started_at=5000.0,
        uuid="GPU-b",
        model="qwen",
        arguments={"tp": 1, "kv_cache_dtype": "fp8", "gpu_memory_utilization": 0.85},
        capacity_tokens=2000,
    )

    assert compare(before, after).causes == (
        "model 'llama' -> 'qwen'",
        "block_size 16 -> not given",
        "gpu_memory_utilization not given -> 0.85",
        "kv_cache_dtype auto -> fp8",
        "capacity 1,000 -> 2,000 tokens",
        "on 1 device(s), 1 of them other than before",
    )
    assert compare(run(), replace(run(), arguments={"tp": 2})).causes == ()  # of one run nothing is known


def test_a_figure_from_another_source_is_said() -> None:
    """Weights as its log had them and as they are computed differ a little though nothing moved."""
    shares = [
        (Share(uuid="GPU-a", components={"weights": 15 * GIB}, evidence={"weights": known}),)
        for known in ("reported", "computed")
    ]

    assert compare(run(devices=shares[0]), run(started_at=5000.0, devices=shares[1])).causes == (
        "weights reported before, computed now",
    )


def test_the_summary_says_versions_causes_and_what_moved() -> None:
    """One line; the largest movement first, over all devices."""
    before, after = run(), run("0.21.0", 5000.0, kv_pool=20 * GIB - 1229 * MIB, runtime=2 * GIB + MIB)
    given = {"gpu_memory_utilization": 0.9}
    before, after = replace(before, arguments=given), replace(after, arguments=given)
    assert summary(before, after, compare(before, after)) == (
        f"since 0.19.1 -> 0.21.0: {GRAPHS_INSIDE}; "
        "the pool's tokens are counted as concurrency x max_model_len; KV pool -1.20 GiB"
    )

    calm = run(started_at=5000.0)
    assert summary(run(), calm, compare(run(), calm)) == (
        "since the restart of 0.19.1: no component moved by more than 64.00 MiB"
    )
    before = run(devices=shares("GPU-a", "GPU-b"))
    after = run(started_at=5000.0, devices=shares("GPU-a", "GPU-b", pool=19 * GIB))
    assert (
        summary(before, after, compare(before, after))
        == "since the restart of 0.19.1: KV pool -2.00 GiB over 2 devices"
    )
