"""What NVML's error codes mean to the person who reads a metric or a log. Imports the standard library only.

Codes are those of nvml.h; negative ones are this package's own, for what NVML itself can't say.
"""

from typing import NamedTuple

UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, INSUFFICIENT_SIZE = 1, 2, 3, 4, 6, 7
DRIVER_NOT_LOADED = 9
TIMEOUT, LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND, GPU_IS_LOST, VERSION_MISMATCH = 10, 12, 13, 15, 18
ARGUMENT_VERSION_MISMATCH, DEPRECATED, UNKNOWN = 25, 26, 999
INCONSISTENT, PROCESS_STRUCTS, CHILD_DIED, PROTOCOL, HOST_FIGURES, HIDDEN_PROCESSES = -1, -2, -3, -4, -5, -6
WHOLE_DRIVER = (UNINITIALIZED, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, VERSION_MISMATCH)


class Meaning(NamedTuple):
    """``reason`` is a label value; ``sentence`` says what is wrong, ``hint`` what to do."""

    reason: str
    sentence: str
    hint: str


MEANINGS: dict[int, Meaning] = {
    1: Meaning("uninitialized", "NVML was shut down under the agent", "a fresh process starts it again"),
    2: Meaning("invalid_argument", "no device answers at this index any more", "devices are counted again"),
    3: Meaning("not_supported", "this device does not offer this reading", "nothing to do; the series stays absent"),
    4: Meaning(
        "no_permission",
        "the driver denies access to this device",
        "allow /dev/nvidia* for the agent; in a container MIG also needs privileged mode, the host's pid namespace and "
        "NVIDIA_MIG_MONITOR_DEVICES=all",
    ),
    6: Meaning("not_found", "the driver has nothing under this name", "nothing to do; devices are counted again"),
    7: Meaning("insufficient_size", "the process list kept outgrowing its buffer", "it is read again next time"),
    9: Meaning("no_driver", "the NVIDIA driver is not loaded", "load it, or check the device files of the container"),
    10: Meaning(
        "timeout",
        "the driver did not answer in time",
        "see the kernel log for Xid messages; a GPU that stays silent needs a reset or a reboot",
    ),
    12: Meaning(
        "no_library",
        "libnvidia-ml.so.1 was not found",
        "install the NVIDIA driver, or start the container with the NVIDIA runtime and the utility capability",
    ),
    13: Meaning("function_not_found", "this driver is too old for this reading", "update the driver"),
    14: Meaning("corrupted_inforom", "the device's infoROM is corrupted", "have the GPU checked"),
    15: Meaning("gpu_lost", "the GPU has fallen off the bus", "see the kernel log for Xid 79; reset it or reboot"),
    16: Meaning("reset_required", "the GPU needs a reset", "drain it and run nvidia-smi --gpu-reset, or reboot"),
    17: Meaning(
        "operating_system",
        "the operating system blocked the request",
        "allow the device in the container's cgroup; after systemctl daemon-reload recreate the container",
    ),
    18: Meaning(
        "version_mismatch",
        "the driver's library and kernel module have different versions",
        "an upgrade is half done: reload the kernel module or reboot",
    ),
    19: Meaning("in_use", "the GPU is in use by an exclusive task", "nothing to do; it is tried again"),
    20: Meaning("host_memory", "NVML ran out of host memory", "free memory on the host"),
    23: Meaning("resources", "NVML ran out of resources", "nothing to do; it is tried again"),
    25: Meaning("argument_version", "the driver knows another version of this reading", "update the driver"),
    26: Meaning("deprecated", "the driver has dropped this reading", "update the agent"),
    27: Meaning("not_ready", "the GPU is being reset", "nothing to do; it is tried again"),
    28: Meaning("gpu_not_found", "the GPU was removed", "check the PCIe slot or the hypervisor"),
    29: Meaning("invalid_state", "the driver can't answer in its present state", "check the MPS daemon, if one runs"),
    999: Meaning(
        "unknown",
        "NVML failed without saying why",
        "see the kernel log; in a container after systemctl daemon-reload recreate the container",
    ),
    INCONSISTENT: Meaning("inconsistent", "the driver's figures contradict each other", "report it with the driver"),
    PROCESS_STRUCTS: Meaning(
        "process_structs",
        "drivers 535.43 to 535.98 write process lists in a layout that can't be read safely",
        "update the driver to see processes",
    ),
    CHILD_DIED: Meaning("child_died", "the process that reads NVML ended", "a fresh one is started"),
    PROTOCOL: Meaning("protocol", "the process that reads NVML wrote an unreadable line", "a fresh one is started"),
    HOST_FIGURES: Meaning(
        "host_figures",
        "this GPU shares the host's memory, whose figures can't be read",
        "let the agent read /proc/meminfo",
    ),
    HIDDEN_PROCESSES: Meaning(
        "hidden_processes",
        "memory is allocated and the driver shows no process that holds it",
        "give the agent the host's pid namespace (hostPID, docker run --pid=host)",
    ),
}

OTHER = Meaning("other", "NVML failed with a code that is not known here", "see the driver's release notes")


def explain(code: int, detail: str = "") -> dict[str, str]:
    """The fields of a ``collectors.readings.Fault`` for a code: ``reason`` and one sentence as ``message``."""
    reason, sentence, hint = MEANINGS.get(code, OTHER)
    number = f"NVML error {code}" if code > 0 else ""
    context = ", ".join(part for part in (number, detail) if part)
    return {"reason": reason, "message": f"{sentence}{f' ({context})' if context else ''}: {hint}"}
