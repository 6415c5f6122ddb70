"""A server's reading as signals of its pools."""

from agent.memory.arguments import Arguments
from agent.memory.signals import PoolFacts, PoolSignal
from agent.pool_signals import facts_of, signals_of
from collectors.readings import PoolReading, ReplicaReading, ServerReading


def test_each_pool_has_a_signal_of_its_replica() -> None:
    """Use by tokens where they are told; what was refused counts as what was preempted."""
    reading = ServerReading(
        at=10.0,
        engine="vllm",
        state="serving",
        pools=(
            PoolReading(replica="0", capacity_tokens=1000, used_tokens=250, used_ratio=0.3),
            PoolReading(replica="1", used_ratio=0.5),
        ),
        replicas=(
            ReplicaReading(
                replica="0",
                running_requests=2,
                waiting_requests=1,
                preemptions=3,
                refusals=1,
                prompt_tokens=70,
                generation_tokens=200,
                finished=5,
                finished_prompt_tokens=50,
                finished_generation_tokens=100,
                prefix_hit_tokens=20,
                sequence_tokens=(150, 100),
            ),
        ),
    )

    assert dict(signals_of(reading)) == {
        ("0", "full"): PoolSignal(
            at=10.0,
            used_ratio=0.25,
            capacity_tokens=1000,
            running=2,
            waiting=1,
            shortages=4,
            prompt_tokens=70,
            prompt_hits=20,
            generation_tokens=200,
            finished=5,
            finished_prompt_tokens=50,
            finished_generation_tokens=100,
            lengths=(150, 100),
        ),
        ("1", "full"): PoolSignal(at=10.0, used_ratio=0.5),
    }


def test_figures_that_are_older_than_the_page_have_their_own_time() -> None:
    reading = ServerReading(
        at=10.0,
        figures_at=4.0,
        engine="lmdeploy",
        state="serving",
        pools=(PoolReading(replica="0", used_ratio=0.5),),
    )

    assert [one.at for _, one in signals_of(reading)] == [4.0]


def test_the_sequence_limit_is_the_engines_own() -> None:
    """llama.cpp has slots."""
    vllm = facts_of("vllm", "full", Arguments(max_num_seqs=64, max_model_len=8192))
    llama = facts_of("llama_cpp", "full", Arguments(parallel=4))

    assert vllm == PoolFacts(engine="vllm", max_sequences=64, max_model_len=8192)
    assert llama == PoolFacts(engine="llama_cpp", max_sequences=4)
