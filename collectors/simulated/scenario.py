"""Scenario files: YAML text to checked records. A story that can't happen ends in one sentence, not in an odd demo."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from collectors import strict_yaml
from collectors.simulated.sizing import MIB, blocks_of, rank_sizes
from collectors.simulated.story import Process, Scenario, Server

_FOLDER = Path(__file__).parent / "scenarios"


def scenario_names() -> tuple[str, ...]:
    """Names of the scenarios that come with the package."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def load_scenario(name: str | Path) -> Scenario:
    """Read a scenario by name, or from a path that ends in .yaml.

    Raises:
        ValueError: in one sentence, what is wrong with it.
    """
    path = Path(name)
    if path.suffix != ".yaml":
        if str(name) not in scenario_names():
            expected = ", ".join(scenario_names())
            raise ValueError(f"unknown scenario {str(name)!r}: expected {expected} or a path that ends in .yaml")
        path = _FOLDER / f"{name}.yaml"
    try:
        return parse_scenario(path.read_text(encoding="utf-8"), source=f"scenario {name}")
    except OSError as exc:
        raise ValueError(f"scenario {name}: can't be read ({exc.strerror})") from exc
    except UnicodeDecodeError as exc:
        raise ValueError(f"scenario {name}: is not UTF-8 text (byte {exc.start})") from exc


def parse_scenario(text: str, *, source: str = "scenario") -> Scenario:
    """Turn YAML text into a checked scenario.

    Raises:
        ValueError: in one sentence that begins with ``source``.
    """
    try:
        document = strict_yaml.load(text)
    except ValueError as exc:
        raise ValueError(f"{source}: is not YAML: {exc}") from exc
    try:
        scenario = msgspec.convert(document, Scenario)
    except msgspec.ValidationError as exc:
        raise ValueError(f"{source}: {exc}") from exc
    for problem in _problems(scenario):
        raise ValueError(f"{source}: {problem}")
    return scenario


def _problems(scenario: Scenario) -> Iterator[str]:
    uuids = [device.uuid for device in scenario.devices]
    yield from (f"device {uuid} is given twice" for uuid in uuids if uuids.count(uuid) > 1)
    for device in scenario.devices:
        if device.reserved_mib >= device.total_mib:
            yield f"device {device.uuid} reserves {device.reserved_mib} MiB of {device.total_mib} MiB: nothing is left"
    served = [server.name for server in scenario.servers]
    yield from (f"server {name} is given twice" for name in served if served.count(name) > 1)
    for server in scenario.servers:
        yield from _server_problems(server, scenario)
    for number, process in enumerate(scenario.processes):
        yield from (f"processes[{number}] {problem}" for problem in _process_problems(process, scenario))


def _server_problems(server: Server, scenario: Scenario) -> Iterator[str]:
    where, arguments = f"server {server.name}", server.arguments
    size = arguments.tensor_parallel_size
    if not len(set(server.devices)) == len(server.devices) == size:
        devices = "device" if size == 1 else "devices"
        yield f"{where}: tensor_parallel_size {size} needs {size} {devices}, each once, got {list(server.devices)}"
        return
    if missing := [index for index in server.devices if index >= len(scenario.devices)]:
        yield f"{where}: there is no device {missing[0]}, the node has {len(scenario.devices)}"
        return
    sizes = rank_sizes(server, scenario.devices)
    blocks = blocks_of(arguments.max_model_len, arguments.block_size)
    if blocks > sizes.blocks - 1:
        yield (
            f"{where}: max_model_len {arguments.max_model_len} needs {blocks} blocks and the pool has "
            f"{max(0, sizes.blocks - 1)}: raise gpu_memory_utilization or lower max_model_len"
        )
    outside = sizes.requested_bytes + sizes.context_bytes
    if any((scenario.devices[i].total_mib - scenario.devices[i].reserved_mib) * MIB < outside for i in server.devices):
        yield f"{where}: gpu_memory_utilization {arguments.gpu_memory_utilization} leaves no room for the CUDA context"
    yield from (f"{where}: {problem}" for problem in _story_problems(server, scenario.period_seconds))


def _story_problems(server: Server, period: float | None) -> Iterator[str]:
    workload, longest = server.workload, server.arguments.max_model_len
    arrivals = (*workload.reasoning_chains, *workload.late_guests)
    tokens = [arrival.prompt_tokens + arrival.output_tokens for arrival in arrivals]
    if short := workload.short_requests:
        tokens.append(short.prompt_tokens.maximum + short.output_tokens.maximum)
    yield from (f"a request of {size} tokens exceeds max_model_len {longest}" for size in tokens if size > longest)
    times = [arrival.start_seconds for arrival in arrivals] + [crash.at_seconds for crash in server.crashes]
    if period is not None:
        yield from (f"what happens at {at:g} s is after the period of {period:g} s" for at in times if at >= period)


def _process_problems(process: Process, scenario: Scenario) -> Iterator[str]:
    if process.device >= len(scenario.devices):
        yield f"is on device {process.device}, the node has {len(scenario.devices)}"
    if process.end_seconds <= process.start_seconds:
        yield f"ends at {process.end_seconds:g} s, before it starts at {process.start_seconds:g} s"
    if scenario.period_seconds is not None and process.end_seconds >= scenario.period_seconds:
        yield f"ends at {process.end_seconds:g} s, after the period of {scenario.period_seconds:g} s"
