"""What stands beside the pool of a vLLM: KV off the device, by tier, and the adapters of requests."""

import pytest

from collectors.readings import AdaptersReading, OffloadReading
from collectors.vllm.page import Page, parse_page
from collectors.vllm.pools import pools_of
from tests.collectors.replay import vllm

GIB = 1 << 30


def page(name: str, *lines: str) -> Page:
    return parse_page(vllm(name) + "".join(f"{line}\n" for line in lines), source="page")


NATIVE = OffloadReading(
    replica="0",
    by="kv_offload",
    tier="host",
    used_ratio=0.75,
    capacity_bytes=32 * GIB,
    capacity_tokens=262_144,
)
SIMPLE = OffloadReading(
    replica="0",
    by="simple_kv_offload",
    tier="disk",
    used_ratio=500 / 4000,
    capacity_blocks=4000,
    used_blocks=500,
)
HISPARSE = OffloadReading(replica="0", by="hisparse", tier="host", used_ratio=0.125)
LMCACHE = (
    OffloadReading(by="LMCache", tier="host", used_bytes=4 * GIB),
    OffloadReading(by="LMCache", tier="disk", used_bytes=8 * GIB),
)
SWAP = OffloadReading(replica="0", by="swap space", tier="host", used_ratio=0.0, capacity_blocks=2048)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("shapes/offload_native.txt", (NATIVE,)),
        ("shapes/offload_simple.txt", (SIMPLE, HISPARSE)),
        ("shapes/lmcache.txt", LMCACHE),
        ("0.6.6/metrics.txt", (SWAP,)),
        ("0.33.0/metrics.txt", ()),
        ("0.32.0/metrics_preempting.txt", ()),
    ],
)
def test_kv_off_the_device_is_named_by_its_tier(name: str, expected: tuple[OffloadReading, ...]) -> None:
    """Ratios, bytes, tokens or blocks as each of them tells; workers of LMCache are summed, an empty tier is none."""
    assert page(name).offload == expected


@pytest.mark.parametrize("name", ["offload_native", "offload_simple", "lmcache", "multimodal", "lora"])
def test_nothing_beside_the_pool_changes_it(name: str) -> None:
    """The pool and its replica are those of the page without these series."""
    plain = page("0.33.0/metrics.txt")
    found = page(f"shapes/{name}.txt")

    assert found.replicas == plain.replicas
    assert pools_of(found) == pools_of(plain)


def test_before_its_first_step_the_size_of_the_host_tier_is_what_was_asked_for() -> None:
    """GiB over all tensor ranks; with another backend it is that one's to say."""
    asked = vllm("0.33.0/metrics.txt").replace('kv_offloading_size="None"', 'kv_offloading_size="16"')
    (found,) = parse_page(asked, source="page").offload

    assert (found.capacity_bytes, found.used_ratio, found.capacity_tokens) == (16 * GIB, None, None)
    other = asked.replace('kv_offloading_backend="native"', 'kv_offloading_backend="lmcache"')
    assert parse_page(other, source="page").offload == ()


def test_the_newest_sample_names_the_adapters() -> None:
    """Each set of names is a series of its own, whose value is when it was true."""
    expected = AdaptersReading(slots=4, running=("chat", "sql"), waiting=())

    assert page("shapes/lora.txt").adapters == (expected,)
    assert page("0.33.0/metrics.txt").adapters == ()


def test_names_of_adapters_are_bounded() -> None:
    """At most sixteen of each, none longer than 128 characters."""
    names = ",".join(f"a{number:03}" + "x" * 200 for number in range(100))
    line = f'vllm:lora_requests_info{{max_lora="4",running_lora_adapters="{names}",waiting_lora_adapters=""}} 1.9e+09'
    (found,) = page("shapes/lora.txt", line).adapters

    assert found.running is not None
    assert len(found.running) == 16
    assert {len(name) for name in found.running} == {128}


@pytest.mark.parametrize(
    "lines",
    [
        [f'vllm:lora_requests_info{{running_lora_adapters="a{number}"}} {number}' for number in range(5000)],
        [f'vllm:lora_requests_info{{running_lora_adapters="{"name," * 20_000}"}} 1'],
    ],
)
def test_sets_of_adapters_without_end_cost_no_other_figure(lines: list[str]) -> None:
    """vLLM keeps a series for every set that ever ran: once they are too many, adapters alone are not known."""
    found = parse_page("\n".join(['vllm:kv_cache_usage_perc{engine="0"} 0.25', *lines, ""]), source="page")

    assert found.adapters == ()
    assert found.values["used_ratio"] == {"0": 0.25}


def test_series_of_the_whole_server_add_no_replica() -> None:
    """A rank of a group of servers has a page of its own under its number; adapters and LMCache name none."""
    lines = (
        'vllm:lora_requests_info{max_lora="4",running_lora_adapters="sql",waiting_lora_adapters=""} 1.9e+09',
        'lmcache:local_cache_usage{model_name="m",worker_id="0",role="worker"} 5',
    )

    assert page("shapes/dp_external.txt", *lines).replicas == page("shapes/dp_external.txt").replicas


def test_multimodal_items_are_counted_apart_from_the_prefix_cache() -> None:
    """Of 40 looked up 30 were found, in host memory."""
    found = page("shapes/multimodal.txt").values

    assert (found["multimodal_queries"], found["multimodal_hits"]) == ({"0": 40.0}, {"0": 30.0})
