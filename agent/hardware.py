"""What is remembered of GPUs as pieces of hardware: which were there, which are lost, what errors were reported."""

from agent.snapshot import GpuHealth
from collectors.nvml.xids import GRAVE
from collectors.readings import DeviceReading, Fault, NodeReading

REMEMBER_SECONDS = 600.0
LOST = ("gpu_lost", "gpu_not_found")
GONE = Fault(
    reason="gpu_not_found",
    message="the driver does not show this GPU any more: check the kernel log, the PCIe slot or the hypervisor",
)


class Hardware:
    """GPUs by UUID, whole ones: the instances of a GPU in MIG mode come and go as somebody wants."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, DeviceReading]] = {}
        self._lost: set[str] = set()
        self._xids: dict[str, dict[int, int]] = {}

    def took(self, node: NodeReading) -> None:
        """Take one pass: a GPU that is missing from it is lost, and remembered for ten minutes."""
        present: dict[str, list[DeviceReading]] = {}
        for device in node.devices:
            if device.gpu_uuid is not None:
                present.setdefault(device.gpu_uuid, []).append(device)
        for uuid, devices in present.items():
            self._seen[uuid] = (node.at, devices[0])
            reasons = {device.memory_fault.reason for device in devices if device.memory_fault}
            if reasons.intersection(LOST):
                self._lost.add(uuid)
            elif not reasons:
                self._lost.discard(uuid)
        self._lost |= self._seen.keys() - present.keys()
        for uuid in [uuid for uuid, (at, _) in self._seen.items() if at < node.at - REMEMBER_SECONDS]:
            del self._seen[uuid]
            self._lost.discard(uuid)
            self._xids.pop(uuid, None)
        for event in node.xids:
            counts = self._xids.setdefault(event.uuid, {})
            counts[event.xid] = counts.get(event.xid, 0) + 1

    def missing(self, node: NodeReading) -> list[DeviceReading]:
        """The GPUs that were there and are not in this pass, without figures."""
        present = {device.gpu_uuid for device in node.devices}
        return [
            DeviceReading(
                index=last.index,
                uuid=uuid,
                name=last.name if last.instance is None else None,
                bus_id=last.bus_id,
                memory_fault=GONE,
                processes_fault=GONE,
            )
            for uuid, (_, last) in self._seen.items()
            if uuid not in present
        ]

    def labelled(self, node: NodeReading) -> list[tuple[str, DeviceReading]]:
        """The devices of a pass and the GPUs that are missing from it, each with a label of its own.

        A GPU that is gone keeps its index, unless another has it now: then its UUID names it.
        """
        named = [(device.gpu, device) for device in node.devices if device.uuid]
        taken = {str(device.index) for device in node.devices}
        for device in self.missing(node):
            named.append((device.uuid or "" if device.gpu in taken else device.gpu, device))
            taken.add(device.gpu)
        return named

    def health(self, device: DeviceReading, label: str) -> GpuHealth:
        """What is known of the GPU that a device is, or is part of."""
        uuid = device.gpu_uuid or ""
        said = device.health
        return GpuHealth(
            gpu=label if device.instance is None else str(device.index),
            lost=uuid in self._lost,
            ecc_uncorrected=said.ecc_uncorrected if said else None,
            row_remap_pending=said.row_remap_pending if said else None,
            row_remap_failure=said.row_remap_failure if said else None,
            xids={**(dict.fromkeys(GRAVE, 0) if device.events else {}), **self._xids.get(uuid, {})},
        )
