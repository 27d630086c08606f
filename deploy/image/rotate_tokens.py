"""Makes the tokens of machines in the metadata service's database, keeps each in a Kubernetes secret, and replaces it in time.

Runs beside the metadata service, whose database it opens. Usage: rotate_tokens.py --days N --every SECONDS
NAME:ROLE:SECRET:FILE ... A token is replaced after a third of its days, and the former one is valid until its own end; at once
when the database does not know it, as after a restore.
"""

from __future__ import annotations

import argparse
import base64
import json
import logging
import os
import socket
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import httpx

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SERVICE = "localhost", 8410
NAME = "idgraph/token"
RETRY_SECONDS = 5.0

log = logging.getLogger("idgraph.tokens")


class Token(NamedTuple):
    """A machine's token: its name in the metadata service begins with `name`; `file` is the secret's key."""

    name: str
    role: str
    secret: str
    file: str


class Secrets:
    """The secrets of this pod's namespace."""

    def __init__(self, account: Path = ACCOUNT) -> None:
        self._account = account
        namespace = (account / "namespace").read_text()
        address = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        self._path = f"/api/v1/namespaces/{namespace}/secrets"
        self._client = httpx.Client(
            base_url="https://{}:{}".format(*address), verify=str(account / "ca.crt"), timeout=10
        )

    def _call(self, method: str, path: str, body: object = None) -> httpx.Response:
        # The account's token is replaced every hour.
        token = (self._account / "token").read_text()
        headers = {"Authorization": f"Bearer {token}"}
        return self._client.request(method, self._path + path, json=body, headers=headers)

    def get(self, name: str) -> dict | None:
        """The secret, None if there is none. Raises httpx.HTTPError."""
        answer = self._call("GET", f"/{name}")
        return None if answer.status_code == httpx.codes.NOT_FOUND else answer.raise_for_status().json()

    def put(self, secret: dict) -> None:
        """Create or replace. Raises httpx.HTTPError, also when it was changed meanwhile."""
        name, version = secret["metadata"]["name"], secret["metadata"].get("resourceVersion")
        answer = self._call("PUT", f"/{name}", secret) if version else self._call("POST", "", secret)
        answer.raise_for_status()


def idgraph(*words: str) -> str:
    """What a command prints. Raises subprocess.CalledProcessError."""
    command = ["idgraph", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout  # noqa: S603 - our own words


def made(names: str) -> dict[str, datetime]:
    """When each token was made that is neither revoked nor expired, by name."""
    now = datetime.now(UTC)
    records = [json.loads(line) for line in names.splitlines()]
    return {
        each["name"]: datetime.fromisoformat(each["created"])
        for each in records
        if not each["revoked"] and datetime.fromisoformat(each["expires"]) > now
    }


def rotate(secrets: Secrets, tokens: list[Token], days: int) -> None:
    """Make each token that is missing, unknown or a third of its days old."""
    known = made(idgraph("tokens", "list", "--json"))
    now = datetime.now(UTC)
    for each in tokens:
        secret = secrets.get(each.secret) or {"metadata": {"name": each.secret}}
        notes = secret["metadata"].setdefault("annotations", {})
        since = known.get(notes.get(NAME, ""))
        if since is not None and now - since < timedelta(days=days) / 3:
            continue
        name = f"{each.name}-{now:%Y%m%dT%H%M%S}"
        token = idgraph("tokens", "add", name, "--role", each.role, "--days", str(days)).strip()
        notes[NAME] = name
        secret["data"] = {each.file: base64.b64encode(token.encode()).decode()}
        secrets.put({"apiVersion": "v1", "kind": "Secret", **secret})
        log.info("%s has the new token %s", each.secret, name)


def main() -> None:
    """Rotate until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, required=True)
    parser.add_argument("--every", type=float, required=True)
    parser.add_argument("tokens", nargs="+", type=lambda text: Token(*text.split(":")))
    stated = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    while True:
        seconds = RETRY_SECONDS
        try:
            # The service makes its database, and the first admin's token in it.
            socket.create_connection(SERVICE, 3).close()
            rotate(Secrets(), stated.tokens, stated.days)
            seconds = stated.every
        except (OSError, httpx.HTTPError, subprocess.CalledProcessError) as error:
            log.warning("again in %g s: %s: %s", RETRY_SECONDS, type(error).__name__, error)
        time.sleep(seconds)


if __name__ == "__main__":
    main()
