"""TGI's log: the tokens of its pool, and that its router is connected, in text and in JSON."""

from collectors.engine_logs.tgi import FORMAT
from tests.collectors.engine_logs.lines import only, read

TEXT = (
    "2024-09-03T04:36:57.491823Z  INFO text_generation_launcher: Args {",
    '    model_id: "m",',
    "2024-09-03T04:40:18.100000Z  INFO text_generation_launcher: KV-cache blocks: 19056, size: 1",
    "2024-09-03T04:40:19.370247Z  INFO text_generation_router::server: router/src/server.rs:1651: "
    "Setting max batch total tokens to 19056",
    "2024-09-03T04:40:19.441742Z  INFO text_generation_router::server: router/src/server.rs:1889: Connected",
    "2024-09-03T04:50:00.000000Z  INFO x: Setting max batch total tokens to 1",
)


def test_a_start() -> None:
    """Nothing in bytes; what comes after it is connected does not count."""
    reading = read(FORMAT, *TEXT)

    assert (only(reading), reading.ready) == ({"kv_tokens": 19056}, True)


def test_a_start_in_json() -> None:
    """As with --json-output."""
    said = (
        f'{{"timestamp":"t","level":"INFO","message":"{text}","target":"text_generation_router"}}'
        for text in ("Args {", "Setting max batch total tokens to 133696", "Connected")
    )

    reading = read(FORMAT, *said)

    assert (only(reading), reading.ready) == ({"kv_tokens": 133696}, True)


def test_the_next_start_forgets_the_one_before() -> None:
    """It may have failed."""
    assert read(FORMAT, *TEXT, TEXT[0]).ranks == ()
