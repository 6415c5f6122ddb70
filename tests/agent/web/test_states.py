"""Each state of a node that a person meets: what the page says of it, on a desk and on a phone, in light and dark."""

import pytest
from msgspec.structs import replace

from agent.snapshot import Reload, Snapshot, Thresholds
from tests.agent.web import sample, states
from tests.agent.web.person import click, open_all, sticking_out, unreadable
from tests.agent.web.site import Open, Site

ALL = (
    states.many,
    states.mig,
    states.loading,
    states.inside,
    states.sleeping,
    states.beside,
    states.upgraded,
    states.lost,
    states.unified,
    states.unknown_architecture,
    states.not_reloaded,
    states.nothing,
)


def text(show: Open, node: states.State, selector: str) -> str:
    """What the page of a node says in one place, with plain spaces."""
    page = show(Site(node))
    said: str = page.evaluate(f"document.querySelector({selector!r}).innerText")
    return " ".join(said.split())


@pytest.mark.parametrize("node", ALL, ids=lambda node: node.__name__)
def test_every_state_is_shown_without_fault(show: Open, node: states.State) -> None:
    """All of it open, on a phone and in both schemes: readable, nothing sticks out, the console stays empty."""
    page = show(Site(node))
    open_all(page)

    light = unreadable(page)
    page.prefer("dark")
    dark = unreadable(page)
    page.resize(375, 812)

    assert light == dark == []
    assert sticking_out(page) == []
    assert page.problems() == []


def test_memory_of_a_loading_server_is_its_runtime(show: Open) -> None:
    """Said in a sentence with the bytes, and no counts that nobody knows are shown."""
    said = text(show, states.loading, "[data-server-card=chat]")

    assert "chat loading" in said
    assert "Until it answers, all that its processes hold is shown as its runtime: 30.27 GiB." in said
    assert "how it was found: 0 arguments, 2 pids" in said
    assert "running" not in said


def test_what_is_beside_the_pool_is_named(show: Open) -> None:
    """KV elsewhere by its tier, adapters by name, and no part of a bar."""
    said = text(show, states.beside, "[data-server-card=chat] [data-beside]")

    assert "KV in host memory HiCache, 6,000 tokens of 8,000 tokens, 75.0 % used" in said
    assert "KV on disk LMCache, 8.00 GiB" in said
    assert "LoRA adapters 4 at once; running chat, sql; waiting code" in said
    assert "multimodal cache in host memory 30 of 40 items found" in said


def test_a_sleeping_server_says_what_it_still_holds(show: Open) -> None:
    """The state is not mistaken for trouble."""
    said = text(show, states.sleeping, "[data-server-card=chat]")

    assert "It sleeps and has given memory back: 1.76 GiB are still held by its processes." in said


def test_a_restart_stands_beside_the_run_before(show: Open) -> None:
    """One line; behind it each component of each GPU in both runs."""
    page = show(Site(states.upgraded))
    said = page.evaluate("document.querySelector('[data-upgrade] p').innerText")
    assert (
        said == "Since 0.19.1 -> 0.21.0: CUDA graphs moved inside the fraction; KV pool \u22122.40 GiB over 2 devices"
    )

    open_all(page)
    cells = "(row) => [...row.children].map((cell) => cell.innerText)"
    rows = page.evaluate(f"[...document.querySelectorAll('[data-moved]')].map({cells})")
    assert rows == [
        [f"GPU {gpu} {name}", before, after, delta]
        for gpu in range(2)
        for name, before, after, delta in (
            ("KV pool", "50.78", "49.58", "−1.20"),
            ("Runtime", "2.93", "2.93", "0.00"),
        )
    ]


def test_a_server_that_is_down_has_no_memory(show: Open) -> None:
    """The reason comes from its collector."""
    said = text(show, sample.node, "[data-server-card=batch]")

    assert "no memory is shown as its own" in said
    assert "refused the connection; start the server or correct its url." in said


def test_a_lost_gpu_says_why_and_what_to_do(show: Open) -> None:
    """The driver's sentence once, the Xid error, and no figure."""
    said = text(show, states.lost, "[data-gpu='0']")

    assert said.count("fallen off the bus (NVML error 15): see the kernel log for Xid 79; reset it or reboot") == 1
    assert "Xid 79, it has fallen off the bus: 1 since the agent's start." in said
    assert "No memory reading of this GPU." in said


def test_what_a_probe_tells(show: Open) -> None:
    """The parts by name, each kind of fragmentation by its own, and a call where a prefill would find no room."""
    gpu = text(show, states.inside, "[data-gpu='0']")
    card = text(show, states.inside, "[data-server-card=chat]")
    called = text(show, states.inside, ".call[data-transient=chat]")

    for part in ("CUDA graphs 0.78", "Activations 0.49", "Allocator slack 2.34", "Context 1.07", "Runtime 0.00"):
        assert part in gpu
    assert called == "chat: a prefill needs 3.80 GiB for a moment, 3.20 GiB are there."
    assert "Fragmentation of the allocator on GPU 0: 2.4 %, out of memory: 2, allocations tried again: 31" in card
    assert "Fragmentation inside KV blocks: 0.0 % to 4.0 %" in card


def test_unified_memory_is_explained(show: Open) -> None:
    """The host's part is in the bar, the note says where the figures are from, and the host's own sum is beside it."""
    said = text(show, states.unified, "[data-gpu='0']")

    assert "unified memory" in said
    assert "Host memory 20.51 17.1 %" in said
    assert "This GPU shares the host's memory" in said
    assert "The host has 119.63 GiB, of which 65.92 GiB are available." in said


def test_an_unknown_architecture_says_what_is_missing(show: Open) -> None:
    """The server's card says what is not known, the GPU's what that costs."""
    page = show(Site(states.unknown_architecture))

    server = page.evaluate("document.querySelector('[data-server-card=chat] .notes').innerText")
    gpu = page.evaluate("document.querySelector(\"[data-gpu='0']\").innerText")

    assert "model_type 'novel_moe' is not known here" in server
    assert "Headroom is not known: what of the runtime of chat is room can't be told." in gpu


def test_a_server_tells_how_it_was_found_and_started(show: Open) -> None:
    """Behind a disclosure: who knows it, model path, arguments with where they are from, ranks and pids."""
    page = show(Site())
    click(page, "[data-server-card=chat] > details > summary")

    facts = page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('[data-server-card=chat] [data-origin]')]"
        ".map((one) => [one.dataset.origin, one.innerText]))"
    )
    arguments = page.evaluate(
        "[...document.querySelectorAll('[data-argument]')].map((one) => [one.dataset.argument, one.innerText])"
    )

    assert facts["known by"] == "the settings"
    assert facts["model path"] == "/models/llama-3.1-70b"
    assert facts["longest request"] == "131,072 tokens, 20.00 GiB of the pool"
    assert facts["ranks"] == "GPU 0: TP 0, PP 0, replica 0"
    assert facts["pids"] == "4101, 4188"
    assert facts["container"] == ("namespace prod, pod llama-0, container vllm, runtime containerd, id 4b1d4b1d4b1d")
    assert facts["ran out"] == "cuda_oom 2; the last one 90 seconds ago"
    assert "From the settings, else from its command line, else as the engine reports." in facts["arguments"]
    assert arguments == [
        ["dtype", "bfloat16"],
        ["gpu_memory_utilization", "0.92"],
        ["pp_layers", "40, 40"],
        ["tp", "1"],
    ]


def test_one_sentence_says_that_all_works(show: Open) -> None:
    """With the age of the oldest answer; the list is there to be opened."""
    page = show(Site(states.sleeping))

    said = page.evaluate("document.getElementById('collectors').innerText")
    listed = page.evaluate("document.querySelectorAll('[data-collector]').length")
    click(page, "#collectors summary")

    assert "All 4 collectors work; the oldest answer is 2\u202fs old." in said
    assert listed == 0
    assert page.evaluate("document.querySelectorAll('[data-collector]').length") == 4


def test_what_is_read_once_is_not_called_old(show: Open) -> None:
    """A model's files are read when the server is found; that this is long ago is no delay."""

    def node(tick: int) -> Snapshot:
        snapshot = states.sleeping(tick)
        return replace(snapshot, collectors=(*snapshot.collectors, sample.collector("model", "chat", 7200.0)))

    page = show(Site(node))
    click(page, "#collectors summary")

    assert "the oldest answer is 2\u202fs old." in page.evaluate("document.getElementById('collectors').innerText")
    assert page.evaluate("document.querySelector('[data-collector=model]').innerText").strip().endswith("read once")


def test_failing_collectors_come_first_with_reasons_and_age(show: Open) -> None:
    """Those that fail for the same reason are one entry; the list of all begins with them too."""
    page = show(Site(states.many))
    click(page, "#collectors summary")

    failing = page.evaluate("[...document.querySelectorAll('[data-failing]')].map((one) => one.innerText)")
    first = page.evaluate("[...document.querySelectorAll('[data-collector]')].map((row) => row.innerText).slice(0, 4)")

    assert len(failing) == 2
    assert failing[0].startswith("endpoint server-7: http://127.0.0.1:8007/metrics refused the connection")
    assert "Failed since the agent's start: refused 120. It never answered." in failing[0]
    assert failing[1].startswith("nvml GPU 5, processes GPU 5: the GPU has fallen off the bus")
    assert "Failed since the agent's start: gpu_lost 51, timeout 3. Last answer 45\u202fs ago." in failing[1]
    assert [row.split()[:2] for row in first] == [
        ["endpoint", "server-7"],
        ["nvml", "GPU"],
        ["processes", "GPU"],
        ["endpoint", "server-0"],
    ]


def test_settings_that_were_refused_are_said(show: Open) -> None:
    """At the top and among the collectors, with which settings are in force."""
    page = show(Site(states.not_reloaded))

    assert "settings not reloaded" in page.evaluate("document.getElementById('status').innerText")
    said = page.evaluate("document.querySelector('[data-reload=failed]').innerText")
    assert said.startswith("The settings could not be reloaded.")
    assert said.endswith("stay in force.")


def test_settings_in_force_are_not_mentioned(show: Open) -> None:
    """A reload that went well is no news."""
    well = Reload(success=True, at=sample.START)
    page = show(Site(lambda tick: replace(sample.node(tick), reload=well)))

    assert page.evaluate("document.querySelector('[data-reload]')") is None
    assert "settings" not in page.evaluate("document.getElementById('status').innerText")


def test_a_gpu_whose_index_another_has_is_called_by_its_uuid(show: Open) -> None:
    """Two rows never have one name."""

    def node(tick: int) -> Snapshot:
        snapshot = states.lost(tick)
        gone, works = snapshot.devices
        return replace(snapshot, devices=(replace(works, gpu="0"), replace(gone, gpu="GPU-0")))

    page = show(Site(node))

    assert page.evaluate("[...document.querySelectorAll('[data-gpu] h2')].map((one) => one.firstChild.data)") == [
        "GPU 0",
        "GPU-0",
    ]


def test_the_rule_of_headroom_is_that_of_the_settings(show: Open) -> None:
    """Its name, its place on the scale, and what is below it, on cards and in lists."""

    def strict(tick: int) -> Snapshot:
        return replace(sample.node(tick), thresholds=Thresholds(headroom_ratio=0.2))

    page = show(Site(strict))
    texts = page.evaluate(
        "[...document.querySelectorAll('.headroom > p, .headroom .axis')].map((one) => one.innerText)"
    )
    place = page.evaluate("document.querySelector('.meter .rule').style.width")
    many = show(Site(lambda tick: replace(states.many(tick), thresholds=Thresholds(headroom_ratio=0.99))))

    assert [" ".join(text.split()) for text in texts[:2]] == [
        "17.8 % headroom, below the 20 % rule",
        "0 20 % rule 60 % or more",
    ]
    assert float(place.removesuffix("%")) == pytest.approx(100 / 3, abs=0.1)
    assert many.evaluate("document.querySelectorAll('.headroom.bad').length") == sum(
        device.headroom_ratio is not None for device in states.many(0).devices
    )
