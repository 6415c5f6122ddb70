"""GPUs by name: NVML total and what the driver reserves of it, from published `nvidia-smi -q` dumps and load logs.

What the driver reserves depends on its version and module, so the CUDA total of a row holds to a few hundred MiB; a
live reading is always better. MiB as printed: totals are whole MiB, reserved is rounded up.
"""

import difflib
import re

from msgspec import Struct

from agent.memory.budget import Device
from agent.memory.units import GIB, MIB, shown


class Gpu(Struct, frozen=True, kw_only=True):
    """One product. ``reserved_mib`` is None where no dump shows it; ``total_mib`` where NVML does not tell it.

    ``cuda_kib``: what CUDA sees, where that is known by itself.
    """

    name: str
    aliases: tuple[str, ...]
    total_mib: int | None
    reserved_mib: int | None
    source: str
    cuda_kib: int | None = None

    @property
    def device(self) -> Device:
        total = None if self.total_mib is None else self.total_mib * MIB
        if self.cuda_kib is not None:
            return Device(name=self.name, total_bytes=total, cuda_bytes=self.cuda_kib * 1024)
        known = total is not None and self.reserved_mib is not None
        return Device(
            name=self.name,
            total_bytes=total,
            cuda_bytes=(total or 0) - (self.reserved_mib or 0) * MIB if known else None,
        )


def _gpu(
    name: str, aliases: str, total_mib: int | None, reserved_mib: int | None, source: str, cuda_kib: int | None = None
) -> Gpu:
    return Gpu(
        name=name,
        aliases=tuple(aliases.split()),
        total_mib=total_mib,
        reserved_mib=reserved_mib,
        source=source,
        cuda_kib=cuda_kib,
    )


_DUMP = "nvidia-smi -q dump, driver "
_MIG = "nvidia-smi of a MIG instance: nothing is reserved on one"
GPUS: tuple[Gpu, ...] = (
    _gpu("NVIDIA H200", "h200 h200sxm", 143771, 614, _DUMP + "590.48.01"),
    _gpu("NVIDIA H100 80GB HBM3", "h100 h100sxm h10080gb", 81559, 479, _DUMP + "590.48.01"),
    _gpu("NVIDIA H100 NVL", "h100nvl", 95830, 594, _DUMP + "550.54.14"),
    _gpu("NVIDIA H200 NVL", "h200nvl", 143771, None, "reported total"),
    _gpu("NVIDIA H800", "h800", 81559, 516, "reported, driver 525.105.17, ECC off"),
    _gpu("NVIDIA H20", "h20", 97871, None, "reported total"),
    _gpu("NVIDIA H20-3e", "h203e", 143771, None, "reported total"),
    _gpu("NVIDIA GH200 480GB", "gh200", 97871, 1103, _DUMP + "550.127.05"),
    _gpu("NVIDIA B200", "b200", 183359, 729, "reported: CUDA shows 178.35 GiB"),
    _gpu("NVIDIA B300 SXM6", "b300", 275040, None, "reported total"),
    _gpu("NVIDIA GB200", "gb200", 189471, None, "reported total"),
    _gpu("NVIDIA GB10", "gb10 dgxspark spark", None, None, "MemTotal of a DGX Spark; NVML has no total", 127600748),
    _gpu("NVIDIA A100-SXM4-80GB", "a100 a10080gb a100sxm480gb a100sxm", 81920, 763, _DUMP + "555.42.02"),
    _gpu("NVIDIA A100-SXM4-40GB", "a10040gb", 40960, 520, "reported: 420 to 620 MiB reserved"),
    _gpu("NVIDIA A40", "a40", 46068, 665, _DUMP + "550.127.05"),
    _gpu("NVIDIA A30", "a30", 24576, None, "reported total"),
    _gpu("NVIDIA A10", "a10", 23028, 526, _DUMP + "550.90.12"),
    _gpu("NVIDIA A10G", "a10g", 23028, 435, _DUMP + "515.105.01"),
    _gpu("NVIDIA L40S", "l40s", 46068, 479, _DUMP + "550.127.05"),
    _gpu("NVIDIA L20", "l20", 46068, None, "reported total"),
    _gpu("NVIDIA L4", "l4", 23034, 556, _DUMP + "550.90.07"),
    _gpu("NVIDIA RTX A6000", "a6000", 46068, 450, _DUMP + "550.127.05, ECC on"),
    _gpu("NVIDIA RTX 6000 Ada Generation", "rtx6000ada", 49140, 500, _DUMP + "550.127.05, ECC off"),
    _gpu("NVIDIA RTX 4000 Ada Generation", "rtx4000ada", 20475, 329, _DUMP + "550.90.07"),
    _gpu("NVIDIA RTX 2000 Ada Generation", "rtx2000ada", 16380, 304, _DUMP + "550.54.15"),
    _gpu("NVIDIA RTX PRO 6000 Blackwell", "rtxpro6000 pro6000", 97887, 638, "reported: CUDA shows 94.97 GiB"),
    _gpu("NVIDIA GeForce RTX 5090", "rtx5090 5090", 32607, 487, _DUMP + "570.124.06"),
    _gpu("NVIDIA GeForce RTX 4090", "rtx4090 4090", 24564, 354, _DUMP + "550.127.05"),
    _gpu("NVIDIA GeForce RTX 4080 SUPER", "rtx4080super 4080super", 16376, 434, _DUMP + "595.71.05"),
    _gpu("NVIDIA GeForce RTX 4060 Ti 16GB", "rtx4060ti16gb 4060ti16gb", 16380, 303, _DUMP + "550.54.14"),
    _gpu("NVIDIA GeForce RTX 3090", "rtx3090 3090", 24576, 422, _DUMP + "560.35.03"),
    _gpu("NVIDIA GeForce RTX 3080 10GB", "rtx308010gb rtx3080 3080", 10240, 397, _DUMP + "595.58.03"),
    _gpu("NVIDIA GeForce RTX 3070", "rtx3070 3070", 8192, 227, _DUMP + "550.54.14"),
    _gpu("NVIDIA GeForce RTX 3060", "rtx3060 3060", 12288, 368, _DUMP + "570.124.04"),
    _gpu("NVIDIA GeForce RTX 2080 SUPER", "rtx2080super 2080super", 8192, 408, _DUMP + "595.71.05"),
    _gpu("Tesla V100-SXM2-16GB", "v100 v10016gb", 16384, 240, _DUMP + "550.127.05"),
    _gpu("Tesla T4", "t4", 15360, 388, _DUMP + "515.105.01"),
    _gpu("NVIDIA H200 MIG 3g.71gb", "h2003g71gb", 71424, 0, _MIG),
    _gpu("NVIDIA H200 MIG 2g.35gb", "h2002g35gb", 33280, 0, _MIG),
    _gpu("NVIDIA H200 MIG 1g.18gb", "h2001g18gb", 16384, 0, _MIG),
    _gpu("NVIDIA H100 MIG 3g.40gb", "h1003g40gb", 40448, 0, _MIG),
    _gpu("NVIDIA H100 MIG 2g.20gb", "h1002g20gb", 20096, 0, _MIG),
    _gpu("NVIDIA H100 MIG 1g.10gb", "h1001g10gb", 9984, 0, _MIG),
    _gpu("NVIDIA A100 MIG 2g.20gb", "a1002g20gb", 19968, 0, _MIG),
)
MAX_GPUS = 1024
_TIMES = (
    re.compile(r"(?P<count>\d{1,6}) ?[x*] ?(?P<name>.+)", re.A | re.I),
    re.compile(r"(?P<name>.+?) ?[x*] ?(?P<count>\d{1,6})", re.A | re.I),
)


def find_gpu(text: str) -> Device:
    """A device by product name or alias, or by its NVML total in bytes, GiB or MiB (its CUDA total is then not known).

    Raises:
        ValueError: neither; the sentence lists close names.
    """
    found = _found(text)
    if found is not None:
        return found
    if re.fullmatch(r"[\d.]+ ?[gmt]b?", text.strip(), re.A | re.I):
        raise ValueError(
            f"{shown(text)} is a size as GPUs are sold; give the GPU's name, or its NVML total in bytes or like 80GiB"
        )
    names = _names()
    close = dict.fromkeys(names[name].name for name in difflib.get_close_matches(_plain(text), names, n=4, cutoff=0.5))
    known = ", ".join(gpu.aliases[0] for gpu in GPUS if gpu.source != _MIG)
    listed = f"close names: {', '.join(close)}" if close else f"known names: {known}"
    raise ValueError(f"unknown GPU {shown(text)}; {listed}; or give its NVML total in bytes")


def find_gpus(text: str) -> tuple[Device, int]:
    """A device and how many of it: ``h100x8``, ``8xh100``, ``85520809984x8``, or one by its name alone.

    Raises:
        ValueError: an unknown device, or not 1 to 1024 of it.
    """
    found = _found(text)
    if found is not None:
        return found, 1
    matches = [match for pattern in _TIMES if (match := pattern.fullmatch(text.strip()))]
    match = next((match for match in matches if _found(match["name"])), None)
    if match is None:
        return find_gpu(matches[-1]["name"] if matches else text), 1
    count = int(match["count"])
    if not 1 <= count <= MAX_GPUS:
        raise ValueError(f"expected 1 to {MAX_GPUS} GPUs, got {shown(text)}")
    return find_gpu(match["name"]), count


def _found(text: str) -> Device | None:
    if re.fullmatch(r"\d{1,18}", text, re.ASCII) and int(text) >= MIB:
        return Device(total_bytes=int(text))
    if size := re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?) ?([GM])iB", text.strip(), re.A | re.I):
        total = int(float(size[1]) * (GIB if size[2] in "gG" else MIB))
        return Device(total_bytes=total) if total >= MIB else None
    gpu = _names().get(_plain(text))
    return gpu.device if gpu else None


def _names() -> dict[str, Gpu]:
    return {alias: gpu for gpu in GPUS for alias in (*gpu.aliases, _plain(gpu.name))}


def _plain(name: str) -> str:
    text = re.sub(r"[^a-z0-9]", "", name.lower())
    for prefix in ("nvidia", "geforce", "tesla"):
        text = text.removeprefix(prefix)
    return text.replace("mig", "")
