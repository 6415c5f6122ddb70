"""The exposition: same snapshot, same bytes; only what is known; every label escaped."""

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from agent.exporter import Renderer, render
from agent.memory.risk import OK, Risk
from agent.metrics import BY_NAME, CATALOGUE
from agent.snapshot import (
    BudgetLine,
    Chains,
    Collector,
    Component,
    Counters,
    Device,
    DeviceForecast,
    DeviceProcess,
    ExhaustionSeconds,
    Fragmentation,
    GpuHealth,
    Moved,
    Pool,
    PoolForecast,
    Rank,
    Recording,
    Replica,
    Requests,
    Server,
    Snapshot,
    Upgrade,
)
from collectors.own_process import Usage
from collectors.readings import Container, HostMemory
from tests.agent.web.sample import filling

GIB = 2**30
GOLDENS = Path(__file__).parents[1] / "golden"
OWN = ("cpu_seconds_total", "resident_memory_bytes", "start_time_seconds")


def pool(replica: str = "0", **fields: object) -> Pool:
    known = {
        "replica": replica,
        "kind": "full",
        "capacity_tokens": 3200,
        "used_tokens": 320,
        "cached_tokens": None,
        "free_tokens": None,
        "available_tokens": 2880,
        "used_ratio": 0.1,
        "pool_bytes": 3200 * 512,
        "bytes_per_token": 512,
        "block_size": 32,
        "growth_tokens_per_second": None,
    }
    return msgspec.convert(known | fields, Pool)


def replica(number: str = "0") -> Replica:
    return Replica(
        replica=number,
        requests=Requests(running=2, waiting=0),
        counters=Counters(preemptions=1, prompt_tokens=10, generation_tokens=20),
    )


def server(**fields: object) -> Server:
    known: dict[str, object] = {
        "name": "chat",
        "engine": "vllm",
        "version": "0.32.0",
        "url": "http://127.0.0.1:8000",
        "model": "llama",
        "state": "serving",
        "age_seconds": 0.1,
        "started_at": 1.5e9,
        "restarts": 0,
        "ranks": (Rank(gpu="0", uuid="GPU-a", tp_rank=0, pp_rank=0, replica="0", pool_bytes={"full": 3200 * 512}),),
        "pools": (pool(),),
        "replicas": (replica(),),
        "requests": Requests(running=2, waiting=0),
        "counters": Counters(preemptions=1, prompt_tokens=10, generation_tokens=20),
        "fragmentation": (Fragmentation(kind="kv_block", server="chat", replica="0", low=0.0, likely=0.1, high=0.2),),
        "budget_fits": True,
        "max_request_tokens": 2048,
        "max_request_bytes": 2048 * 512,
    }
    return Server(**(known | fields))  # type: ignore[arg-type] # fields are those of the record


def device() -> Device:
    return Device(
        uuid="GPU-a",
        gpu="0",
        index=0,
        name="H100",
        driver="580",
        memory_kind="device",
        total_bytes=80 * GIB,
        free_bytes=20 * GIB,
        age_seconds=0.2,
        headroom_ratio=0.3,
        components=(
            Component(component="weights", server="chat", bytes=60 * GIB, evidence="computed", age_seconds=0.2),
            Component(component="free", bytes=20 * GIB, evidence="measured", age_seconds=0.2),
        ),
        budget=(BudgetLine(server="chat", component="weights", bound="likely", bytes=60 * GIB),),
        overattributed_bytes={"chat": 5},
        unexplained_bytes={"chat": 0},
        used_max_bytes={"60s": 61 * GIB, "start": 62 * GIB},
        free_min_bytes={"60s": 19 * GIB, "start": 18 * GIB},
    )


def snapshot(**fields: object) -> Snapshot:
    known: dict[str, object] = {"time": 1.0, "version": "9.9", "devices": (device(),), "servers": (server(),)}
    return Snapshot(**(known | fields))  # type: ignore[arg-type] # fields are those of the record


def samples(text: bytes) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_same_snapshot_same_bytes() -> None:
    """Deterministic, whatever the order of devices and servers."""
    one, two = server(name="a", url="http://a"), server(name="b", url="http://b")

    assert render(snapshot(servers=(one, two))) == render(snapshot(servers=(two, one)))


def test_a_layout_is_kept_only_for_the_same_series() -> None:
    """The same bytes from one that rendered before, whether values, labels or the number of series changed."""
    first = snapshot(servers=(server(model="a"),))
    counted = snapshot(servers=(server(model="a", restarts=7),))
    renamed = snapshot(servers=(server(model="b"),))
    renderer = Renderer()

    for one in (first, counted, renamed, snapshot(servers=()), first):
        assert renderer.render(one) == render(one)


def test_components_become_one_partition() -> None:
    """Bytes and evidence by component; the device's own shares have an empty server."""
    found = samples(render(snapshot()))

    assert found["vramscope_memory_bytes"] == [
        ({"gpu": "0", "server": "", "component": "free"}, 20 * GIB),
        ({"gpu": "0", "server": "chat", "component": "weights"}, 60 * GIB),
    ]
    assert found["vramscope_memory_free_ratio"] == [({"gpu": "0"}, 0.25)]


def test_hardware_is_exported_once_for_a_whole_gpu() -> None:
    """Two instances of one GPU have figures of their own and one set of facts about the hardware."""
    health = GpuHealth(gpu="0", lost=False, ecc_uncorrected=3, row_remap_pending=True, xids={48: 2, 79: 0})
    parts = [msgspec.structs.replace(device(), gpu=f"0:{n}", uuid=f"MIG-{n}", health=health) for n in (1, 2)]

    found = samples(render(snapshot(devices=tuple(parts))))

    assert [labels["gpu"] for labels, _ in found["vramscope_memory_total_bytes"]] == ["0:1", "0:2"]
    assert found["vramscope_device_lost"] == [({"gpu": "0"}, 0)]
    assert found["vramscope_device_ecc_uncorrected_total"] == [({"gpu": "0"}, 3)]
    assert found["vramscope_device_row_remap_pending"] == [({"gpu": "0"}, 1)]
    assert "vramscope_device_row_remap_failure" not in found
    assert found["vramscope_device_xid_errors_total"] == [
        ({"gpu": "0", "xid": "48"}, 2),
        ({"gpu": "0", "xid": "79"}, 0),
    ]


def test_host_memory_is_exported_where_it_is_known() -> None:
    """Total, available and pressure have no labels but the kind; without a device that shares it there are none."""
    host = HostMemory(total_bytes=120 * GIB, available_bytes=30 * GIB, pressure_seconds={"some": 4.5, "full": 1.25})

    found = samples(render(snapshot(host_memory=host)))

    assert found["vramscope_host_memory_total_bytes"] == [({}, 120 * GIB)]
    assert found["vramscope_host_memory_available_bytes"] == [({}, 30 * GIB)]
    assert found["vramscope_host_memory_pressure_seconds_total"] == [({"kind": "full"}, 1.25), ({"kind": "some"}, 4.5)]
    assert not [name for name in samples(render(snapshot())) if "host_memory" in name]


def test_one_replica_has_no_replica_label_and_several_have() -> None:
    """Labels appear only where they tell apart."""
    single = samples(render(snapshot()))
    several = samples(
        render(snapshot(servers=(server(pools=(pool("0"), pool("1")), replicas=(replica("0"), replica("1"))),)))
    )

    assert single["vramscope_kv_used_ratio"] == [({"server": "chat"}, 0.1)]
    assert [labels for labels, _ in several["vramscope_kv_used_ratio"]] == [
        {"server": "chat", "replica": "0"},
        {"server": "chat", "replica": "1"},
    ]


def test_pools_of_several_replicas_have_the_label_where_only_the_pools_are_told_apart() -> None:
    """As of a server that counts its requests as a whole: without the label its pools would be one series twice."""
    page = render(snapshot(servers=(server(pools=(pool("0"), pool("1")), replicas=()),))).decode()

    assert 'vramscope_kv_used_ratio{replica="0",server="chat"} 0.1' in page
    assert 'vramscope_kv_used_ratio{replica="1",server="chat"} 0.1' in page


def test_a_series_stands_once() -> None:
    """Two ranks of one server on a device, or a server that is told of twice: the first counts, the scrape is whole."""
    ranks = tuple(
        Rank(gpu="0", uuid="GPU-a", tp_rank=0, pp_rank=0, replica="0", pool_bytes={"full": size}) for size in (7, 9)
    )
    page = render(snapshot(servers=(server(ranks=ranks), server()))).decode()

    names = [line.rpartition(" ")[0] for line in page.splitlines() if not line.startswith("#")]
    assert len(set(names)) == len(names)
    assert 'vramscope_kv_pool_bytes{gpu="0",server="chat"} 7' in page


def test_unknown_has_no_sample() -> None:
    """No 0, no NaN: the series is not there."""
    blank = pool(used_tokens=None, used_ratio=None, capacity_tokens=None, available_tokens=None, bytes_per_token=None)

    text = render(snapshot(servers=(server(pools=(blank,), started_at=None, budget_fits=None),)))

    assert b"kv_tokens" not in text
    assert b"kv_used_ratio" not in text
    assert b"budget_fits" not in text
    assert b"start_time" not in text
    assert b"NaN" not in text


def test_a_server_that_is_down_keeps_only_its_state() -> None:
    """Its last figures and counters are gone."""
    found = samples(render(snapshot(devices=(), servers=(server(state="down"),))))

    of_server = {name: rows for name, rows in found.items() if any("server" in labels for labels, _ in rows)}
    assert of_server == {"vramscope_server_state": [({"server": "chat", "state": "down"}, 1.0)]}


@pytest.mark.parametrize("state", ["loading", "serving", "sleeping"])
def test_state_is_one_hot(state: str) -> None:
    """Exactly the state it is in is 1."""
    rows = samples(render(snapshot(servers=(server(state=state),))))["vramscope_server_state"]

    assert {labels["state"]: value for labels, value in rows} == {
        name: float(name == state) for name in ("loading", "serving", "sleeping", "down")
    }


def test_hostile_labels_are_escaped() -> None:
    """A model's name can hold anything; it comes back as it was and breaks no line."""
    name = 'a"b\\c\n<script>{x="1"} 5'

    found = samples(render(snapshot(servers=(server(model=name),))))

    assert found["vramscope_server_info"][0][0]["model"] == name


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_label_comes_back_as_it_was(name: str) -> None:
    """The library's parser reads what is written here, for any text."""
    text = render(snapshot(servers=(server(model=name),)))

    assert samples(text)["vramscope_server_info"][0][0]["model"] == name


def test_numbers_are_exact() -> None:
    """Bytes as whole numbers, ratios to the last digit."""
    text = render(snapshot(servers=(server(pools=(pool(used_ratio=1 / 3),)),)))

    assert b'component="weights",gpu="0",server="chat"} 64424509440\n' in text
    assert f'vramscope_kv_used_ratio{{server="chat"}} {1 / 3!r}\n'.encode() in text


def test_collectors_and_their_failures() -> None:
    """Success, age of the last success and failures by reason, those of 0 too."""
    collector = Collector(
        name="endpoint",
        target="chat",
        success=False,
        age_seconds=3.0,
        error="refused",
        duration_seconds=0.5,
        last_success_at=7.0,
        failures={"refused": 2, "timeout": 0},
    )

    found = samples(render(snapshot(collectors=(collector,))))

    assert found["vramscope_collector_success"] == [({"collector": "endpoint", "target": "chat"}, 0.0)]
    assert {labels["reason"]: value for labels, value in found["vramscope_collector_failures_total"]} == {
        "refused": 2.0,
        "timeout": 0.0,
    }


def test_types_and_labels_are_those_of_the_catalogue() -> None:
    """Every family that is exported stands in the catalogue with its type; labels are a subset of its own."""
    text = render(snapshot())
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text.decode(), re.M))

    assert types == {name: BY_NAME[name].type for name in types}
    for name, rows in samples(text).items():
        for labels, _ in rows:
            assert set(labels) <= set(BY_NAME[name].labels)


def test_golden_of_what_few_nodes_have(request: pytest.FixtureRequest) -> None:
    """Beside the golden of a whole program: together they have every metric of the catalogue."""
    chains = Chains(
        mean_tokens=340.5, growth_tokens_per_second=30.0, longest_tokens=900, few=2, few_ratio=0.6, short_tokens=102,
        long_ratio=0.7,
    )  # fmt: skip
    soon = ExhaustionSeconds(likely=420.0, early=300.0)
    creep = DeviceForecast(
        exhaustion_seconds=soon, cause="creep", bytes_per_hour=1e9, deviation_bytes_per_hour=1e8, rise_bytes=GIB,
        room_bytes=GIB, reserve_bytes=GIB, transient_seen_bytes=None, by_owner={},
    )  # fmt: skip
    moved = Moved(gpu="0", uuid="GPU-a", component="weights", before_bytes=GIB, after_bytes=2 * GIB, delta_bytes=GIB)
    upgrade = Upgrade(
        from_version="0.19.1", to_version="0.32.0", since=2.0, from_settled_at=1.0, to_settled_at=3.0,
        from_capacity_tokens=None, to_capacity_tokens=None, causes=(), summary="",
        components=(moved,),
    )  # fmt: skip
    rare = snapshot(
        devices=(
            replace(
                device(),
                processes=(DeviceProcess(pid=7, name='a "b"\\c', bytes=GIB), DeviceProcess(pid=9, name="", bytes=0)),
                forecast=creep,
                health=GpuHealth(
                    gpu="0", lost=False, ecc_uncorrected=1, row_remap_pending=True, row_remap_failure=False
                ),
            ),
        ),
        host_memory=HostMemory(total_bytes=120 * GIB, available_bytes=9 * GIB, pressure_seconds={"some": 1.5}),
        servers=(
            server(
                container=Container(runtime="docker", id="0123456789ab", name="vllm", pod="llama-0", namespace="prod"),
                counters=Counters(preemptions=1, prompt_tokens=10, generation_tokens=20, refusals=3),
                replicas=(
                    replace(
                        replica(), counters=Counters(preemptions=1, prompt_tokens=10, generation_tokens=20, refusals=3)
                    ),
                ),
                pools=(
                    pool(
                        growth_tokens_per_second=12.5,
                        forecast=replace(filling(), exhaustion_seconds=soon, chains=chains),
                    ),
                ),
                upgrade=upgrade,
            ),
        ),
        recording=Recording(file="oom.vramscope", started_at=1.5e9),
    )
    golden = GOLDENS / "rare_metrics.txt"
    usual = _families((GOLDENS / "metrics.txt").read_text())
    families = {name: text for name, text in _families(render(rare).decode()).items() if name not in usual}
    if request.config.getoption("--update-golden"):
        golden.write_text("".join(families.values()))

    assert "".join(families.values()) == golden.read_text()
    assert usual.keys() | families.keys() == BY_NAME.keys()


def _families(text: str) -> dict[str, str]:
    """Each family's own lines, by its name."""
    parts = re.split(r"^(?=# HELP )", text, flags=re.M)
    return {part.split()[2]: part for part in parts if part}


def test_catalogue_follows_the_naming_rules() -> None:
    """Our prefix or that of any process, `_total` for counters only, one sentence of help, names once."""
    assert len(BY_NAME) == len(CATALOGUE)
    for metric in CATALOGUE:
        assert re.fullmatch(r"(vramscope|process)_[a-z0-9_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.type == "counter")
        assert metric.help.endswith(".")


def test_what_is_foreseen_of_a_pool() -> None:
    """Probabilities by window, and of running requests what is known: one engine tells each, most a mean alone."""
    told = Chains(mean_tokens=3400.5, growth_tokens_per_second=30.0)
    every = replace(told, longest_tokens=90_000, few=2, few_ratio=0.6, short_tokens=1024, long_ratio=0.7)
    pools = tuple(pool(kind=kind, forecast=_forecast(chains)) for kind, chains in (("full", every), ("window", told)))

    found = samples(render(snapshot(servers=(server(pools=pools),))))

    assert found["vramscope_kv_exhaustion_probability"] == [
        ({"server": "chat", "pool": "full", "window": "120s"}, 0.04),
        ({"server": "chat", "pool": "full", "window": "300s"}, 0.52),
        ({"server": "chat", "pool": "window", "window": "120s"}, 0.04),
        ({"server": "chat", "pool": "window", "window": "300s"}, 0.52),
    ]
    assert [value for _, value in found["vramscope_kv_running_mean_tokens"]] == [3400.5, 3400.5]
    for name, value in (
        ("running_longest_tokens", 90_000),
        ("long_request_tokens", 1024),
        ("long_requests_ratio", 0.7),
    ):
        assert found[f"vramscope_kv_{name}"] == [({"server": "chat", "pool": "full"}, value)]


@pytest.mark.parametrize(("exhausted", "expected"), [(True, [1.0, 1.0]), (False, [])])
def test_what_has_happened_is_certain(exhausted: bool, expected: list[float]) -> None:
    """A pool that ran out has no hole where its probability was; one of which it is not known has none."""
    forecast = replace(_forecast(None), probability_2min=None, probability_5min=None, exhausted=exhausted)

    found = samples(render(snapshot(servers=(server(pools=(pool(forecast=forecast),)),))))
    assert [value for _, value in found.get("vramscope_kv_exhaustion_probability", [])] == expected


def _forecast(chains: Chains | None) -> PoolForecast:
    return replace(filling(), exhaustion_seconds=ExhaustionSeconds(likely=420.0, early=None), chains=chains)


def test_what_the_agent_takes_is_read_for_each_page() -> None:
    """CPU and memory are those of the moment of the page; what is not known is absent."""
    used = iter((Usage(cpu_seconds=1.5, resident_bytes=GIB, started_at=7.0), Usage(cpu_seconds=2.5)))
    renderer = Renderer(lambda: next(used))

    first, second = (samples(renderer.render(snapshot())) for _ in range(2))

    assert [first[f"process_{name}"][0][1] for name in OWN] == [1.5, GIB, 7.0]
    assert second["process_cpu_seconds_total"] == [({}, 2.5)]
    assert not second.keys() & {f"process_{name}" for name in OWN[1:]}


def test_each_reason_of_risk_is_a_series() -> None:
    """None hides another from an alert; all well is one series without a reason."""
    risks = Risk(level="critical", reason="hardware", also={"pool_exhaustion": "at_risk"})
    text = render(Snapshot(time=0.0, version="1", servers=(server(risk=risks), server(name="calm", risk=OK)))).decode()

    assert [line for line in text.splitlines() if line.startswith("vramscope_risk_level")] == [
        'vramscope_risk_level{reason="hardware",server="chat"} 3',
        'vramscope_risk_level{reason="pool_exhaustion",server="chat"} 2',
        'vramscope_risk_level{server="calm"} 0',
    ]
