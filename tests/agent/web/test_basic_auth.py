"""Basic auth: who is let in, and that guessing passwords stays cheap for everybody but the one who guesses."""

import asyncio
import base64
import threading
from collections.abc import Iterator, Mapping

import bcrypt
import httpx
import pytest

from agent.web.basic_auth import MAX_WAITING, MIN_REST_SECONDS, REMEMBERED, REST_FACTOR, Doorkeeper
from agent.web.web_file import WebFile
from tests.agent.web.configs import HASH, PASSWORD, hash_of, write
from tests.agent.web.serve import plain_client, serving_on_loopback

USERS: Mapping[str, bytes] = {"prometheus": HASH.encode()}
PATHS = ("/", "/static/app.js", "/metrics", "/api/v1/snapshot", "/api/v1/history", "/-/ready", "/-/healthy", "/nothing")


def header(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


class Counted:
    """bcrypt that counts, takes a second of a clock of its own, and can be held up."""

    def __init__(self) -> None:
        self.now = 100.0
        self.hashes: list[bytes] = []
        self.rests: list[float] = []
        self.go = threading.Event()
        self.go.set()
        self.doorkeeper = Doorkeeper(matches=self._matches, rest=self._rest, clock=lambda: self.now)

    async def ask(self, name: str, password: str, *, address: str = "192.0.2.1") -> str:
        return await self.doorkeeper.verdict(header(name, password), USERS, address=address)

    def _matches(self, password: bytes, hashed: bytes) -> bool:
        self.go.wait(10)
        self.hashes.append(hashed)
        self.now += 1.0
        return bcrypt.checkpw(password, hashed)

    async def _rest(self, seconds: float) -> None:
        self.rests.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


def test_a_right_password_is_compared_once() -> None:
    """Every later scrape is answered from what is remembered."""
    counted = Counted()

    async def scrapes() -> list[str]:
        return [await counted.ask("prometheus", PASSWORD) for _ in range(100)]

    assert set(asyncio.run(scrapes())) == {"admitted"}
    assert len(counted.hashes) == 1


def test_requests_that_come_together_share_one_comparison() -> None:
    """A browser that opens the page asks for several files at once with the same password."""
    counted = Counted()

    async def together() -> list[str]:
        return await asyncio.gather(*(counted.ask("prometheus", PASSWORD) for _ in range(10)))

    assert asyncio.run(together()) == ["admitted"] * 10
    assert len(counted.hashes) == 1


def test_a_wrong_password_is_remembered_too() -> None:
    """A scraper with an old password costs one comparison, not one per scrape."""
    counted = Counted()

    async def scrapes() -> list[str]:
        return [await counted.ask("prometheus", "wrong") for _ in range(100)]

    assert set(asyncio.run(scrapes())) == {"refused"}
    assert len(counted.hashes) == 1


def test_a_tenth_of_a_core_is_all_that_guessing_gets() -> None:
    """After each wrong password the next comparison waits nine times as long as the last took."""
    counted = Counted()

    async def guesses() -> None:
        for number in range(20):
            assert await counted.ask("prometheus", f"guess {number}") == "refused"

    begun = counted.now
    asyncio.run(guesses())

    assert counted.rests == [0.0] + [REST_FACTOR * 1.0] * 19
    assert len(counted.hashes) / (counted.now - begun) <= 1.1 / (1 + REST_FACTOR)
    assert MIN_REST_SECONDS > 0


def test_guessing_does_not_push_out_who_is_known() -> None:
    """However many wrong passwords come, a scraper that was let in before costs nothing more."""
    counted = Counted()

    async def siege() -> str:
        await counted.ask("prometheus", PASSWORD)
        for number in range(REMEMBERED + 10):
            await counted.ask("prometheus", f"guess {number}", address="203.0.113.9")
        counted.hashes.clear()
        return await counted.ask("prometheus", PASSWORD)

    assert asyncio.run(siege()) == "admitted"
    assert counted.hashes == []


def test_one_address_waits_in_one_place_and_all_of_them_in_few() -> None:
    """More are told to come back, without a comparison; a newcomer elsewhere still gets a place, and is let in."""
    counted = Counted()
    counted.go.clear()

    async def crowd() -> tuple[list[str], str, list[str]]:
        first = asyncio.create_task(counted.ask("prometheus", "guess 0", address="203.0.113.9"))
        await asyncio.sleep(0)
        more = [await counted.ask("prometheus", f"guess {n}", address="203.0.113.9") for n in range(1, 50)]
        newcomer = asyncio.create_task(counted.ask("prometheus", PASSWORD))
        others = [
            asyncio.create_task(counted.ask("prometheus", f"guess {n}", address=f"203.0.113.{n}"))
            for n in range(100, 100 + MAX_WAITING)
        ]
        await asyncio.sleep(0)
        counted.go.set()
        await first
        return more, await newcomer, [await other for other in others]

    more, newcomer, others = asyncio.run(crowd())

    assert set(more) == {"busy"}
    assert newcomer == "admitted"
    assert others == ["refused"] * (MAX_WAITING - 2) + ["busy"] * 2
    assert len(counted.hashes) == MAX_WAITING


def test_an_unknown_name_costs_what_a_known_one_costs() -> None:
    """It is compared with a hash of the same cost, that no password has."""
    counted = Counted()

    async def ask() -> list[str]:
        return [await counted.ask(name, "wrong") for name in ("prometheus", "nobody", "")]

    assert asyncio.run(ask()) == ["refused"] * 3
    assert [hashed[:7] for hashed in counted.hashes] == [b"$2b$04$"] * 3


def test_a_new_password_counts_at_once() -> None:
    """What was remembered for the old hash is not taken for the new one, nor for another user."""
    doorkeeper = Doorkeeper()

    async def change() -> list[str]:
        old, new = header("prometheus", PASSWORD), header("prometheus", "new password")
        changed = {"prometheus": hash_of("new password").encode()}
        return [
            await doorkeeper.verdict(old, USERS, address="a"),
            await doorkeeper.verdict(old, changed, address="a"),
            await doorkeeper.verdict(new, changed, address="a"),
            await doorkeeper.verdict(old, {"another": USERS["prometheus"]}, address="a"),
        ]

    assert asyncio.run(change()) == ["admitted", "refused", "admitted", "refused"]


@pytest.mark.parametrize(
    ("authorization", "verdict"),
    [
        (header("prometheus", PASSWORD), "admitted"),
        (header("prometheus", PASSWORD).replace("Basic", "bAsIc"), "admitted"),
        (None, "refused"),
        ("", "refused"),
        ("Basic", "refused"),
        ("Basic !!!", "refused"),
        ("Basic " + base64.b64encode(b"prometheus").decode(), "refused"),
        ("Basic " + base64.b64encode(b"\xff\xfe:x").decode(), "refused"),
        ("Bearer " + base64.b64encode(f"prometheus:{PASSWORD}".encode()).decode(), "refused"),
        (header("prometheus", ""), "refused"),
        (header("prometheus", PASSWORD + "\0"), "refused"),
        (header("prometheus", "x" * 8000), "refused"),
        (header("Prometheus", PASSWORD), "refused"),
    ],
)
def test_what_counts_as_credentials(authorization: str | None, verdict: str) -> None:
    """RFC 7617: the scheme in any case, the name as written; anything odd is refused, never an error."""
    assert asyncio.run(Doorkeeper().verdict(authorization, USERS, address="a")) == verdict


def test_a_password_of_more_than_72_bytes_is_the_one_of_its_first_72() -> None:
    """As bcrypt has it, whatever made the hash."""
    password = "p" * 80
    users = {"prometheus": hash_of(password[:72]).encode()}

    assert asyncio.run(Doorkeeper().verdict(header("prometheus", password), users, address="a")) == "admitted"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    web = WebFile(write(tmp_path_factory.mktemp("web"), basic_auth_users={"prometheus": HASH}))
    with serving_on_loopback(web=web) as base, plain_client(base) as client:
        yield client


@pytest.mark.parametrize("path", PATHS)
def test_every_path_asks_for_credentials(guarded: httpx.Client, path: str) -> None:
    """Health included, as everywhere in this format; the answer says which scheme, and nothing of what is behind."""
    answer = guarded.get(path)

    assert (answer.status_code, answer.text) == (401, "expected the name and password of a user\n")
    assert answer.headers["www-authenticate"] == 'Basic realm="vramscope"'


def test_right_credentials_open_what_there_is(guarded: httpx.Client) -> None:
    """Each path answers as it does without basic auth."""
    answers = [guarded.get(path, auth=("prometheus", PASSWORD)) for path in PATHS]

    assert [answer.status_code for answer in answers] == [200] * 7 + [404]


@pytest.mark.parametrize("credentials", [("prometheus", "wrong"), ("nobody", PASSWORD), ("", "")])
def test_wrong_credentials_are_answered_alike(guarded: httpx.Client, credentials: tuple[str, str]) -> None:
    """Whether name or password was wrong can't be told."""
    answer = guarded.get("/metrics", auth=credentials)

    assert (answer.status_code, answer.text) == (401, "expected the name and password of a user\n")


def test_two_authorization_headers_are_refused(guarded: httpx.Client) -> None:
    """An ambiguous request is nobody's."""
    right = header("prometheus", PASSWORD)
    answer = guarded.get("/metrics", headers=[("authorization", right), ("authorization", right)])

    assert answer.status_code == 401


def test_guessing_on_many_connections_leaves_a_scraper_alone(
    guarded: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Most guesses are turned away uncompared with 429; the log has neither names nor passwords."""
    right = ("prometheus", PASSWORD)
    assert guarded.get("/metrics", auth=right).status_code == 200
    statuses: list[int] = []

    def guess(number: int) -> None:
        with plain_client(str(guarded.base_url)) as client:
            statuses.extend(
                client.get("/metrics", auth=("hunter2", f"hunter3 {number} {attempt}")).status_code
                for attempt in range(5)
            )

    threads = [threading.Thread(target=guess, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    scrapes = [guarded.get("/metrics", auth=right).status_code for _ in range(50)]
    for thread in threads:
        thread.join()

    assert scrapes == [200] * 50
    assert set(statuses) == {401, 429}
    assert "hunter" not in caplog.text
