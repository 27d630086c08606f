"""One webhook: a signed POST to a URL that was allowed, and to no other address.

Headers and signature are those of https://www.standardwebhooks.com: `webhook-signature` is `v1,` and the base64 of
HMAC-SHA-256 over `ID.TIMESTAMP.BODY`.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import socket
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import httpx

from idgraph.model import canonical
from idgraph.model.errors import ConfigError
from idgraph.model.ledger import Delivery
from idgraph.model.transport import client_options

_SECONDS = 10.0
_LEAST_BYTES = 24
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class WebhookSender:
    """Sends to one URL: https, or http to this machine. No redirect is followed, no proxy is used, and a private address is
    not connected to unless `allow_private`. Never pickled, since it holds a secret."""

    def __init__(
        self, url: str, secret_file: Path, allow_private: bool = False, ca_file: Path | None = None
    ) -> None:
        """Raises ConfigError."""
        self._url = httpx.URL(url)
        self._is_local = self._url.host in _LOOPBACK
        if self._url.scheme != "https" and not (self._is_local and self._url.scheme == "http"):
            raise ConfigError(f"webhook {self._url.host}: the URL is https://..., or http:// to this machine")
        self._allow_private = allow_private
        self._secret = _secret(secret_file)
        self._client = httpx.Client(timeout=_SECONDS, **client_options(url, ca_file))

    at_once = 1

    def send(self, deliveries: Sequence[Delivery]) -> str | None:
        """Deliver each once, up to one that the receiver did not take (2xx); why not, without anything of the body."""
        failed = (self._send(each.id, canonical.encode(each.document)) for each in deliveries)
        return next(filter(None, failed), None)

    def _send(self, delivery_id: str, body: bytes) -> str | None:
        at = str(int(time.time()))
        signed = hmac.digest(self._secret, b".".join((delivery_id.encode(), at.encode(), body)), sha256)
        headers = {
            "Host": self._url.netloc.decode(),
            "Content-Type": "application/json",
            "webhook-id": delivery_id,
            "webhook-timestamp": at,
            "webhook-signature": f"v1,{base64.b64encode(signed).decode()}",
        }
        try:
            # To the address that was looked at: a name may lead elsewhere the next time.
            request = self._client.build_request(
                "POST",
                self._url.copy_with(host=self._address()),
                content=body,
                headers=headers,
                extensions={"sni_hostname": self._url.host},
            )
            answer = self._client.send(request, stream=True)
            answer.close()
        except (OSError, httpx.HTTPError, _RefusedAddressError) as error:
            return str(error) if isinstance(error, _RefusedAddressError) else type(error).__name__
        return None if answer.is_success else f"status {answer.status_code}"

    def close(self) -> None:
        self._client.close()

    def _address(self) -> str:
        found = socket.getaddrinfo(self._url.host, self._url.port or 443, type=socket.SOCK_STREAM)
        addresses = [str(each[4][0]).partition("%")[0] for each in found]
        for each in addresses:
            address = ipaddress.ip_address(each)
            if self._is_local and not address.is_loopback:
                raise _RefusedAddressError("the name of this machine leads elsewhere")
            if not (
                self._is_local or self._allow_private or (address.is_global and not address.is_multicast)
            ):
                raise _RefusedAddressError("a private address; `allow_private` permits it")
        return addresses[0]

    def __reduce__(self) -> str:
        raise TypeError("a webhook's secret is never pickled")


class _RefusedAddressError(Exception):
    """An address that may not be connected to."""


def _secret(file: Path) -> bytes:
    """`whsec_` and base64, as the specification has it."""
    try:
        text = file.read_text(encoding="ascii").strip()
        secret = base64.b64decode(text.removeprefix("whsec_"), validate=True)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None
    except (UnicodeDecodeError, binascii.Error):
        secret = b""
    if len(secret) < _LEAST_BYTES:
        raise ConfigError(
            f"{file}: a webhook's secret is whsec_ and the base64 of {_LEAST_BYTES} random bytes at least; "
            "make it with `openssl rand -base64 32`"
        )
    return secret
