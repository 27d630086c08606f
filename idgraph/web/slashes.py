"""Lets a path parameter hold a slash that the URL writes as %2F."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send


class KeepSlashes:
    """ASGI middleware. Servers decode a URL before it is routed, which makes %2F a separator; where one
    occurs, routes are matched with the URL as it was sent."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            raw = (scope.get("raw_path") or scope["path"].encode()).partition(b"?")[0]
            if b"%2f" in raw.lower():
                scope = {**scope, "path": raw.decode("ascii")}
        await self._app(scope, receive, send)
