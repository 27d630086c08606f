"""What both services describe in /openapi.json: every route asks for a token."""

from __future__ import annotations

import pytest

from idgraph.web import guard
from idgraph.web.application import FREE
from tests.profile_service.api.conftest import Served, problem


def test_every_route_asks_for_a_token(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "WRONG_TOKEN_SECONDS", 0.0)
    nobody, unknown = served.client(None), served.client("unknown")
    described = nobody.get("/openapi.json").json()["paths"]
    asked = [
        (method, path) for path, operations in described.items() for method in operations if path not in FREE
    ]
    assert len(asked) > 20
    for method, path in asked:
        for client in (nobody, unknown):
            problem(client.request(method, path.replace("{", "").replace("}", "")), 401)
