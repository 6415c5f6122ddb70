"""What a forecast costs: taking a reading, and a look at a busy pool every five seconds."""

import time
from random import Random

from agent.memory.forecast import EVERY_SECONDS, PoolForecaster
from benchmarks.pools.episode import play
from benchmarks.pools.families import FAMILIES
from benchmarks.report import figure, p50, p99, section

FAMILY = "steady_high"


def forecasting() -> None:
    """At most 1 ms for each look at a server's pool; between looks only readings are taken."""
    section("a forecast of a pool that a hundred requests share")
    name = f"{FAMILY}:{3}"
    random = Random(name)
    episode = play(name, FAMILIES[FAMILY](random), random)
    forecaster = PoolForecaster(episode.facts)
    adds, looks, looked_at = [], [], float("-inf")
    for signal in episode.signals:
        began = time.perf_counter()
        forecaster.add(signal)
        added = time.perf_counter()
        forecaster.forecast(signal.at)
        adds.append(added - began)
        if signal.at >= looked_at + EVERY_SECONDS:
            looks.append(time.perf_counter() - added)
            looked_at = signal.at
    figure("take a reading (p50)", 1e6 * p50(adds), "us")
    figure("  of those that close ten seconds (p99)", 1e6 * p99(adds), "us")
    figure("a look (p50)", 1e3 * p50(looks), "ms", at_most=1)
    figure("  p99", 1e3 * p99(looks), "ms")


if __name__ == "__main__":
    forecasting()
