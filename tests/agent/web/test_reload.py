"""``POST /-/reload``: who may ask, and what is answered."""

import asyncio
import base64
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.responses import PlainTextResponse

from agent.web.guard import Guard
from agent.web.web_file import WebFile
from tests.agent.web.configs import HASH, MUTUAL, PASSWORD, SERVER, trust, write
from tests.agent.web.serve import plain_client, serving_on_loopback


class Settings:
    """Counts reloads, and refuses them with a sentence when told to."""

    def __init__(self) -> None:
        self.reloads = 0
        self.problem: str | None = None

    async def reload(self) -> str | None:
        self.reloads += 1
        return self.problem


@pytest.fixture
def settings() -> Settings:
    return Settings()


@pytest.fixture
def client(settings: Settings) -> Iterator[httpx.Client]:
    with serving_on_loopback(reload=settings.reload) as base, plain_client(base) as client:
        yield client


def test_a_process_of_this_host_may_ask(client: httpx.Client, settings: Settings) -> None:
    """200 once the new settings are in force."""
    answer = client.post("/-/reload")

    assert (answer.status_code, answer.text, settings.reloads) == (200, "reloaded\n", 1)


def test_settings_that_can_not_be_used_are_said(client: httpx.Client, settings: Settings) -> None:
    """500 and the sentence."""
    settings.problem = "vramscope.yml: listen: expected HOST:PORT with a port of 0 to 65535, got 'x'"

    answer = client.post("/-/reload")

    assert (answer.status_code, answer.text) == (500, settings.problem + "\n")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "none"}, 200),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"origin": "https://evil.example.com"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://["}, 403),
        ({"host": "evil.example.com", "origin": "http://evil.example.com", "sec-fetch-site": "same-origin"}, 421),
        ({"x-forwarded-for": "203.0.113.9"}, 403),
        ({"forwarded": "for=203.0.113.9"}, 403),
    ],
)
def test_no_page_of_another_site_and_no_proxy_may(
    client: httpx.Client, settings: Settings, headers: dict[str, str], status: int
) -> None:
    """What a browser or a proxy tells about the one who really asks is heeded; a rebound name is not ours."""
    assert client.post("/-/reload", headers=headers).status_code == status
    assert settings.reloads == (status == 200)


def test_the_own_page_may(client: httpx.Client, settings: Settings) -> None:
    """Its origin is the host that it asks."""
    assert client.post("/-/reload", headers={"origin": str(client.base_url).rstrip("/")}).status_code == 200
    assert settings.reloads == 1


def test_only_post_and_only_without_a_body(client: httpx.Client, settings: Settings) -> None:
    """A link or an image can't do it."""
    answers = [
        client.get("/-/reload"),
        client.put("/-/reload"),
        client.post("/-/reload", content=b"x"),
        client.post("/metrics"),
    ]

    assert [answer.status_code for answer in answers] == [405, 405, 413, 405]
    assert [answers[0].headers["allow"], answers[3].headers["allow"]] == ["POST", "GET, HEAD"]
    assert settings.reloads == 0


def test_without_anything_to_reload_there_is_no_such_path() -> None:
    """The program decides."""
    with serving_on_loopback() as base, plain_client(base) as client:
        assert client.post("/-/reload").status_code == 404


def from_elsewhere(guard: Guard, address: str, authorization: str | None = None) -> httpx.Response:
    """Ask the application as a client of another host."""
    transport = httpx.ASGITransport(guard, client=(address, 50000))
    headers = {"authorization": authorization} if authorization else {}

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, base_url="http://192.0.2.1:10175") as client:
            return await client.post("/-/reload", headers=headers)

    return asyncio.run(ask())


def guard(web: WebFile) -> Guard:
    return Guard(PlainTextResponse("reached"), host_names=frozenset(), web=web)


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("127.0.0.1", 200),
        ("127.8.8.8", 200),
        ("::1", 200),
        ("::ffff:127.0.0.1", 200),
        ("fe80::1%eth0", 403),
        ("203.0.113.9", 403),
        ("::ffff:203.0.113.9", 403),
    ],
)
def test_without_auth_only_this_host_may(address: str, status: int) -> None:
    """By the address of the connection, in each way of writing it."""
    assert from_elsewhere(guard(WebFile()), address).status_code == status


def test_with_basic_auth_others_may_too(tmp_path: Path) -> None:
    """With the credentials of a user; without them nobody may, not even from this host."""
    guarded = guard(WebFile(write(tmp_path, basic_auth_users={"prometheus": HASH})))
    right = "Basic " + base64.b64encode(f"prometheus:{PASSWORD}".encode()).decode()

    assert from_elsewhere(guarded, "203.0.113.9", right).status_code == 200
    assert from_elsewhere(guarded, "203.0.113.9").status_code == 401
    assert from_elsewhere(guarded, "127.0.0.1").status_code == 401


def test_with_client_certificates_others_may_too(tmp_path: Path) -> None:
    """Who got as far has shown one; TLS alone proves nobody."""
    mutual = guard(WebFile(write(tmp_path, tls_server_config=MUTUAL)))
    assert from_elsewhere(mutual, "203.0.113.9").status_code == 200

    one_sided = guard(WebFile(write(tmp_path, tls_server_config=SERVER)))
    assert from_elsewhere(one_sided, "203.0.113.9").status_code == 403


def test_a_reload_over_tls_with_basic_auth(tmp_path: Path, settings: Settings) -> None:
    """All of it together, on a real socket."""
    web = WebFile(write(tmp_path, tls_server_config=SERVER, basic_auth_users={"prometheus": HASH}))
    with serving_on_loopback(web=web, reload=settings.reload) as base:
        with httpx.Client(verify=trust(), trust_env=False) as client:
            assert client.post(base + "/-/reload").status_code == 401
            assert client.post(base + "/-/reload", auth=("prometheus", PASSWORD)).status_code == 200

    assert settings.reloads == 1
