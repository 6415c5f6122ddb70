"""What devices held over the last minutes: few looks, bounded, and what was no part of a device is not known."""

from msgspec.structs import replace

from agent.device_history import STEP_SECONDS, DeviceHistory
from agent.memory.history import KEEP_SECONDS
from agent.snapshot import Component, Device


def device(uuid: str = "GPU-a", *, server: str = "s", **sizes: int) -> Device:
    parts = tuple(
        Component(component=name, server=server, bytes=size, evidence="measured", age_seconds=0.0)
        for name, size in sizes.items()
    )
    return Device(uuid=uuid, gpu="0", index=0, name=None, driver=None, memory_kind="device", components=parts)


def test_a_look_every_five_seconds_for_ten_minutes() -> None:
    """Ticks in between are passed over, and what is older goes."""
    history = DeviceHistory()
    for second in range(900):
        history.take(float(second), (device(weights=5, runtime=second),))

    (record,) = history.records((device(),), 1000.0)

    times = [at for at, _ in record["points"]]
    assert record["components"] == ("weights", "runtime")
    assert len(times) == KEEP_SECONDS / STEP_SECONDS + 1
    assert (times[0], times[-1]) == (1295.0, 1895.0)
    assert record["points"][-1] == (1895.0, [5, 895])


def test_a_component_that_was_not_there_is_not_zero() -> None:
    """Before a server came its parts are not known, and a look without any reading is none."""
    history = DeviceHistory()
    history.take(0.0, (device(runtime=1),))
    history.take(5.0, (device(),))
    history.take(10.0, (device(weights=7, runtime=2),))

    (record,) = history.records((device(),), 0.0)

    assert record["components"] == ("runtime", "weights")
    assert record["points"] == [(0.0, [1, None]), (10.0, [2, 7])]


def test_components_of_several_servers_are_one() -> None:
    """A chart tells components apart, not whose they are."""
    both = device(weights=3).components + device(server="other", weights=4).components
    history = DeviceHistory()
    history.take(0.0, (replace(device(), components=both),))

    assert history.records((device(),), 0.0)[0]["points"] == [(0.0, [7])]


def test_a_device_that_has_gone_is_forgotten_after_ten_minutes() -> None:
    """Not before: it may be back; meanwhile it is not told."""
    history = DeviceHistory()
    history.take(0.0, (device("GPU-a", weights=1), device("GPU-b", weights=1)))
    history.take(300.0, (device("GPU-b", weights=1),))
    assert [one["uuid"] for one in history.records((device("GPU-b"),), 0.0)] == ["GPU-b"]
    assert len(history.records((device("GPU-a"),), 0.0)) == 1

    history.take(KEEP_SECONDS + 1, ())

    assert history.records((device("GPU-a"),), 0.0) == []
