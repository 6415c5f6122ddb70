"""A level of risk in words, the same wherever a terminal shows it: for a row, as a sentence, and what is to be done."""

from collections.abc import Callable

from agent.memory.levels import Level
from agent.memory.risk import Reason, Risk
from agent.memory.units import duration_text, size_text

REASONS: dict[Reason, tuple[str, str]] = {
    "pool_exhaustion": ("pool fills", "pool filled"),
    "preemption_storm": ("preempts", "preempted"),
    "no_transient_room": ("no room", "had no room"),
    "low_headroom": ("headroom", "headroom"),
    "device_creep": ("creeps", "crept"),
    "budget_mismatch": ("off budget", "off budget"),
    "foreign_process": ("other process", "other process"),
    "hidden_memory": ("hidden memory", "hidden memory"),
    "fragmentation": ("fragments", "fragmented"),
    "sleep_residue": ("residue", "residue"),
    "restart_loop": ("restarts", "restarted"),
    "host_memory": ("host memory", "host memory"),
    "hardware": ("hardware", "hardware"),
    "blind": ("not read", "was not read"),
}
"""Of what is so now, and of what was so and is only held."""
PAGES: dict[Reason, str] = {
    "pool_exhaustion": "kv-pool-exhausting",
    "preemption_storm": "preemption-storm",
    "no_transient_room": "no-transient-room",
    "low_headroom": "headroom-low",
    "device_creep": "device-creep",
    "budget_mismatch": "budget-deviation",
    "foreign_process": "foreign-process",
    "hidden_memory": "hidden-memory",
    "fragmentation": "fragmentation-high",
    "sleep_residue": "sleep-residue",
    "restart_loop": "restarted-after-memory-signs",
    "host_memory": "unified-memory-pressure",
    "hardware": "device-memory-errors",
    "blind": "server-blind",
}
DOWN_PAGE = "server-down"
_UNITS: dict[str, Callable[[float], str]] = {
    "bytes_per_hour": lambda value: f"{size_text(round(value))} an hour",
    "bytes": lambda value: size_text(round(value)),
    "ratio": lambda value: f"{value:.1%}",
    "seconds": duration_text,
    "2min": lambda value: f"{value:.0%} within 2 min",
    "5min": lambda value: f"{value:.0%} within 5 min",
}


def level_text(level: Level) -> str:
    return level.replace("_", " ")


def short(risk: Risk) -> str:
    """For a row: level and reason, or what is only held."""
    if risk.reason is None:
        return level_text(risk.level)
    now, past = REASONS[risk.reason]
    return f"{level_text(risk.level)} {now}" if risk.held_seconds is None else f"held: {past}"


def sentence(risk: Risk | None, *, numbers: bool) -> str | None:
    """Each level with its reason, of what is only held when it was so, with ``numbers`` those behind the gravest."""
    if risk is None or risk.reason is None:
        return None
    held = {risk.reason: risk.held_seconds, **risk.also_held_seconds}
    first, *others = (_said(reason, level, held.get(reason)) for reason, level in risk.levels.items())
    behind = _behind(risk) if numbers else ""
    return "; ".join([f"risk: {first}{behind}", *others])


def what_to_do(risk: Risk | None, *, is_down: bool = False) -> str | None:
    """Where that stands."""
    pages = [DOWN_PAGE] if is_down else []
    if risk is not None and risk.reason is not None and (risk.reason != "blind" or not is_down):
        pages.append(PAGES[risk.reason])
    return f"what to do: {', '.join(f'docs/runbooks/{page}.md' for page in pages)}" if pages else None


def _said(reason: Reason, level: Level, held_seconds: float | None) -> str:
    now, past = REASONS[reason]
    if held_seconds is None:
        return f"{level_text(level)} {now}"
    return f"held: {level_text(level)} {past}, {duration_text(held_seconds)} ago"


def _behind(risk: Risk) -> str:
    """Numbers, and of what is held whether they are of then or of now, when the chance of it says nothing."""
    held, age = risk.held_seconds, risk.numbers_age_seconds
    shown = {name: value for name, value in risk.numbers.items() if held is None or not name.startswith("probability")}
    if not shown:
        return ""
    figures = ", ".join(_number(name, value) for name, value in shown.items())
    if held is None:
        return f" ({figures})"
    when = "with" if age > held - 1 else f"{duration_text(age)} ago" if age > 0 else "now"
    return f" ({when} {figures})"


def _number(name: str, value: float) -> str:
    """A number of a risk, in the unit that its name ends with."""
    unit = next((unit for unit in _UNITS if name.endswith(unit)), "")
    text = _UNITS[unit](value) if unit else f"{value:,.4g}"
    return f"{name.removesuffix(unit).replace('_', ' ').strip()} {text}".lstrip()
