"""A small issuer of OpenID Connect on this machine, with real RSA keys: whoever comes is signed in at once, with the claims that a test
gave to it."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key

CLIENT, SECRET = "idgraph", "the secret of the pages"


class LocalIssuer:
    """What it gives out, and what it was asked."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.keys: dict[str, RSAPrivateKey] = {}
        self.claims: dict[str, Any] = {}
        self.changed: dict[str, Any] = {}
        """Claims that the next ID token has instead of the right ones."""
        self.asked: list[str] = []
        self.is_away = False
        self._codes: dict[str, dict[str, str]] = {}
        self.rotate("first")

    def rotate(self, kid: str) -> None:
        """One more key, which signs from now on."""
        self.keys[kid] = generate_private_key(65537, 2048)

    def token(self, audience: str, kid: str | None = None, typ: str = "at+jwt", **claims: Any) -> str:
        """A signed token of the person, or with other claims; None leaves one out."""
        kid = kid or list(self.keys)[-1]
        now = int(time.time())
        stated = {"iss": self.url, "aud": audience, "iat": now, "exp": now + 300, **self.claims, **claims}
        stated = {name: value for name, value in stated.items() if value is not None}
        return str(jwt.encode(stated, self.keys[kid], "RS256", {"kid": kid, "typ": typ}))

    def answer(
        self, method: str, target: str, body: str, authorization: str
    ) -> tuple[int, dict[str, str], Any]:
        """Status, headers and JSON."""
        parts = urlsplit(target)
        self.asked.append(parts.path)
        query = dict(parse_qsl(parts.query))
        if self.is_away:
            return 503, {}, {}
        if parts.path == "/.well-known/openid-configuration":
            places = {"authorization_endpoint": "/authorize", "token_endpoint": "/token", "jwks_uri": "/keys"}
            return 200, {}, {"issuer": self.url} | {name: self.url + path for name, path in places.items()}
        if parts.path == "/keys":
            algorithm = jwt.algorithms.RSAAlgorithm
            found = [
                algorithm.to_jwk(key.public_key(), as_dict=True) | {"kid": kid, "use": "sig", "alg": "RS256"}
                for kid, key in self.keys.items()
            ]
            return 200, {}, {"keys": found}
        if parts.path == "/authorize":
            code = f"code-{len(self._codes)}"
            self._codes[code] = query
            return (
                302,
                {"Location": f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"},
                {},
            )
        form = {name: values[0] for name, values in parse_qs(body).items()}
        begun = self._codes.pop(form.get("code", ""), None)
        made = base64.urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        basic = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if (
            begun is None
            or made.decode().rstrip("=") != begun["code_challenge"]
            or form["redirect_uri"] != begun["redirect_uri"]
            or authorization.removeprefix("Basic ") != basic
        ):
            return 400, {}, {"error": "invalid_grant"}
        stated = {"nonce": begun["nonce"], **self.changed}
        return (
            200,
            {},
            {"id_token": self.token(stated.pop("aud", CLIENT), typ="JWT", **stated), "token_type": "Bearer"},
        )


@contextmanager
def local_issuer() -> Iterator[LocalIssuer]:
    """It runs while the block does."""

    class Handler(BaseHTTPRequestHandler):
        def _do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            status, headers, document = issuer.answer(
                self.command, self.path, body, self.headers.get("Authorization", "")
            )
            content = json.dumps(document).encode()
            self.send_response(status)
            for name, value in (headers | {"Content-Length": str(len(content))}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = _do  # noqa: N815 - names of the library

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False
    issuer = LocalIssuer(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
