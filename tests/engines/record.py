"""Record a real vLLM's scrapes, log and processes as fixtures: ``python -m tests.engines.record`` (about 6 minutes)."""

import datetime
import json
import platform
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path

import psutil
from msgspec import Struct

from tests.engines.install_vllm import VERSION, environment_directory, install
from tests.engines.scrape import Scrape
from tests.engines.tiny_models import TinyModel, make_llama, make_mla
from tests.engines.vllm_server import FP8_REFUSED, SMALL_POOL, Load, ServerFailed, VllmServer

FIXTURES = Path(__file__).parents[1] / "fixtures" / "vllm"
_NOT_OURS = ("# HELP ", "python_", "# TYPE python_", "http_", "# TYPE http_")
_CLIENTS = 10
_NOISE = ("Route: ", '"GET ', '"POST ', "█", "▀", "Loading safetensors")


class Recording(Struct, frozen=True, kw_only=True):
    """One folder of fixtures: which model, served how, and whether histogram buckets are kept."""

    name: str
    make: Callable[[Path], TinyModel]
    arguments: tuple[str, ...]
    whole: bool


RECORDINGS = (
    Recording(name="llama", make=make_llama, arguments=SMALL_POOL, whole=True),
    Recording(name="llama-fp8", make=make_llama, arguments=(*SMALL_POOL, "--kv-cache-dtype", "fp8"), whole=False),
    Recording(name="mla", make=make_mla, arguments=("--num-gpu-blocks-override", "200"), whole=False),
)


class Moment(Struct, frozen=True, kw_only=True):
    """What one scrape said of the load, and the scrape itself."""

    seconds: float
    usage: float
    running: int
    waiting: int
    preemptions: int
    generated: int
    scrape: Scrape


def record(recording: Recording, command: Path, workplace: Path) -> None:
    """Serve the model, load it until requests were preempted, and write what was seen."""
    model = recording.make(workplace / f"tiny-{recording.name}")
    log = workplace / f"{recording.name}.log"
    server = VllmServer(
        command=command, model=model.path, name=f"tiny-{recording.name}", log=log, arguments=recording.arguments
    )
    scrub = _Scrubber(workplace)
    with server:
        idle = _moment(server, 0.0)
        version, models = server.get("/version"), server.get("/v1/models")
        processes = _processes(server)
        server.complete("warm up", max_tokens=8)
        moments = _watch(server)
        after = _moment(server, moments[-1].seconds + 1)
    stages = {"idle": idle, **_stages(moments), "after": after}
    folder = FIXTURES / f"recorded-{VERSION}-{recording.name}"
    folder.mkdir(parents=True, exist_ok=True)
    for stage, moment in stages.items():
        (folder / f"metrics_{stage}.txt").write_text(exposition(moment.scrape.text, whole=recording.whole), "utf-8")
    (folder / "version.json").write_text(version + "\n", "utf-8")
    (folder / "models.json").write_text(scrub(models) + "\n", "utf-8")
    (folder / "config.json").write_text((model.path / "config.json").read_text("utf-8"), "utf-8")
    (folder / "processes.json").write_text(scrub(json.dumps(processes, indent=1)) + "\n", "utf-8")
    (folder / "server.log").write_text(scrub(_of_interest(log.read_text("utf-8"))), "utf-8")
    (folder / "timeline.tsv").write_text(_timeline([idle, *moments, after]), "utf-8")
    (folder / "README.md").write_text(scrub(_readme(recording, server, model, stages)), "utf-8")


def exposition(text: str, *, whole: bool) -> str:
    """A scrape without help lines and the client library's own families; without buckets unless whole."""
    lines = [line for line in text.splitlines() if not line.startswith(_NOT_OURS)]
    if not whole:
        lines = [line for line in lines if "_bucket{" not in line]
    return "\n".join(lines) + "\n"


def _watch(server: VllmServer) -> list[Moment]:
    moments: list[Moment] = []
    began = time.monotonic()
    with Load(server, clients=_CLIENTS) as load:
        while load.running():
            moments.append(_moment(server, time.monotonic() - began))
            time.sleep(0.1)
    return moments


def _moment(server: VllmServer, seconds: float) -> Moment:
    scrape = server.scrape()
    return Moment(
        seconds=seconds,
        usage=scrape.value("vllm:kv_cache_usage_perc"),
        running=int(scrape.value("vllm:num_requests_running")),
        waiting=int(scrape.value("vllm:num_requests_waiting")),
        preemptions=int(scrape.value("vllm:num_preemptions_total")),
        generated=int(scrape.value("vllm:generation_tokens_total")),
        scrape=scrape,
    )


def _stages(moments: Iterable[Moment]) -> dict[str, Moment]:
    """The moments worth keeping: a filling pool, its fullest, requests put back, and the counter that says so."""
    seen = list(moments)
    growing = [m for m in seen if 0.2 <= m.usage <= 0.8 and m.running >= 2 and not m.waiting and not m.preemptions]
    put_back = [m for before, m in pairwise(seen) if m.running < before.running and m.waiting > before.waiting]
    return {
        "growing": growing[len(growing) // 2],
        "nearfull": max((m for m in seen if not m.preemptions), key=lambda m: (m.usage, -m.waiting)),
        "preempting": put_back[0],
        "preempted": next(m for m in seen if m.preemptions and m.running),
    }


def _processes(server: VllmServer) -> list[dict[str, object]]:
    return [
        {
            "pid": process.pid,
            "parent_pid": process.ppid(),
            "started_at": process.create_time(),
            "name": process.name(),
            "command_line": [part for part in process.cmdline() if part],
            "resident_bytes": process.memory_info().rss,
        }
        for process in server.processes()
    ]


def _of_interest(log: str) -> str:
    return "\n".join(line for line in log.splitlines() if line and not any(word in line for word in _NOISE)) + "\n"


def _timeline(moments: Iterable[Moment]) -> str:
    rows = ["seconds\tusage\trunning\twaiting\tpreemptions\tgenerated"]
    rows += [
        f"{m.seconds:.1f}\t{m.usage:.4f}\t{m.running}\t{m.waiting}\t{m.preemptions}\t{m.generated}" for m in moments
    ]
    return "\n".join(rows) + "\n"


def _readme(recording: Recording, server: VllmServer, model: TinyModel, stages: dict[str, Moment]) -> str:
    usages = "\n".join(
        f"| `metrics_{stage}.txt` | {m.seconds:.1f} | {m.usage:.4f} | {m.running} | {m.waiting} | {m.preemptions} |"
        for stage, m in stages.items()
    )
    left_out = "`# HELP` lines and the families `python_*` and `http_*`"
    if not recording.whole:
        left_out += ", and histogram buckets"
    return f"""# vLLM {VERSION} on CPU, model `{server.name}`

Recorded {datetime.datetime.now(tz=datetime.UTC).date()} by `python -m tests.engines.record`.
CPU vector flags: {_vector_flags()}.
Tensor bytes {model.tensor_bytes}, KV bytes per token in bf16 {model.kv_bytes_per_token}.

```
VLLM_CPU_KVCACHE_SPACE=1 VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1 \\
{" ".join(server.command_line)}
```

Load, after one short completion: {_CLIENTS} x `/v1/completions` 1 s apart, prompts of 64 tokens, `max_tokens` 1500,
`ignore_eos`.

| file | s | usage | running | waiting | preemptions |
|---|---|---|---|---|---|
{usages}

Left out of the scrapes: {left_out}. Paths, addresses and host names are replaced.
`timeline.tsv` has every scrape that was taken.
"""


def _vector_flags() -> str:
    """What the engine's choice of attention kernel, and with it the block size, depends on."""
    flags = set(Path("/proc/cpuinfo").read_text("utf-8").split())
    return ", ".join(sorted(flags & {"avx2", "avx512f", "avx512_bf16", "amx_tile"})) or "none known"


class _Scrubber:
    """Replaces what belongs to this machine."""

    def __init__(self, workplace: Path) -> None:
        self._names = {f"{workplace}/": "./", str(environment_directory()): "<environment>", platform.node(): "<host>"}

    def __call__(self, text: str) -> str:
        for found, shown in self._names.items():
            text = text.replace(found, shown)
        text = re.sub(r"/\S*?/lib/python3\.\d+/(?!site-packages)", "<python>/", text)
        text = re.sub(r"file:///\S+", "file://<temporary>", text)
        return re.sub(r"\b(?!127\.0\.0\.1\b)\d{1,3}(?:\.\d{1,3}){3}\b", "<address>", text)


def main(names: list[str]) -> int:
    command = install(environment_directory())
    with tempfile.TemporaryDirectory() as workplace:
        for recording in RECORDINGS:
            if not names or recording.name in names:
                print(f"recording {recording.name} ...", flush=True)
                try:
                    record(recording, command, Path(workplace))
                except ServerFailed as exc:
                    if FP8_REFUSED not in str(exc):
                        raise
                    print(f"{recording.name} not recorded: {FP8_REFUSED}")
    left = [child.pid for child in psutil.Process().children(recursive=True)]
    print(f"done; child processes left: {left or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
