"""The snapshot for a command that only reads: asked for once, without the client and its library, which take longer to load
than the answer to arrive."""

from __future__ import annotations

import secrets
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from idgraph.model.errors import MetadataError
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.transport import trust
from idgraph.signatures import NONCE_HEADER, PinnedKey
from idgraph.snapshot_file import PinnedSnapshot

NO_ANSWER = "no answer ({}); is the service up? `idgraph serve metadata` starts it"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would send the token to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


def opener(scheme: str, ca_file: Path | None = None) -> urllib.request.OpenerDirector:
    """Opens URLs as `client_options` does: no redirect, and no proxy of the environment."""
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect(), urllib.request.ProxyHandler({})]
    if scheme == "https":
        handlers.append(urllib.request.HTTPSHandler(context=trust(ca_file)))
    return urllib.request.build_opener(*handlers)


def fetch_snapshot(
    url: str, token: str, timeout: float, ca_file: Path | None = None, pinned: PinnedKey | None = None
) -> PinnedSnapshot | None:
    """The service's snapshot. None for an answer that is none: `MetadataClient.snapshot` says why. Raises MetadataError
    without an answer, SnapshotSignatureError for one that is not of the pinned service."""
    nonce = secrets.token_hex(16)
    headers = {"Authorization": f"Bearer {token}", NONCE_HEADER: nonce}
    try:
        answer = _answer(url, "/v1/snapshot", headers, timeout, ca_file)
        if answer is None:
            return None
        if pinned is not None:
            pinned.check(nonce, *answer)
        etag, body = answer[0].get("ETag", ""), answer[1]
        snapshot = MetadataSnapshot.model_validate_json(body)
    except ValueError:
        return None
    return PinnedSnapshot(
        etag, snapshot.with_models(lambda digest: fetch_model(url, token, timeout, digest, ca_file))
    )


def fetch_model(
    url: str, token: str, timeout: float, digest: str, ca_file: Path | None = None
) -> bytes | None:
    """The bytes of a model; None if the service has none with this digest. Raises MetadataError without an answer."""
    answer = _answer(url, f"/v1/models/{digest}", {"Authorization": f"Bearer {token}"}, timeout, ca_file)
    return None if answer is None else answer[1]


def fetch_catalogue(url: str, token: str, timeout: float, ca_file: Path | None = None) -> bytes:
    """The service's `Catalogue` as JSON. Raises MetadataError without one."""
    answer = _answer(url, "/v1/catalogue", {"Authorization": f"Bearer {token}"}, timeout, ca_file)
    if answer is None:
        raise MetadataError("the metadata service gave no catalogue")
    return answer[1]


def _answer(
    url: str, path: str, headers: dict[str, str], timeout: float, ca_file: Path | None
) -> tuple[Any, bytes] | None:
    """Headers and body; None for an answer that is no success. Raises MetadataError without an answer."""
    address = urlsplit(url)
    place = f"{url.rstrip('/')}{path}"
    try:
        request = urllib.request.Request(place, headers=headers)  # noqa: S310 - checked
        with opener(address.scheme, ca_file).open(request, timeout=timeout) as answer:
            return answer.headers, answer.read()
    except (urllib.error.HTTPError, HTTPException, ValueError):
        return None
    except OSError as error:
        cause = getattr(error, "reason", error)
        host = address.netloc.rpartition("@")[2]
        # Without the cause: its text may hold the URL, with a password.
        raise MetadataError(
            f"GET {address.scheme}://{host}{address.path.rstrip('/')}{path}: "
            + NO_ANSWER.format(type(cause).__name__)
        ) from None
