"""How long answers get: the share that goes on past so many tokens, learnt from those that ended and those that run.

Kaplan-Meier over buckets that grow by half an octave, with the running requests as censored, and a weak prior
S0(a) = 1 / (1 + a / 300): risk of a bucket r = ended in it or later + running that are older - half of those inside;
hazard q = (ended in it + q0) / (r + 1). ln S is straight in ln a within a bucket (a constant hazard would kill the
young). What ended long ago counts half after 30 minutes.
"""

import math
from bisect import bisect_right

HALF_LIFE_SECONDS = 1800.0
EDGES: tuple[float, ...] = tuple(16.0 * 2 ** (n / 2) for n in range(27))  # 16 to 131072 tokens
_LOGS = tuple(math.log(edge) for edge in EDGES)
PRIOR_TOKENS = 300.0
SHORT_SHARE = 0.9
LEAST_ENDED = 20.0


def _prior(tokens: float) -> float:
    return 1.0 / (1.0 + tokens / PRIOR_TOKENS)


_PRIOR_HAZARDS = tuple(
    1 - _prior(after) / _prior(before) for before, after in zip((0.0, *EDGES[:-1]), EDGES, strict=True)
)


class Lengths:
    """Generated tokens of requests that ended, in O(1) memory."""

    def __init__(self) -> None:
        self._ended = [0.0] * (len(EDGES) + 1)
        self._faded_at: float | None = None
        self.ended = 0.0
        self.tokens = 0.0

    def add(self, at: float, *, requests: float, tokens: float) -> None:
        """Requests that ended by ``at`` with so many tokens together: one alone gives its exact length."""
        if requests <= 0 or tokens < 0:
            return
        self._fade(at)
        self._ended[bisect_right(EDGES, tokens / requests)] += requests
        self.ended += requests
        self.tokens += tokens

    def halve(self) -> None:
        """The same model was started anew: what was learnt counts half."""
        self._scale(0.5)

    @property
    def mean(self) -> float:
        """Mean tokens of those that ended, with one of 300 that is always there."""
        return (self.tokens + PRIOR_TOKENS) / (self.ended + 1.0)

    @property
    def short(self) -> float | None:
        """Tokens that nine in ten of those that ended stayed within; None of fewer than twenty, or beyond all edges."""
        if self.ended < LEAST_ENDED:
            return None
        so_far = 0.0
        for edge, count in zip(EDGES, self._ended, strict=False):
            so_far += count
            if so_far >= SHORT_SHARE * self.ended:
                return edge
        return None

    def survival(self, *, running: float, age: float) -> "Survival":
        """The curve, given that so many run at this mean age."""
        inside = bisect_right(EDGES, age)
        later = sum(self._ended)
        logs, share = [], 0.0
        for n, prior in enumerate(_PRIOR_HAZARDS):
            risk = later + (running if inside > n else running / 2 if inside == n else 0.0)
            share += math.log(max(1e-9, 1 - (self._ended[n] + prior) / (risk + 1)))
            logs.append(share)
            later -= self._ended[n]
        return Survival(logs)

    def _fade(self, at: float) -> None:
        if self._faded_at is not None and at > self._faded_at:
            self._scale(0.5 ** ((at - self._faded_at) / HALF_LIFE_SECONDS))
        self._faded_at = at

    def _scale(self, by: float) -> None:
        self._ended = [count * by for count in self._ended]
        self.ended *= by
        self.tokens *= by


class Survival:
    """S(a) by the logarithms of its values at ``EDGES``; beyond them it falls as 1 / a."""

    def __init__(self, logs: list[float]) -> None:
        self._logs = logs

    def __call__(self, tokens: float) -> float:
        return math.exp(self.log(tokens))

    def log(self, tokens: float) -> float:
        if tokens <= EDGES[0]:
            return self._logs[0] * max(0.0, tokens) / EDGES[0]
        here = math.log(tokens)
        n = bisect_right(_LOGS, here)
        if n == len(_LOGS):
            return self._logs[-1] - (here - _LOGS[-1])
        before, after = self._logs[n - 1], self._logs[n]
        return before + (after - before) * (here - _LOGS[n - 1]) / (_LOGS[n] - _LOGS[n - 1])
