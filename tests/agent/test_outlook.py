"""Devices over simulated hours, servers over looks: what is said to come, whose doing it is, and the level of risk."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from agent.memory.arguments import Arguments
from agent.memory.budget import Budget, compute
from agent.memory.budget import Device as Place
from agent.memory.forecast import Forecast
from agent.outlook import LOOK_SECONDS, Outlook
from agent.pool_signals import Key
from agent.seating import ServerView
from agent.snapshot import Component, Counters, Device, Fragmentation, GpuHealth, Log, Requests, Server
from collectors.readings import HostMemory, ModelFiles, ProcessTree, ServerProcess, ServerReading
from tests.agent.test_board import LLAMA, WEIGHTS

MIB, GIB = 2**20, 2**30
UUID = "GPU-1"
HOURS = 3


def part(component: str, count: float, server: str = "") -> Component:
    return Component(component=component, server=server, bytes=int(count), evidence="measured", age_seconds=0.0)


def device(*parts: Component, total: int = 80 * GIB, **more: object) -> Device:
    """A device whose rest is free."""
    free = total - sum(one.bytes for one in parts)
    return Device(
        uuid=UUID,
        gpu="0",
        index=0,
        name=None,
        driver=None,
        memory_kind="device",
        total_bytes=total,
        free_bytes=free,
        components=(*parts, part("free", free)),
        **more,  # type: ignore[arg-type] # fields of the record
    )


def serving(name: str = "chat", **more: object) -> Server:
    record = Server(
        name=name,
        engine="vllm",
        version=None,
        url="",
        model=None,
        state="serving",
        age_seconds=0.0,
        started_at=1.0,
        restarts=0,
        devices=(UUID,),
        requests=Requests(running=10, waiting=0),
        counters=Counters(preemptions=0, prompt_tokens=None, generation_tokens=None),
    )
    return replace(record, **more)


class Looks:
    """An outlook and its clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.outlook = Outlook()

    def look(
        self,
        on: Device,
        *servers: Server,
        forecast: Forecast | None = None,
        host: HostMemory | None = None,
        seconds: float = LOOK_SECONDS,
        read: bool = True,
        budget: Budget | None = None,
        tree: ProcessTree | None = None,
        hidden: bool = False,
        looked: float = 0.0,
    ) -> tuple[Device, list[Server]]:
        """One look; the records with what it found. ``looked``: so long before it all processes were looked at."""
        self.now += seconds
        views = {
            one.name: ServerView(
                name=one.name,
                engine="vllm",
                url="",
                state=one.state,
                reading=ServerReading(at=self.now, engine="vllm", state=one.state) if read else None,
                budget=budget,
                tree=tree,
                processes_hidden=hidden,
            )
            for one in servers
        }
        key: Key = ("0", "full")
        forecasts = {one.name: {key: forecast} if forecast else {} for one in servers}
        records = {one.name: one for one in servers}
        self.outlook.look(views, records, [on], forecasts, host, self.now, looked_at=self.now - looked)
        return self.outlook.device(on), [self.outlook.server(one) for one in servers]

    def level(self, on: Device, *servers: Server, **more: object) -> tuple[str, str | None]:
        """Of the first server, or of the device where there is none."""
        found, told = self.look(on, *servers, **more)  # type: ignore[arg-type] # as they are
        risk = told[0].risk if told else found.risk
        assert risk is not None
        return risk.level, risk.reason


def over_hours(of: Callable[[float], Device]) -> Device:
    """The device after three hours of a look a minute."""
    looks = Looks()
    for minute in range(60 * HOURS + 2):
        found, _ = looks.look(of(minute / 60), serving(), seconds=60.0)
    return found


def pool(growing: Callable[[float], float]) -> Callable[[float], Device]:
    return lambda hour: device(
        part("weights", 20 * GIB, "chat"),
        part("kv_used", growing(hour), "chat"),
        part("kv_available", 40 * GIB - growing(hour), "chat"),
        part("runtime", 2 * GIB, "chat"),
        part("other_processes", 0),
    )


def test_a_pool_that_fills_is_no_creep() -> None:
    """It was all allocated at the start."""
    found = over_hours(pool(lambda hour: 10 * GIB * hour))

    assert (found.forecast, found.steps) == (None, ())
    assert found.risk is not None
    assert found.risk.level == "ok"


def test_a_server_that_grows_beside_its_pool() -> None:
    """1 GiB an hour: the room less what is kept for temporaries, over the slope; at the soonest is not later."""
    found = over_hours(
        lambda hour: device(
            part("weights", 60 * GIB, "chat"),
            part("kv_used", 10 * GIB, "chat"),
            part("runtime", GIB + hour * GIB, "chat"),
        )
    )
    forecast = found.forecast
    assert forecast is not None
    assert forecast.exhaustion_seconds.likely is not None

    assert forecast.by_owner == {"chat": pytest.approx(GIB, rel=0.05)}
    assert forecast.reserve_bytes == 256 * MIB
    assert forecast.exhaustion_seconds.likely == pytest.approx(3600 * (9 - HOURS - 0.25), rel=0.1)
    assert forecast.exhaustion_seconds.early is not None
    assert forecast.exhaustion_seconds.early <= forecast.exhaustion_seconds.likely
    assert forecast.cause.startswith("chat outside its KV pool: ")
    assert found.risk is not None
    assert (found.risk.level, found.risk.reason) == ("at_risk", "device_creep")


def test_what_another_process_takes_is_none_of_the_servers() -> None:
    """The device fills all the same, and who does it is named."""
    found = over_hours(
        lambda hour: device(
            part("weights", 60 * GIB, "chat"), part("runtime", GIB, "chat"), part("other_processes", hour * GIB)
        )
    )

    assert found.forecast is not None
    assert set(found.forecast.by_owner) == {"other_processes"}
    assert found.forecast.cause.startswith("processes of no server: ")


def test_growth_of_nobody_who_is_seen() -> None:
    """Hidden memory has an owner of its own in the words."""
    found = over_hours(lambda hour: device(part("weights", 60 * GIB, "chat"), part("hidden", GIB + hour * 100 * MIB)))

    assert found.forecast is not None
    assert found.forecast.cause.startswith("memory in no visible process: ")


def test_a_step_is_told_with_its_owner_and_never_drawn_on() -> None:
    """2 GiB more once."""
    found = over_hours(
        lambda hour: device(part("weights", 60 * GIB, "chat"), part("runtime", (1 if hour < 1 else 3) * GIB, "chat"))
    )

    assert found.forecast is None
    assert [(step.owner, step.bytes) for step in found.steps] == [("chat", 2 * GIB)]


def test_a_new_run_begins_anew() -> None:
    """The server starts again after two hours and a half: what grew before is gone."""
    looks = Looks()
    for minute in range(60 * HOURS):
        run = serving(started_at=1.0 if minute < 150 else 2.0)
        on = device(part("weights", 60 * GIB, "chat"), part("runtime", GIB + minute * 20 * MIB, "chat"))
        found, _ = looks.look(on, run, seconds=60.0)

    assert found.forecast is None


def forecast(level: str, **more: object) -> Forecast:
    return Forecast(at=0.0, level=level, cause="growth", outcome="preempt", exhausted=False, used_ratio=0.9, **more)  # type: ignore[arg-type] # a literal


FULL = device(part("weights", 60 * GIB, "chat"), part("kv_used", 10 * GIB, "chat"))


def test_the_level_of_a_pool_is_that_of_its_forecast() -> None:
    """With the numbers it came from, in the server's record and the pool's."""
    _, (told,) = Looks().look(FULL, serving(), forecast=forecast("at_risk", likely_seconds=120.0))

    assert told.risk is not None
    assert (told.risk.level, told.risk.reason) == ("at_risk", "pool_exhaustion")
    assert told.risk.numbers == {"used_ratio": 0.9, "exhaustion_seconds": 120.0}


def test_restarts_again_and_again() -> None:
    """Three in half an hour; with memory that ran out it is critical; half an hour later it is over."""
    looks = Looks()
    log = Log(version=None, ready=True, age_seconds=0.0, failures={"cuda_oom": 0})
    assert looks.level(FULL, serving(log=log)) == ("ok", None)
    assert looks.level(FULL, serving(log=log, restarts=3)) == ("at_risk", "restart_loop")
    log = replace(log, failures={"cuda_oom": 1})
    assert looks.level(FULL, serving(log=log, restarts=4)) == ("critical", "restart_loop")
    for _ in range(4):
        last = looks.level(FULL, serving(log=log, restarts=4), seconds=1000.0)
    assert last == ("ok", None)


def test_what_was_counted_before_it_was_known_is_of_another_time() -> None:
    """Old kills and an old log alarm nobody when the agent starts; the next one does."""
    looks = Looks()
    log = Log(version=None, ready=True, age_seconds=0.0, failures={"cuda_oom": 7})
    assert looks.level(FULL, serving()) == ("ok", None)
    assert looks.level(FULL, serving(log=log, host_oom_kills=3)) == ("ok", None)
    assert looks.level(FULL, serving(log=log, host_oom_kills=4)) == ("at_risk", "host_memory")


def test_a_server_that_is_not_read_is_never_ok() -> None:
    """It served, and answers no more; one that only loads is not blind."""
    looks = Looks()
    assert looks.level(FULL, serving(state="loading"), read=False) == ("ok", None)
    looks.look(FULL, serving())
    assert looks.level(FULL, serving(state="loading"), read=False) == ("watch", "blind")
    assert looks.level(FULL, serving()) == ("watch", "blind")  # held


def test_sleep_clears_at_once_and_may_leave_much_behind() -> None:
    """4 GiB are a sleeper's due; 3 more with the next sleep are residue."""
    looks = Looks()
    looks.look(FULL, serving(), forecast=forecast("critical"))
    asleep = serving(state="sleeping")
    assert looks.level(device(part("runtime", 4 * GIB, "chat")), asleep) == ("ok", None)
    looks.look(FULL, serving())
    assert looks.level(device(part("runtime", 7 * GIB, "chat")), asleep) == ("at_risk", "sleep_residue")


def test_a_dead_server_has_no_level() -> None:
    """It is gone with its series."""
    looks = Looks()
    looks.look(FULL, serving(), forecast=forecast("critical"))
    _, (told,) = looks.look(FULL, serving(state="down", devices=()), read=False)

    assert told.risk is None


PROCESSES = ProcessTree(at=0.0, processes=(ServerProcess(pid=7, started_at=1.0, title="vllm"),))
PLAN = compute(
    ModelFiles(path="/m", config=LLAMA, tensor_bytes=WEIGHTS, tensor_source="index"),
    Arguments(engine="vllm", max_model_len=16384),  # 15 GiB of weights, and 2 GiB for one request
    Place(name="H100", total_bytes=80 * GIB, cuda_bytes=79 * GIB),
)


def after_a_crash(*parts: Component) -> tuple[Looks, Device]:
    """It served beside nobody, and this is left 20 s after it went down."""
    looks, left = Looks(), device(part("reserved", 0), *parts)
    looks.look(FULL, serving(pids=(7,)), budget=PLAN, tree=PROCESSES)
    looks.look(FULL, serving(pids=(7,)), budget=PLAN, tree=PROCESSES)
    for _ in range(4):
        looks.look(left, serving(state="down", devices=()), read=False)
    return looks, left


def test_a_guest_that_keeps_a_server_from_coming_back() -> None:
    """While it is down, and with each start that fails, the server is at risk and the GPU has a guest."""
    looks, left = after_a_crash(part("other_processes", 70 * GIB))
    told = []
    for at in range(8):
        if at % 4 < 2:
            found, (server,) = looks.look(left, serving(state="down", devices=(), restarts=at // 4), read=False)
        else:
            held = device(part("reserved", 0), part("other_processes", 70 * GIB), part("runtime", 3 * GIB, "chat"))
            starts = serving(state="loading", restarts=1 + at // 4, pids=(7,))
            found, (server,) = looks.look(held, starts, read=False, tree=PROCESSES)
        told.append((server.risk and (server.risk.level, server.risk.reason), found.risk and found.risk.reason))
    _, (server,) = looks.look(FULL, serving(restarts=2, pids=(7,)), budget=PLAN, tree=PROCESSES)

    assert set(told) == {(("at_risk", "budget_mismatch"), "foreign_process")}
    assert server.risk is not None
    assert server.risk.level == "ok"


def test_a_server_that_is_down_and_finds_room() -> None:
    """A guest beside which it fits is one of the GPU, and none of its risk."""
    looks, left = after_a_crash(part("other_processes", 40 * GIB))
    found, (server,) = looks.look(left, serving(state="down", devices=()), read=False)

    assert server.risk is None
    assert found.risk is not None
    assert found.risk.reason == "foreign_process"


def test_what_a_crash_leaves_for_a_moment_is_no_guest() -> None:
    """The driver shows processes of a dead server for some seconds; it is told once they stay."""
    looks, left = Looks(), device(part("reserved", 0), part("other_processes", 70 * GIB))
    looks.look(FULL, serving(pids=(7,)), budget=PLAN, tree=PROCESSES)
    told = []
    for _ in range(5):
        found, (server,) = looks.look(left, serving(state="down", devices=()), read=False)
        told.append((server.risk is not None, found.risk is not None and found.risk.level != "ok"))

    assert told == [(False, False)] * 3 + [(True, True)] * 2


def test_processes_that_were_not_looked_at_yet_are_nobodys_guests() -> None:
    """The driver shows a new process of a server that starts before a look at all processes shows whose it is."""
    looks, starts = Looks(), serving(state="loading", pids=(7,))
    looks.look(device(part("reserved", 0), part("other_processes", 0)), starts, read=False, tree=PROCESSES)
    guest = device(part("reserved", 0), part("other_processes", GIB))
    levels = []
    for late in (6.0, 11.0, 16.0, 21.0, 26.0, 1.0):
        found, _ = looks.look(guest, starts, read=False, tree=PROCESSES, looked=late)
        levels.append(found.risk and found.risk.level)

    assert levels == ["ok"] * 5 + ["watch"]


def test_whose_processes_can_not_be_seen_may_be_its_own() -> None:
    """A server that loads in another pid namespace: what nobody is known to hold is not in its way."""
    looks, on = Looks(), device(part("hidden", 70 * GIB), part("runtime", GIB, "chat"))
    for _ in range(6):
        looks.look(on, serving(state="loading"), budget=PLAN, hidden=True)
    _, (server,) = looks.look(on, serving(state="loading"), budget=PLAN, hidden=True)

    assert server.risk is not None
    assert server.risk.level == "ok"


def test_fragmentation_and_budget() -> None:
    """Of the allocator, and what the budget says."""
    torn = Fragmentation(kind="allocator", gpu="0", server="chat", replica="0", low=0.4, likely=0.4, high=0.4)
    assert Looks().level(FULL, serving(fragmentation=(torn,))) == ("watch", "fragmentation")
    assert Looks().level(FULL, serving(budget_fits=False)) == ("watch", "budget_mismatch")
    swollen = replace(FULL, unexplained_bytes={"chat": 4 * GIB})
    assert Looks().level(swollen, serving()) == ("watch", "budget_mismatch")


def test_levels_of_a_device() -> None:
    """Headroom, hardware, guests beside a server whose own processes are known, and no reading at all."""
    lost = GpuHealth(gpu="0", lost=True)
    guest = device(part("reserved", 0), part("other_processes", GIB))
    blind = replace(FULL, total_bytes=None, free_bytes=None, components=())
    assert Looks().level(replace(FULL, headroom_ratio=0.05)) == ("watch", "low_headroom")
    strict = Looks()
    strict.outlook.headroom_ratio = 0.2
    assert strict.level(replace(FULL, headroom_ratio=0.15)) == ("watch", "low_headroom")
    assert Looks().level(replace(FULL, headroom_ratio=0.15)) == ("ok", None)
    assert Looks().level(replace(FULL, health=lost)) == ("critical", "hardware")
    assert Looks().level(guest) == ("ok", None)
    found, _ = Looks().look(guest, serving(pids=(7,)))
    assert found.risk is not None
    assert found.risk.reason == "foreign_process"
    of_the_server_itself, _ = Looks().look(guest, serving(pids=()))
    assert of_the_server_itself.risk is not None
    assert of_the_server_itself.risk.level == "ok"
    assert Looks().level(blind) == ("watch", "blind")


def test_unified_memory_by_pressure() -> None:
    """All tasks of the host waited 15 % of the time, in two looks: such a node hangs before an allocation fails."""
    looks = Looks()
    unified = replace(FULL, memory_kind="unified")
    levels = [
        looks.level(
            unified,
            host=HostMemory(total_bytes=100, available_bytes=50, pressure_seconds={"full": 0.15 * LOOK_SECONDS * look}),
        )[0]
        for look in range(5)
    ]

    assert levels == ["ok", "ok", "ok", "critical", "critical"]
