"""Web configs over the certificates of the fixtures, written into a folder of the test's own."""

import shutil
import ssl
from pathlib import Path
from typing import Any

import bcrypt
import yaml

CERTIFICATES = Path(__file__).parents[2] / "fixtures" / "tls"
SERVER = {"cert_file": "server.pem", "key_file": "server.key"}
MUTUAL = {**SERVER, "client_auth_type": "RequireAndVerifyClientCert", "client_ca_file": "ca.pem"}
PASSWORD = "correct horse"


def hash_of(password: str, cost: int = 4) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(cost)).decode()


HASH = hash_of(PASSWORD)


def write(folder: Path, **config: Any) -> Path:
    """A web config with these sections beside a copy of all certificates."""
    for path in CERTIFICATES.iterdir():
        if not (folder / path.name).exists():
            shutil.copy(path, folder)
    path = folder / "web.yml"
    path.write_text(yaml.safe_dump(config))
    return path


def trust(*, client: str | None = None) -> ssl.SSLContext:
    """A client that trusts the fixtures' authority, and shows a certificate of its own where one is named."""
    context = ssl.create_default_context(cafile=CERTIFICATES / "ca.pem")
    if client:
        context.load_cert_chain(CERTIFICATES / f"{client}.pem", CERTIFICATES / f"{client}.key")
    return context
