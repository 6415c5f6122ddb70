"""A model's config, index and headers from a hub on loopback; nothing else is read, and a token goes nowhere else."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from collectors.errors import CollectorError, Refused, Unreachable, Unreadable
from collectors.hub import Source, download
from collectors.model_files import INDEX_NAME, read_model
from tests.collectors.hub_server import FakeHub, fake_hub

NAME = "acme/tiny"
CONFIG = json.dumps({"model_type": "llama"}).encode()
TOKEN = "hf_secret"


def shard(tensors: dict[str, int], *, padding: int = 0) -> bytes:
    """A safetensors file of BF16 tensors with so many elements each; ``padding`` makes its header longer."""
    entries: dict[str, object] = {"__metadata__": {"note": "x" * padding}} if padding else {}
    offset = 0
    for name, count in tensors.items():
        entries[name] = {"dtype": "BF16", "shape": [count], "data_offsets": [offset, offset + 2 * count]}
        offset += 2 * count
    header = json.dumps(entries).encode()
    return len(header).to_bytes(8, "little") + header + bytes(offset)


def repository(padding: int = 0) -> dict[str, bytes]:
    shards = {
        "model-1.safetensors": shard({"model.embed_tokens.weight": 300_000}, padding=padding),
        "model-2.safetensors": shard({"model.layers.0.mlp.weight": 500_000, "lm_head.weight": 300_000}),
    }
    weights = {"model.embed_tokens.weight": "model-1.safetensors", "lm_head.weight": "model-2.safetensors"}
    index = json.dumps({"metadata": {"total_size": 2_200_000}, "weight_map": weights}).encode()
    return {"config.json": CONFIG, INDEX_NAME: index, **shards}


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with fake_hub() as served:
        yield served


@pytest.mark.parametrize("padding", [0, 400_000])
def test_headers_by_range(hub: FakeHub, tmp_path: Path, padding: int) -> None:
    """The bytes of all tensors are known, with little of the files read; a long header is asked for again."""
    hub.add(NAME, repository(padding))
    seen: list[tuple[str, int, int]] = []

    download(NAME, tmp_path, source=Source(endpoint=hub.url), progress=lambda *step: seen.append(step))

    model = read_model(tmp_path)
    assert (model.tensor_bytes, model.tensor_source, model.config) == (2_200_000, "headers", {"model_type": "llama"})
    assert model.layer_bytes == (1_000_000,)
    assert hub.sent_bytes < 1_200_000 + padding
    assert seen == [("config.json", 0, 1), ("config.json", 1, 1), *(("headers", done, 2) for done in range(3))]


def test_a_hub_that_ignores_ranges(hub: FakeHub, tmp_path: Path) -> None:
    """It sends everything; reading stops after the header."""
    hub.ignores_ranges = True
    hub.add(NAME, repository())

    download(NAME, tmp_path, source=Source(endpoint=hub.url))

    assert read_model(tmp_path).tensor_bytes == 2_200_000


def test_one_file_without_an_index(hub: FakeHub, tmp_path: Path) -> None:
    """Small models have no index; a revision is a part of the URL."""
    hub.add(NAME, {"config.json": CONFIG, "model.safetensors": shard({"w": 10})}, revision="v1")

    download(NAME, tmp_path, source=Source(endpoint=hub.url), revision="v1")

    assert read_model(tmp_path).tensor_bytes == 20


def test_a_config_alone(hub: FakeHub, tmp_path: Path) -> None:
    """No safetensors there: the config is known, and a note says what is not."""
    hub.add(NAME, {"config.json": CONFIG})

    download(NAME, tmp_path, source=Source(endpoint=hub.url))

    model = read_model(tmp_path)
    assert (model.tensor_bytes, len(model.notes)) == (None, 1)


def test_a_token_stays_with_the_hub(hub: FakeHub, tmp_path: Path) -> None:
    """It is sent to the hub with each request, and not along with a redirect to another host."""
    elsewhere: list[httpx.Request] = []
    body = repository()

    def answer(request: httpx.Request) -> httpx.Response:
        file = request.url.path.rsplit("/", 1)[1]
        if request.url.host == "cdn.example":
            elsewhere.append(request)
            size = {"Content-Length": str(len(body[file]))}
            return httpx.Response(200, headers=size, content=iter([body[file]]))
        assert request.headers["Authorization"] == f"Bearer {TOKEN}"
        return httpx.Response(302, headers={"Location": f"https://cdn.example/{file}?signature=1"})

    source = Source(endpoint="https://hub.example", token=TOKEN)
    download(NAME, tmp_path, source=source, transport=httpx.MockTransport(answer))

    assert read_model(tmp_path).tensor_bytes == 2_200_000
    assert len(elsewhere) == 4
    assert all("Authorization" not in request.headers for request in elsewhere)
    assert TOKEN not in repr(source)


@pytest.mark.parametrize(
    ("status", "token", "kind", "said"),
    [
        (
            401,
            None,
            Refused,
            "answered 401 for config.json: check the name; if the model is gated or private, set HF_TOKEN",
        ),
        (403, TOKEN, Refused, "answered 403 for config.json: check HF_TOKEN, and that its owner accepted"),
        (404, None, Unreadable, "has no acme/tiny with a config.json at 'main': check the name"),
        (429, None, Unreadable, "answered 429 for config.json; too many requests: wait, or set HF_TOKEN"),
        (500, None, Unreadable, "answered 500 for config.json; expected 200: try again later"),
    ],
)
def test_refusals(
    hub: FakeHub, tmp_path: Path, status: int, token: str | None, kind: type[CollectorError], said: str
) -> None:
    """One sentence: what, and what to do; never the token."""
    hub.statuses[f"/{NAME}/resolve/main/config.json"] = status

    with pytest.raises(kind) as caught:
        download(NAME, tmp_path, source=Source(endpoint=hub.url, token=token))

    assert said in str(caught.value)
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("http://elsewhere.example/x", "redirects to http://elsewhere.example, which is not https"),
        ("mailto:a@b", "redirects config.json to what is no address"),
        (f"https://{'a' * 300}.example/x", "redirects config.json to what is no address"),
        ("/acme/tiny/resolve/main/config.json", "redirects config.json more than 5 times"),
    ],
)
def test_redirects_that_are_not_followed(hub: FakeHub, tmp_path: Path, target: str, said: str) -> None:
    """To plain http elsewhere, and in a circle."""
    hub.redirects[f"/{NAME}/resolve/main/config.json"] = target

    with pytest.raises(Unreadable) as caught:
        download(NAME, tmp_path, source=Source(endpoint=hub.url))

    assert said in str(caught.value)


def test_a_renamed_model(hub: FakeHub, tmp_path: Path) -> None:
    """A redirect within the hub is followed."""
    hub.add("acme/new", {"config.json": CONFIG})
    hub.redirects[f"/{NAME}/resolve/main/config.json"] = "/acme/new/resolve/main/config.json"

    download(NAME, tmp_path, source=Source(endpoint=hub.url))

    assert read_model(tmp_path).config == {"model_type": "llama"}


@pytest.mark.parametrize(
    ("index", "said"),
    [
        (b"[]", f"{INDEX_NAME} on the hub is none"),
        (
            b'{"weight_map": {"a": "../evil.safetensors"}}',
            f"{INDEX_NAME} on the hub names files that are not a model's",
        ),
        (b'{"weight_map": {"a": ["x"]}}', f"{INDEX_NAME} on the hub is none"),
    ],
)
def test_an_index_that_cannot_be(hub: FakeHub, tmp_path: Path, index: bytes, said: str) -> None:
    """Names from outside are names of files beside it."""
    hub.add(NAME, {"config.json": CONFIG, INDEX_NAME: index})

    with pytest.raises(Unreadable) as caught:
        download(NAME, tmp_path, source=Source(endpoint=hub.url))

    assert said in str(caught.value)


def test_a_config_that_is_too_large(hub: FakeHub, tmp_path: Path) -> None:
    """Reading stops at the bound."""
    hub.add(NAME, {"config.json": bytes(9_000_000)})

    with pytest.raises(Unreadable) as caught:
        download(NAME, tmp_path, source=Source(endpoint=hub.url))

    assert "expected at most 2,097,152 bytes, got more" in str(caught.value)


def test_a_file_of_unknown_size(tmp_path: Path) -> None:
    """A header says nothing about the file being whole unless its size is told."""
    body = repository() | {"model-1.safetensors": bytes(300_000)}

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=iter([body[request.url.path.rsplit("/", 1)[1]]]))

    with pytest.raises(Unreadable) as caught:
        download(NAME, tmp_path, source=Source(endpoint="https://hub.example"), transport=httpx.MockTransport(answer))

    assert "hub.example does not tell the size of model-" in str(caught.value)


def test_no_hub(tmp_path: Path) -> None:
    """Nobody listens."""
    with pytest.raises(Unreachable) as caught:
        download(NAME, tmp_path, source=Source(endpoint="http://127.0.0.1:9"))

    assert "no usable answer from 127.0.0.1 for config.json (ConnectError)" in str(caught.value)


def test_a_hub_that_drips(tmp_path: Path) -> None:
    """The deadline is that of the whole file, not of each piece."""
    times = iter(range(0, 1000, 25))

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=iter([b"{" * 70_000] * 10))

    with pytest.raises(Unreachable) as caught:
        download(
            NAME,
            tmp_path,
            source=Source(endpoint="https://hub.example"),
            transport=httpx.MockTransport(answer),
            clock=lambda: float(next(times)),
        )

    assert "did not send config.json within 60 s; try again" in str(caught.value)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (Source(endpoint="ftp://x"), "is not the URL of a server"),
        (Source(endpoint="https://x.example", token="a b"), "the token must be printable ASCII without spaces"),
        (Source(endpoint="http://x.example", token=TOKEN), "a token is not sent over plain http to x.example"),
    ],
)
def test_settings_that_cannot_be(tmp_path: Path, source: Source, said: str) -> None:
    """Found before anything is sent, and the token is not in the message."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared
        download(NAME, tmp_path, source=source)

    assert said in str(caught.value)
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize("name", ["../etc", "a/b/c", "https://x", ""])
def test_names(tmp_path: Path, name: str) -> None:
    """A name is ORGANISATION/NAME; nothing else becomes a URL."""
    with pytest.raises(Unreadable) as caught:
        download(name, tmp_path, source=Source(endpoint="https://hub.example"))

    assert "expected ORGANISATION/NAME and a revision" in str(caught.value)
