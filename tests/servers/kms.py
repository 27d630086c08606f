"""AWS KMS for tests: moto in server mode, on loopback, for the real client.

moto leaves out what KMS does with a key that is disabled or not the one that was named, so this adds it, as Amazon's
reference of the API says. The server dies and comes back; its keys outlive it, as those of KMS do.
"""

from __future__ import annotations

import atexit
import base64
import functools
import io
import json
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tests.servers.aws import read_descriptions_once
from tests.servers.requirement import required
from tests.support.processes import free_port

if TYPE_CHECKING:
    from sinks.kms import KmsKey

REGION = "eu-central-1"

_USES = ("Encrypt", "Decrypt", "GenerateDataKeyWithoutPlaintext")
_STATES = {"Disabled": "DisabledException", "PendingDeletion": "KMSInvalidStateException"}

Start = Callable[[str, list[tuple[str, str]]], object]
Application = Callable[[dict[str, Any], Start], Iterable[bytes]]


class Kms:
    """A KMS that can die. `asked` are the names of the secrets that it was asked to make or open."""

    def __init__(self) -> None:
        from moto.server import DomainDispatcherApplication, create_backend_app

        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.asked: list[str] = []
        self._application: Application = DomainDispatcherApplication(create_backend_app)
        self._server: Any = None
        self._thread: threading.Thread | None = None
        self.start()

    def start(self) -> None:
        from werkzeug.serving import WSGIRequestHandler, make_server

        class Silent(WSGIRequestHandler):
            def log(self, *_: object) -> None:
                """Nothing."""

        self._server = make_server("127.0.0.1", self.port, self._answer, True, request_handler=Silent)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def kill(self) -> None:
        """Nobody listens any more."""
        self._server.shutdown()
        self._server.server_close()
        assert self._thread is not None
        self._thread.join()

    def is_there(self) -> bool:
        """Whether anybody listens."""
        return self._thread is not None and self._thread.is_alive()

    def new_key(self) -> KmsKey:
        from sinks.kms import KmsKey

        return KmsKey(self.admin().create_key()["KeyMetadata"]["Arn"], REGION, self.url)

    def admin(self) -> Any:
        """A client of one who may manage keys."""
        from sinks.aws_connection import client

        return client("kms", REGION, self.url, 1)

    def disable(self, key: KmsKey) -> None:
        self.admin().disable_key(KeyId=_id(key.key))

    def enable(self, key: KmsKey) -> None:
        self.admin().enable_key(KeyId=_id(key.key))

    def _answer(self, environment: dict[str, Any], start: Start) -> Iterable[bytes]:
        operation = environment.get("HTTP_X_AMZ_TARGET", "").rpartition(".")[2]
        if operation in _USES:
            body = environment["wsgi.input"].read(int(environment["CONTENT_LENGTH"]))
            environment["wsgi.input"] = io.BytesIO(body)
            request = json.loads(body)
            self.asked.append(request.get("EncryptionContext", {}).get("idgraph-secret", ""))
            if refusal := _refusal(request):
                start("400 Bad Request", [("Content-Type", "application/x-amz-json-1.1")])
                return [json.dumps({"__type": refusal, "message": "refused"}).encode()]
        return self._application(environment, start)


def _id(key: str) -> str:
    return key.rpartition("/")[2]


def _refusal(request: dict[str, Any]) -> str | None:
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.kms.models import kms_backends
    from moto.kms.utils import _deserialize_ciphertext_blob

    name = _id(request["KeyId"])
    key = kms_backends[DEFAULT_ACCOUNT_ID][REGION].keys.get(name)
    if key is not None and key.key_state in _STATES:
        return _STATES[key.key_state]
    if "CiphertextBlob" in request:
        made_by = _deserialize_ciphertext_blob(base64.b64decode(request["CiphertextBlob"])).key_id
        return None if made_by == name else "IncorrectKeyException"
    return None


@functools.cache
def _started() -> Kms:
    kms = Kms()
    atexit.register(kms.kill)
    return kms


def running_kms() -> Kms:
    """One for all tests of this process. Skips the test, with the reason, when it cannot be had."""
    with required("boto3", "idgraph[dynamodb]"), required("moto.server", "-r requirements-dev.lock"):
        read_descriptions_once()
        return _started()
