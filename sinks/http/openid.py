"""An issuer of OpenID Connect over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from idgraph.model.errors import MetadataError
from idgraph.model.transport import trust

_SECONDS = 5.0
_MOST_BYTES = 1 << 20


class HttpIssuer:
    """Implements `Issuer`. No redirect is followed, and no proxy of the environment is used."""

    def __init__(self, ca_file: Path | None = None) -> None:
        """Raises ConfigError."""
        self._trust = trust(ca_file)

    def get(self, url: str) -> dict[str, Any]:
        """The JSON object at a URL. Raises MetadataError."""
        return self._answer(httpx.Request("GET", url))

    def post(self, url: str, form: Mapping[str, str], secret: tuple[str, str] | None) -> dict[str, Any]:
        """The answer to a form, with name and secret of the client if it has one. Raises MetadataError."""
        request = httpx.Request("POST", url, data=dict(form))
        if secret is not None:
            request = next(httpx.BasicAuth(*secret).auth_flow(request))
        return self._answer(request)

    def _answer(self, request: httpx.Request) -> dict[str, Any]:
        place = f"{request.method} {request.url.copy_with(query=None)}"
        try:
            # Few calls: no connection is kept.
            with httpx.Client(timeout=_SECONDS, trust_env=False, verify=self._trust) as client:
                answer = client.send(request, follow_redirects=False)
            found = answer.json() if answer.is_success and len(answer.content) <= _MOST_BYTES else None
        except (httpx.HTTPError, ValueError) as error:
            raise MetadataError(f"{place}: no answer ({type(error).__name__})") from None
        if not isinstance(found, dict):
            raise MetadataError(f"{place}: HTTP {answer.status_code}, and no JSON object")
        return found
