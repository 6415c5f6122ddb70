"""A budget's answer in one sentence, and words for what its tables are short about."""

from collections.abc import Iterator

from agent.memory.budget import Budget, RankBudget
from agent.memory.fitting import HEADROOM
from agent.memory.serving import TITLES
from agent.memory.units import GIB

_KINDS = {
    "dsa": "attends to tokens that an index picks",
    "csa": "keeps few tokens as one record, and an index over them",
    "hca": "keeps many tokens as one record",
    "uniform": "caches of different widths in one block table",
}


def verdict(budget: Budget) -> str:
    """Whether it fits, how narrowly, or why the engine would not start at all."""
    if budget.refused:
        title = _title(budget)
        reasons = "; ".join(text.removeprefix(f"{title} refuses ") for text in budget.refused)
        return f"{title} refuses these arguments: {reasons}"
    if budget.fits is None:
        return "Whether it fits is not known."
    if not budget.fits:
        return "It does not fit."
    ratios = [ratio for rank in budget.ranks if (ratio := headroom_ratio(rank, budget)) is not None]
    narrow = ratios and min(ratios) < HEADROOM
    text = f"It fits, with less than the usual {HEADROOM * 100:.0f} % headroom for temporaries" if narrow else "It fits"
    risk = "; it may not fit if the runtime is as high as it may be" if budget.fits_if_high is False else ""
    return f"{text}{risk}."


def headroom_ratio(rank: RankBudget, budget: Budget) -> float | None:
    """Headroom as a share of the device, whose size is NVML's where that is known."""
    total = budget.device.total_bytes or budget.device.cuda_bytes
    return rank.headroom_bytes / total if rank.headroom_bytes is not None and total else None


def headroom_text(rank: RankBudget, budget: Budget) -> str | None:
    """What headroom is, and of what its share; None where it is not known."""
    device = budget.device
    total, visible = device.total_bytes or device.cuda_bytes, device.visible_bytes
    if rank.headroom_bytes is None or rank.runtime is None or total is None or visible is None:
        return None
    share = "" if total == visible else f"; % of NVML's {total / GIB:,.2f} GiB"
    return f"headroom: {visible / GIB:,.2f} GiB - total + likely activations{share}"


def tightest(stages: list[RankBudget]) -> str | None:
    """The stage with the least headroom; None where there is but one stage, or headroom is not known."""
    known = [(rank.headroom_bytes, rank.pp_rank) for rank in stages if rank.headroom_bytes is not None]
    if len(stages) < 2 or len(known) < len(stages):
        return None
    least, stage = min(known)
    return f"tightest: stage {stage}, headroom {least / GIB:,.2f} GiB"


def alike(stages: list[RankBudget]) -> Iterator[list[RankBudget]]:
    """Neighbouring stages that need the same."""
    run: list[RankBudget] = []
    for rank in stages:
        if run and _needs(rank) != _needs(run[0]):
            yield run
            run = []
        run.append(rank)
    if run:
        yield run


def kinds_text(budget: Budget) -> Iterator[str]:
    """A line for each kind of layer or group whose name says little."""
    groups = {group.kind for rank in budget.ranks for group in rank.kv.groups}
    found = groups | {layers.kind for layers in budget.model.layers}
    for kind, text in _KINDS.items():
        if kind in found:
            yield f"{kind}: {text}"


def engine_text(budget: Budget) -> str:
    """The engine with the version whose rules are used; Ollama's are those of a build of llama.cpp."""
    values = budget.arguments
    version = f" {values['engine_version'].value}" if "engine_version" in values else ""
    if values["engine"].value == "ollama":
        return f"Ollama (llama.cpp{version})"
    return f"{_title(budget)}{version}"


def _title(budget: Budget) -> str:
    engine = str(budget.arguments["engine"].value)
    return TITLES.get(engine, engine)


def _needs(rank: RankBudget) -> tuple[object, ...]:
    return (rank.weights_bytes, rank.kv, rank.runtime, rank.total_bytes)
