"""Figures of a forecaster over many episodes; the definitions were fixed before anything was tuned.

Horizon 300 s, least lead 10 s, grace 600 s:
* recall: of the events, those with an alarm on at some moment 10 to 300 s before.
* precision: of the alarms, those that began at most 600 s before an event and ended at most 300 s before it. With near
  misses: or after whose beginning use came to 0.95 within 300 s. Alarms that began in the last 600 s of an episode
  without event are open: they count in neither.
* lead: event - beginning of the alarm that was on.
* alarm time without event: seconds of alarm with no event in the next 300 s, near misses included, per hour watched.
* flaps: alarms that begin less than a minute after one ended.
* Brier score: mean of (P - happened)^2, beside that of always saying how often it happens.
"""

import itertools
import math
from collections.abc import Sequence
from statistics import median

from msgspec import Struct

from agent.backtest.episodes import Episode
from agent.backtest.forecasters import Look

HORIZON = 300.0
LEAST_LEAD = 10.0
GRACE = 600.0
FLAP_SECONDS = 60.0
BINS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)

Alarm = tuple[float, float]


class Caught(Struct, frozen=True, kw_only=True):
    """One event: whether there was an alarm in time, and since how long."""

    kind: str
    rise_seconds: float
    lead_seconds: float | None


class Tally(Struct, kw_only=True):
    """Counts that add up over episodes."""

    events: list[Caught] = []
    alarms: int = 0
    open_alarms: int = 0
    right: int = 0
    judged_near: int = 0
    right_or_near: int = 0
    false_seconds: float = 0.0
    seconds: float = 0.0
    flaps: int = 0
    said: dict[int, list[tuple[float, bool]]] = {}


class Share(Struct, frozen=True, kw_only=True):
    """A share with its 95 % interval (Wilson)."""

    of: int
    value: float | None
    low: float | None
    high: float | None


class Calibration(Struct, frozen=True, kw_only=True):
    """Brier score beside climatology's; ``reliability``: (said on average, came true, looks), by what was said."""

    horizon_seconds: int
    looks: int
    brier: float
    climatology: float
    gain: float
    reliability: tuple[tuple[float, float, int], ...]


class Score(Struct, frozen=True, kw_only=True):
    """What a forecaster is worth; None where there is nothing to tell it from."""

    recall: Share
    recall_by_kind: dict[str, Share]
    recall_by_rise: dict[str, Share]
    precision: Share
    precision_near: Share
    open_alarms: int
    lead_seconds: float | None
    slow_lead_seconds: float | None
    false_seconds_per_hour: float
    alarms_per_hour: float
    flaps: int
    calibration: tuple[Calibration, ...]


def alarms_of(looks: Sequence[Look], begin: float, end: float) -> list[Alarm]:
    """Spans of alarm within an episode; one is on from the look that raised it to the one that cleared it."""
    found: list[Alarm] = []
    on: float | None = None
    for look in looks:
        if look.at >= end:
            break
        if look.at < begin:
            continue
        if look.alarm and on is None:
            on = look.at
        elif not look.alarm and on is not None:
            found.append((on, look.at))
            on = None
    return [*found, (on, end)] if on is not None else found


def add(tally: Tally, episode: Episode, looks: Sequence[Look]) -> None:
    """Add what a forecaster said in one episode."""
    alarms = alarms_of(looks, episode.begin, episode.end)
    tally.seconds += episode.end - episode.begin
    quiet_until = episode.end - HORIZON if episode.event else episode.end
    for number, (on, off) in enumerate(alarms):
        _judge(tally, episode, on, off)
        tally.false_seconds += max(0.0, min(off, quiet_until) - on)
        tally.flaps += number > 0 and on - alarms[number - 1][1] < FLAP_SECONDS
    if episode.event:
        tally.events.append(_caught(episode, alarms))
    _keep_said(tally, episode, looks)


def _judge(tally: Tally, episode: Episode, on: float, off: float) -> None:
    right = episode.event and episode.end - on <= GRACE and episode.end - off <= HORIZON
    near = right or any(on <= at <= on + HORIZON for at in episode.near)
    is_open = not episode.event and episode.end - on < GRACE
    tally.open_alarms += is_open
    tally.alarms += not is_open
    tally.right += right
    tally.judged_near += not is_open or near
    tally.right_or_near += near


def _caught(episode: Episode, alarms: Sequence[Alarm]) -> Caught:
    inside = [on for on, off in alarms if on <= episode.end - LEAST_LEAD and off >= episode.end - HORIZON]
    lead = episode.end - inside[-1] if inside else None
    return Caught(kind=episode.kind or "jump", rise_seconds=episode.rise_seconds, lead_seconds=lead)


def _keep_said(tally: Tally, episode: Episode, looks: Sequence[Look]) -> None:
    for look in looks:
        if not episode.begin <= look.at < episode.end:
            continue
        for horizon, said in ((120, look.probability_2min), (300, look.probability_5min)):
            left = episode.end - look.at
            if said is not None and (episode.event or left >= horizon):
                tally.said.setdefault(horizon, []).append((said, episode.event and left <= horizon))


def score(tally: Tally) -> Score:
    """The figures of what was added."""
    hits = [one for one in tally.events if one.lead_seconds is not None]
    hours = max(tally.seconds, 1.0) / 3600
    return Score(
        recall=share(len(hits), len(tally.events)),
        recall_by_kind={
            kind: _recall([one for one in tally.events if one.kind == kind])
            for kind in ("foreseeable", "jump", "unseen")
        },
        recall_by_rise={
            f"over {least} s": _recall([one for one in tally.events if one.rise_seconds > least])
            for least in (30, 60, 120)
        },
        precision=share(tally.right, tally.alarms),
        precision_near=share(tally.right_or_near, tally.judged_near),
        open_alarms=tally.open_alarms,
        lead_seconds=_middle(hits),
        slow_lead_seconds=_middle([one for one in hits if one.rise_seconds > 120]),
        false_seconds_per_hour=tally.false_seconds / hours,
        alarms_per_hour=(tally.alarms + tally.open_alarms) / hours,
        flaps=tally.flaps,
        calibration=tuple(_calibration(horizon, said) for horizon, said in sorted(tally.said.items())),
    )


def share(part: int, whole: int) -> Share:
    """Wilson's interval: (p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n), z = 1.96."""
    if whole == 0:
        return Share(of=0, value=None, low=None, high=None)
    p, z = part / whole, 1.96
    middle, wide = p + z * z / (2 * whole), z * math.sqrt(p * (1 - p) / whole + z * z / (4 * whole * whole))
    scale = 1 + z * z / whole
    return Share(of=whole, value=p, low=max(0.0, (middle - wide) / scale), high=min(1.0, (middle + wide) / scale))


def _recall(events: Sequence[Caught]) -> Share:
    return share(sum(one.lead_seconds is not None for one in events), len(events))


def _middle(hits: Sequence[Caught]) -> float | None:
    return median(one.lead_seconds for one in hits if one.lead_seconds is not None) if hits else None


def _calibration(horizon: int, said: Sequence[tuple[float, bool]]) -> Calibration:
    rate = sum(came for _, came in said) / len(said)
    brier = sum((p - came) ** 2 for p, came in said) / len(said)
    usual = rate * (1 - rate)
    rows = []
    for low, high in itertools.pairwise(BINS):
        inside = [(p, came) for p, came in said if low <= p < high or (p == 1.0 == high)]
        if inside:
            count = len(inside)
            rows.append((sum(p for p, _ in inside) / count, sum(came for _, came in inside) / count, count))
    return Calibration(
        horizon_seconds=horizon,
        looks=len(said),
        brier=brier,
        climatology=usual,
        gain=1 - brier / usual if usual else 0.0,
        reliability=tuple(rows),
    )
