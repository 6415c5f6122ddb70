"""A real Prometheus scrapes over TLS with a client certificate and a password, and goes on through a renewal."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from agent.web.web_file import WebFile
from tests.agent.web.configs import CERTIFICATES, HASH, MUTUAL, PASSWORD, write
from tests.agent.web.serve import serving_on_loopback
from tests.prometheus import prometheus


def until(look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_a_real_prometheus_scrapes_over_mutual_tls_with_basic_auth(tmp_path: Path) -> None:
    """Every scrape is good, those around the renewal of the server's certificate too."""
    (tmp_path / "prometheus").mkdir()
    web = WebFile(write(tmp_path, tls_server_config=MUTUAL, basic_auth_users={"prometheus": HASH}))
    options = {
        "scheme": "https",
        "basic_auth": {"username": "prometheus", "password": PASSWORD},
        "tls_config": {
            "ca_file": str(CERTIFICATES / "ca.pem"),
            "cert_file": str(CERTIFICATES / "client.pem"),
            "key_file": str(CERTIFICATES / "client.key"),
        },
    }
    with serving_on_loopback(web=web) as base:
        targets = {"vramscope": urlsplit(base).netloc}
        with prometheus(tmp_path / "prometheus", targets, options=options) as server:
            until(lambda: bool(server.query("vramscope_build_info == 1")))
            before = web.config.tls

            for kind in ("pem", "key"):
                shutil.copy(CERTIFICATES / f"renewed.{kind}", tmp_path / f"server.{kind}")
            until(lambda: web.config.tls is not before)
            scrapes = int(server.query("count_over_time(up[1m])")[0]["value"][1])
            until(lambda: int(server.query("count_over_time(up[1m])")[0]["value"][1]) >= scrapes + 3)

            assert server.query("min_over_time(up[1m])")[0]["value"][1] == "1"
