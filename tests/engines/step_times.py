"""Run with vLLM's Python: its steps in one process, blocks with the probe and without in turn; times as JSON.

``step_times.py MODEL DIRECTORY SECONDS``: as many pairs as begin in that time. The probe writes ten times a second, ten
times as often as by default.
"""

import json
import sys
import time

REQUESTS, TOKENS = 4, 64


def main(model: str, directory: str, seconds: float) -> None:
    import cuda_stand_in  # type: ignore[import-not-found]  # copied beside
    import vllm  # type: ignore[import-not-found]  # of the engine's environment alone
    import vramscope_probe

    engine = vllm.LLM(
        model=model, enforce_eager=True, max_model_len=2048, max_num_seqs=8, enable_prefix_caching=False
    ).llm_engine
    cuda_stand_in.apply()
    sampling = vllm.SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)

    def block(number: int) -> tuple[float, float, list[list[int]]]:
        """Seconds of a step, those of CPU in it, and the tokens."""
        for request in range(REQUESTS):
            engine.add_request(f"{number}-{request}", f"{request} " * 16, sampling)
        steps, tokens = 0, {}
        begun, cpu = time.perf_counter(), time.process_time()
        while engine.has_unfinished_requests():
            steps += 1
            tokens.update({one.request_id: list(one.outputs[0].token_ids) for one in engine.step()})
        seconds, cpu_seconds = time.perf_counter() - begun, time.process_time() - cpu
        return seconds / steps, cpu_seconds / steps, [tokens[name] for name in sorted(tokens)]

    for number in (-2, -1):
        block(number)
    rows: list[dict[str, tuple[float, float, list[list[int]]]]] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        pair, row = len(rows), {}
        for is_with in (True, False) if pair % 2 else (False, True):
            probe = vramscope_probe.Probe(directory, 0.1)
            if is_with:
                probe.begin()
            row["with" if is_with else "without"] = block(2 * pair + is_with)
            if is_with:
                probe.end()
        rows.append(row)
    print("RESULT", json.dumps(rows))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
