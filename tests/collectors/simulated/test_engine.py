"""The small scheduler: who gets blocks, who has to go, and how that shows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.simulated.engine import Engine, Request

STEP = 0.1


def engine(*, blocks: int, max_num_seqs: int = 64, rate: float = 100.0) -> Engine:
    """An engine with blocks of 16 tokens that gives each request ``rate`` tokens a second."""
    return Engine(
        blocks=blocks,
        block_size=16,
        max_model_len=1600,
        max_num_seqs=max_num_seqs,
        decode_rate=rate,
        prefill_rate=100_000.0,
    )


def request(prompt: int, output: int) -> Request:
    return Request(prompt_tokens=prompt, output_tokens=output, arrived_at=0.0)


def run(subject: Engine, seconds: float) -> None:
    for step in range(round(seconds / STEP)):
        subject.step((step + 1) * STEP, STEP)


def held_by_running(subject: Engine) -> int:
    return sum(-(-one.tokens // 16) for one in subject.running)


def test_usage_leaves_the_null_block_out() -> None:
    """One of 101 blocks is never handed out: 50 held are half of the pool."""
    subject = engine(blocks=101)
    subject.submit(request(800, 100))

    subject.step(STEP, STEP)

    assert (subject.used_blocks, subject.usage) == (50, 0.5)


def test_counters_move_while_requests_run() -> None:
    """Prompt tokens when the prompt is computed, generated tokens at every step; the histograms at the end."""
    subject = engine(blocks=101)
    subject.submit(request(64, 100))

    run(subject, 0.6)
    during = (subject.counters.prompt_tokens, subject.counters.generation_tokens, subject.counters.finished)
    run(subject, 1.0)

    assert during == (64, 50, 0)
    assert (subject.counters.generation_tokens, subject.counters.finished) == (100, 1)
    assert subject.counters.request_generation_tokens.sum == 100
    assert subject.used_blocks == 0


def test_a_lone_request_is_never_preempted() -> None:
    """Alone even the longest request fits: a server does not start with a smaller pool."""
    subject = engine(blocks=102)
    subject.submit(request(600, 1000))

    run(subject, 11)

    assert subject.counters.finished == 1
    assert subject.counters.preemptions == 0


def test_the_request_admitted_last_is_evicted_and_counted_only_when_it_comes_back() -> None:
    """Running falls, waiting rises, usage drops at once; the counter steps when it is scheduled again."""
    subject = engine(blocks=50)  # 49 usable: three requests of 200 tokens hold 39
    first, second, third = (request(200, tokens) for tokens in (200, 100, 400))
    for one in (first, second, third):
        subject.submit(one)

    before = 0.0
    while len(subject.running) != 2 or not subject.waiting:
        before = subject.usage
        subject.step(STEP, STEP)

    assert subject.running == [first, second]
    assert list(subject.waiting) == [third]
    assert subject.counters.preemptions == 0
    assert subject.usage < before - 0.2
    assert third.generated_tokens > 0

    while third not in subject.running:
        subject.step(STEP, STEP)

    assert second not in subject.running
    assert subject.counters.preemptions == 1
    assert subject.counters.prompt_tokens == 600  # computed anew, not counted anew

    run(subject, 10)

    assert subject.counters.generation_tokens == 700
    assert subject.counters.request_preemptions.sum == 1


def test_the_evicted_go_to_the_head_of_the_queue() -> None:
    """Who was evicted comes before those who never ran."""
    subject = engine(blocks=42)
    running = [request(200, 400) for _ in range(3)]
    late = request(160, 10)
    for one in (*running, late):
        subject.submit(one)

    run(subject, 0.5)

    assert list(subject.waiting) == [running[2], late]


def test_no_more_run_than_the_server_allows() -> None:
    """The rest waits although there are blocks."""
    subject = engine(blocks=102, max_num_seqs=2)
    for _ in range(5):
        subject.submit(request(16, 400))

    subject.step(STEP, STEP)

    assert (len(subject.running), len(subject.waiting)) == (2, 3)


@pytest.mark.parametrize("rate", [7.0, 100.0, 333.0])
def test_tokens_come_at_the_stated_rate(rate: float) -> None:
    """Fractions of a token are kept from step to step."""
    subject = engine(blocks=102, rate=rate)
    subject.submit(request(16, 1500))

    run(subject, 4.1)

    assert subject.counters.generation_tokens == pytest.approx(rate * 4, abs=rate * STEP + 1)


@given(
    blocks=st.integers(min_value=101, max_value=140),
    sizes=st.lists(st.tuples(st.integers(1, 800), st.integers(1, 800)), min_size=1, max_size=12),
)
def test_blocks_and_tokens_are_conserved(blocks: int, sizes: list[tuple[int, int]]) -> None:
    """At every step: blocks handed out are those running requests fill, and tokens counted are those they hold."""
    subject = engine(blocks=blocks)
    for prompt, output in sizes:
        subject.submit(request(prompt, output))

    for step in range(3000):
        subject.step(step * STEP, STEP)
        everyone = [*subject.running, *subject.waiting]
        assert subject.used_blocks == held_by_running(subject) <= blocks - 1
        assert all(one.blocks == 0 for one in subject.waiting)
        unfinished = subject.counters.generation_tokens - subject.counters.request_generation_tokens.sum
        assert unfinished == sum(one.generated_tokens for one in everyone)
        if not everyone:
            break

    assert subject.counters.finished == len(sizes)
    assert subject.counters.prompt_tokens == sum(prompt for prompt, _ in sizes)
    assert subject.counters.generation_tokens == sum(output for _, output in sizes)
