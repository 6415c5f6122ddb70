"""``python -m benchmarks.pools.fit``: the coefficients of ``agent/memory/probability.py``, from the tuning half.

Logistic regression by Newton's method on standardised features, with a ridge of 30 on all but the constant; a row for
each look of which it is known what followed. Pure Python: some ten minutes.
"""

import math
from collections.abc import Iterable, Iterator, Sequence

from agent.backtest.episodes import episodes_of
from agent.backtest.recordings import Recording
from agent.memory.exhaustion import exhaustion_of
from agent.memory.forecast import EVERY_SECONDS
from agent.memory.pool_state import PoolState
from agent.memory.probability import HORIZONS, NAMES, Features, features
from benchmarks.pools.__main__ import half

RIDGE = 30.0
ROUNDS = 12

Row = tuple[Features, float | None, float]  # features, seconds until the event (None: none came), seconds watched after
Labelled = list[tuple[Features, bool]]


def rows_of(recording: Recording) -> Iterator[Row]:
    """A row for each look at the recording's first episode."""
    means = exhaustion_of(recording.facts.engine, recording.facts.kind)
    first = episodes_of(recording.signals, live_gauges=means.live_gauges)[0]
    state, next_at = PoolState(recording.facts), 0.0
    for signal in recording.signals:
        if signal.at >= first.end:
            return
        state.add(signal)
        if signal.at < next_at:
            continue
        next_at = signal.at + EVERY_SECONDS
        known = state.evidence()
        if known is not None:
            left = first.end - signal.at
            yield features(known), left if first.event else None, left


def labelled(rows: Iterable[Row], horizon: float) -> Labelled:
    """What is known of each: whether the event came within the horizon."""
    return [
        (x, until is not None and until <= horizon)
        for x, until, watched in rows
        if until is not None or watched >= horizon
    ]


def fit(rows: Labelled, *, ridge: float = RIDGE) -> list[float]:
    """Constant and weights on the features as they are."""
    count, width = len(rows), len(rows[0][0])
    means = [sum(x[n] for x, _ in rows) / count for n in range(width)]
    spreads = [math.sqrt(sum((x[n] - means[n]) ** 2 for x, _ in rows) / count) + 1e-9 for n in range(width)]
    standard = [(1.0, *((x[n] - means[n]) / spreads[n] for n in range(width))) for x, _ in rows]
    weights = [0.0] * (width + 1)
    for _ in range(ROUNDS):
        gradient, curvature = _derivatives(standard, [y for _, y in rows], weights, ridge)
        step = solved(curvature, gradient)
        weights = [weight - one for weight, one in zip(weights, step, strict=True)]
        if max(map(abs, step)) < 1e-5:
            break
    plain = [weight / spread for weight, spread in zip(weights[1:], spreads, strict=True)]
    return [weights[0] - sum(map(float.__mul__, plain, means)), *plain]


def _derivatives(
    rows: Sequence[Sequence[float]], came: Sequence[bool], weights: Sequence[float], ridge: float
) -> tuple[list[float], list[list[float]]]:
    size = len(weights)
    pull = [0.0, *[ridge] * (size - 1)]
    gradient = [pull[n] * weights[n] for n in range(size)]
    curvature = [[pull[n] if n == m else 0.0 for m in range(size)] for n in range(size)]
    for x, y in zip(rows, came, strict=True):
        score = max(-30.0, min(30.0, sum(map(float.__mul__, weights, x))))
        chance = 1 / (1 + math.exp(-score))
        weight, error = chance * (1 - chance), chance - y
        for n in range(size):
            gradient[n] += error * x[n]
            scaled, row = weight * x[n], curvature[n]
            for m in range(n + 1):
                row[m] += scaled * x[m]
    for n in range(size):
        for m in range(n):
            curvature[m][n] = curvature[n][m]
    return gradient, curvature


def solved(matrix: list[list[float]], right: list[float]) -> list[float]:
    """The x of matrix x = right, by elimination; the matrix is symmetric and positive."""
    size = len(right)
    rows = [[*line, value] for line, value in zip(matrix, right, strict=True)]
    for n in range(size):
        for m in range(n + 1, size):
            factor = rows[m][n] / rows[n][n]
            for k in range(n, size + 1):
                rows[m][k] -= factor * rows[n][k]
    found = [0.0] * size
    for n in reversed(range(size)):
        known = sum(rows[n][k] * found[k] for k in range(n + 1, size))
        found[n] = (rows[n][size] - known) / rows[n][n]
    return found


def main() -> None:
    rows = [row for recording in half("tuning") for row in rows_of(recording)]
    for horizon in HORIZONS:
        constant, *weights = fit(labelled(rows, horizon))
        print(horizon, f"{constant:.4f}")
        for name, weight in zip(NAMES, weights, strict=True):
            print(f"  {weight:9.4f}  {name}")


if __name__ == "__main__":
    main()
