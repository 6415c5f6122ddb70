"""GPUs by name: NVML total and what the driver reserves of it, from published `nvidia-smi -q` dumps and load logs.

What the driver reserves depends on its version and module, so the CUDA total of a row holds to a few hundred MiB; a
live reading is always better. MiB as printed: totals are whole MiB, reserved is rounded up.
"""

import difflib
import re

from msgspec import Struct

from agent.memory.budget import Device
from agent.memory.units import MIB, shown


class Gpu(Struct, frozen=True, kw_only=True):
    """One product. ``reserved_mib`` is None where no dump shows it."""

    name: str
    aliases: tuple[str, ...]
    total_mib: int
    reserved_mib: int | None
    source: str


def _gpu(name: str, aliases: str, total_mib: int, reserved_mib: int | None, source: str) -> Gpu:
    return Gpu(name=name, aliases=tuple(aliases.split()), total_mib=total_mib, reserved_mib=reserved_mib, source=source)


_DUMP = "nvidia-smi -q dump, driver "
GPUS: tuple[Gpu, ...] = (
    _gpu("NVIDIA H200", "h200 h200sxm", 143771, 614, _DUMP + "590.48.01"),
    _gpu("NVIDIA H100 80GB HBM3", "h100 h100sxm h10080gb", 81559, 479, _DUMP + "590.48.01"),
    _gpu("NVIDIA H100 NVL", "h100nvl", 95830, 594, _DUMP + "550.54.14"),
    _gpu("NVIDIA H800", "h800", 81559, 516, "reported, driver 525.105.17"),
    _gpu("NVIDIA H20", "h20", 97871, None, "reported total"),
    _gpu("NVIDIA GH200 480GB", "gh200", 97871, 1103, _DUMP + "550.127.05"),
    _gpu("NVIDIA B200", "b200", 183359, 729, "reported: CUDA shows 178.35 GiB"),
    _gpu("NVIDIA B300 SXM6", "b300", 275040, None, "reported total"),
    _gpu("NVIDIA GB200", "gb200", 189471, None, "reported total"),
    _gpu("NVIDIA A100-SXM4-80GB", "a100 a10080gb a100sxm480gb a100sxm", 81920, 763, _DUMP + "555.42.02"),
    _gpu("NVIDIA A100-SXM4-40GB", "a10040gb", 40960, 520, "reported: 420 to 620 MiB reserved"),
    _gpu("NVIDIA A40", "a40", 46068, 665, _DUMP + "550.127.05"),
    _gpu("NVIDIA A30", "a30", 24576, None, "reported total"),
    _gpu("NVIDIA A10", "a10 a10g", 23028, 526, _DUMP + "550.90.12"),
    _gpu("NVIDIA L40S", "l40s", 46068, 479, _DUMP + "550.127.05"),
    _gpu("NVIDIA L20", "l20", 46068, None, "reported total"),
    _gpu("NVIDIA L4", "l4", 23034, 556, _DUMP + "550.90.07"),
    _gpu("NVIDIA RTX A6000", "a6000", 46068, 450, _DUMP + "550.127.05, ECC on"),
    _gpu("NVIDIA RTX 6000 Ada Generation", "rtx6000ada", 49140, 500, _DUMP + "550.127.05, ECC off"),
    _gpu("NVIDIA RTX PRO 6000 Blackwell", "rtxpro6000 pro6000", 97887, 638, "reported: CUDA shows 94.97 GiB"),
    _gpu("NVIDIA GeForce RTX 5090", "rtx5090 5090", 32607, 487, _DUMP + "570.124.06"),
    _gpu("NVIDIA GeForce RTX 4090", "rtx4090 4090", 24564, 354, _DUMP + "550.127.05"),
    _gpu("NVIDIA GeForce RTX 3090", "rtx3090 3090", 24576, 422, _DUMP + "560.35.03"),
    _gpu("NVIDIA GeForce RTX 3060", "rtx3060 3060", 12288, 368, _DUMP + "570.124.04"),
    _gpu("Tesla V100-SXM2-16GB", "v100 v10016gb", 16384, 240, _DUMP + "550.127.05"),
    _gpu("Tesla T4", "t4", 15360, 388, _DUMP + "515.105.01"),
)


def find_gpu(text: str) -> Device:
    """A device by product name or alias, or by its NVML total in bytes (its CUDA total is then not known).

    Raises:
        ValueError: neither; the sentence lists close names.
    """
    if re.fullmatch(r"\d{1,18}", text, re.ASCII) and int(text) >= MIB:
        return Device(total_bytes=int(text))
    names = {alias: gpu for gpu in GPUS for alias in (*gpu.aliases, _plain(gpu.name))}
    found = names.get(_plain(text))
    if found is None:
        close = dict.fromkeys(
            names[name].name for name in difflib.get_close_matches(_plain(text), names, n=4, cutoff=0.5)
        )
        listed = (
            f"close names: {', '.join(close)}" if close else f"known names: {', '.join(gpu.aliases[0] for gpu in GPUS)}"
        )
        raise ValueError(f"unknown GPU {shown(text)}; {listed}; or give its NVML total in bytes")
    total = found.total_mib * MIB
    reserved = None if found.reserved_mib is None else found.reserved_mib * MIB
    return Device(name=found.name, total_bytes=total, cuda_bytes=None if reserved is None else total - reserved)


def _plain(name: str) -> str:
    text = re.sub(r"[^a-z0-9]", "", name.lower())
    for prefix in ("nvidia", "geforce", "tesla"):
        text = text.removeprefix(prefix)
    return text
