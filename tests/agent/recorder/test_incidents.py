"""What two snapshots in a row say."""

import pytest
from msgspec.structs import replace

from agent.memory.risk import OK, Risk
from agent.recorder.incidents import incidents
from agent.snapshot import Component, Counters, Device, GpuHealth, Log, Requests, Server, Snapshot

COUNTERS = Counters(preemptions=1, prompt_tokens=None, generation_tokens=None, refusals=None)
LOG = Log(version=None, ready=True, age_seconds=0.0, failures={"cuda_oom": 0, "context_refused": 1})
SERVER = Server(
    name="chat",
    engine="vllm",
    version="1",
    url="",
    model=None,
    state="serving",
    age_seconds=0.0,
    started_at=None,
    restarts=0,
    requests=Requests(running=None, waiting=None),
    counters=COUNTERS,
    log=LOG,
    host_oom_kills=0,
)
FREE = Component(component="free", bytes=1, evidence="measured", age_seconds=0.0)
HEALTH = GpuHealth(gpu="0", lost=False, xids={31: 1})
DEVICE = Device(
    uuid="GPU-a", gpu="0", index=0, name=None, driver=None, memory_kind="device", components=(FREE,), health=HEALTH
)

CRITICAL = Risk(level="critical", reason="device_creep", numbers={"exhaustion_seconds": 60.0})


def found(server: Server = SERVER, device: Device = DEVICE) -> list[tuple[str, str, str, int]]:
    before = Snapshot(time=1.0, version="", servers=(SERVER,), devices=(DEVICE,))
    after = Snapshot(time=2.0, version="", servers=(server,), devices=(device,))
    assert all(incident.at == 2.0 for incident in incidents(before, after))
    return [(one.kind, one.subject, one.text, one.count) for one in incidents(before, after)]


SERVERS = {
    "died": (replace(SERVER, state="down"), ("died", "chat", "was serving, now down", 1)),
    "state": (replace(SERVER, state="sleeping"), ("state", "chat", "was serving, now sleeping", 1)),
    "restarted": (replace(SERVER, restarts=2), ("restarted", "chat", "it was started anew", 2)),
    "version": (replace(SERVER, version="2"), ("version", "chat", "from version 1 to 2", 1)),
    "killed": (
        replace(SERVER, host_oom_kills=1),
        ("host_oom_kill", "chat", "the host killed a process of it for want of memory", 1),
    ),
    "preempted": (
        replace(SERVER, counters=replace(COUNTERS, preemptions=4)),
        ("preempted", "chat", "preempted for want of KV", 3),
    ),
    "oom": (
        replace(SERVER, log=replace(LOG, failures={"cuda_oom": 2, "context_refused": 1})),
        ("oom", "chat", "its log says cuda oom", 2),
    ),
    "retracted, and not counted yet": (
        replace(SERVER, log=replace(LOG, failures={"cuda_oom": 0, "context_refused": 1, "kv_pool_full": 2})),
        ("preempted", "chat", "its log says kv pool full", 2),
    ),
    "full where none is preempted": (
        replace(
            SERVER,
            counters=replace(COUNTERS, preemptions=None),
            log=replace(LOG, failures={"cuda_oom": 0, "context_refused": 1, "kv_pool_full": 2}),
        ),
        ("refused", "chat", "its log says kv pool full", 2),
    ),
    "refused": (
        replace(SERVER, log=replace(LOG, failures={"cuda_oom": 0, "context_refused": 2})),
        ("refused", "chat", "its log says context refused", 1),
    ),
}


@pytest.mark.parametrize("name", SERVERS)
def test_of_a_server(name: str) -> None:
    """Kind, subject, what, and how often."""
    server, expected = SERVERS[name]

    assert found(server) == [expected]


QUIET = {
    "nothing": SERVER,
    "no counter any more": replace(SERVER, counters=replace(COUNTERS, preemptions=None)),
    "a counter that went back": replace(SERVER, counters=replace(COUNTERS, preemptions=0)),
    "a first refusal counter": replace(SERVER, counters=replace(COUNTERS, refusals=9)),
    "no log any more": replace(SERVER, log=None),
    "kills not seen any more": replace(SERVER, host_oom_kills=None),
    "no version any more": replace(SERVER, version=None),
    "another server": replace(SERVER, name="other", state="down"),
}


@pytest.mark.parametrize("name", QUIET)
def test_what_is_no_incident(name: str) -> None:
    """What is not known, and what began to be known, says nothing happened."""
    assert found(QUIET[name]) == []


def test_counters_of_a_new_run_are_not_events_of_the_old() -> None:
    """A restart says itself."""
    assert [kind for kind, *_ in found(replace(SERVER, restarts=1, counters=replace(COUNTERS, preemptions=9)))] == [
        "restarted"
    ]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (OK, CRITICAL, ["its risk turned critical: device creep"]),
        (None, CRITICAL, ["its risk turned critical: device creep"]),
        (CRITICAL, CRITICAL, []),
        (CRITICAL, OK, []),
        (CRITICAL, None, []),
        (OK, replace(CRITICAL, level="at_risk"), []),
    ],
)
def test_risk(before: Risk | None, after: Risk | None, said: list[str]) -> None:
    """That it turns critical, of a server as of a device; not that it is."""
    one, other = (
        Snapshot(time=1.0, version="", servers=(replace(SERVER, risk=risk),), devices=(replace(DEVICE, risk=risk),))
        for risk in (before, after)
    )
    told = [(one.kind, one.subject, one.text) for one in incidents(one, other)]

    assert told == [("risk", subject, text) for text in said for subject in ("chat", "gpu 0")]


def test_of_a_device() -> None:
    """Lost, an error of the driver, or not read any more."""
    lost = replace(DEVICE, health=replace(HEALTH, lost=True))
    xids = replace(DEVICE, health=replace(HEALTH, xids={31: 3, 48: 1}))

    assert found(device=lost) == [("hardware", "gpu 0", "the GPU is lost", 1)]
    assert found(device=xids) == [
        ("hardware", "gpu 0", "the driver reported Xid 31", 2),
        ("hardware", "gpu 0", "the driver reported Xid 48", 1),
    ]
    assert found(device=replace(DEVICE, components=())) == [("blind", "gpu 0", "its memory is not read any more", 1)]
    assert found(device=replace(DEVICE, health=None)) == []
