"""How likely a pool runs out within 2 and 5 minutes: a logistic map of what is known of it.

P = 1 / (1 + exp(-(c0 + sum of c x))), x as in ``features``. The coefficients were fitted on the tuning half of
simulated episodes (docs/forecast.md has the split and the reliability table); they change with VERSION.
"""

import math

from agent.memory.pool_state import Evidence

VERSION = 1
HORIZONS = (120, 300)

Features = tuple[float, ...]
NAMES = (
    "used",
    "used above 0.85",
    "slope over its error",
    "room over swings of 5 minutes",
    "admitted demand",
    "admitted demand above 0.9",
    "demand over its error",
    "minutes known",
    "tokens decoded in 5 minutes",
    "running of the sequence limit",
    "arrivals over those before",
    "reserves",
    "time limited by room",
    "1 / sqrt(running)",
)


def features(known: Evidence) -> Features:
    """Bounded, and shares of the pool wherever they are tokens."""
    used, slope, running = known.used, known.slope, known.running
    drift = _between(150 * slope, -0.3, 0.3)
    room = min(4.0, (1 - used - drift) / (known.swing * math.sqrt(30) + 0.01))
    error = _between(slope / max(known.slope_sd, 2e-5), -10, 10) / 10
    common = (used, max(0.0, used - 0.85), error, room)
    if running is None or not known.demands:
        return (*common, 0.0, 0.0, -5.0, known.minutes / 30, 0.0, 0.0, 0.0, float(known.reserves), 0.0, 1.0)
    capacity = known.capacity
    admitted = _between(max(one.admitted for one in known.demands) / capacity, 0, 2.5)
    score = max((one.mean - capacity) / one.sd for one in known.demands)
    return (
        *common,
        admitted,
        max(0.0, admitted - 0.9),
        _between(score, -5, 5),
        known.minutes / 30,
        _between(300 * running.count * running.speed * running.growth_share / capacity, 0, 3),
        running.count / running.cap if running.cap else 0.0,
        _between(math.log((running.arrivals + 0.02) / (running.arrivals_before + 0.02)), -2, 2),
        float(known.reserves),
        math.log1p(running.limited_seconds) / 6,
        1 / math.sqrt(max(1, running.count)),
    )


def probability(x: Features, horizon: int) -> float:
    """The share of moments like this one that are followed by exhaustion within 120 or 300 s."""
    constant, *weights = COEFFICIENTS[horizon]
    return 1 / (1 + math.exp(-_between(constant + sum(map(float.__mul__, weights, x)), -30, 30)))


def _between(value: float, low: float, high: float) -> float:
    return min(high, max(low, value))


COEFFICIENTS: dict[int, tuple[float, ...]] = {  # the constant, then by NAMES
    120: (
        *(-8.3727, 7.0966, 6.8178, -0.6491, -0.9475, 0.9367, -3.9644, 0.0233),
        *(-0.6354, 0.3996, -1.0741, 0.9821, 0.4844, -2.0697, 5.4203),
    ),
    300: (
        *(-4.9339, 4.7663, 8.8319, -0.0486, -0.4055, 0.5949, -5.0079, 0.0477),
        *(-0.8445, 0.3199, -1.0781, 0.9524, -0.1108, -1.9215, 3.0387),
    ),
}
