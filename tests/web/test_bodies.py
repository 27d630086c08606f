"""Every JSON body of both services goes through one reader: what another would change in silence is refused with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.web.test_generated_calls import metadata, profiles

pytestmark = pytest.mark.slow


JSON = {"Content-Type": "application/json"}
ODD = [
    (b'{"name": "n", "more": {"a/b": 1, "a/b": 1}}', "/more/a~1b"),
    (b'[{"x": NaN}]', "/0/x"),
    (b'{"x": [0, -Infinity]}', "/x/1"),
    (b'{"x": 1e400}', "/x"),
    (b'{"x": 0.1234567890123456789}', "/x"),
    (b'{"x": 9007199254740993.0}', "/x"),
]


def bodies(url: str) -> list[tuple[str, str]]:
    """The method and path of each operation with a JSON body."""
    document: dict[str, Any] = httpx.get(f"{url}/openapi.json").json()
    found = [
        (method, path)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if "application/json" in operation.get("requestBody", {}).get("content", {})
    ]
    assert found
    return found


@pytest.mark.parametrize("served", [metadata, profiles])
def test_an_odd_body_is_refused_with_its_place(served: Any, tmp_path: Path) -> None:
    with served(tmp_path) as asked, httpx.Client(base_url=asked.url, timeout=60) as client:
        for number, (method, path) in enumerate(bodies(asked.url)):
            headers = {"Authorization": f"Bearer {asked.token(path)}"}
            content, pointer = ODD[number % len(ODD)]
            answer = client.request(method, path, content=content, headers=headers | JSON)
            assert (answer.status_code, answer.json().get("pointer")) == (422, pointer), (method, path)
            form = {"Content-Type": "application/x-www-form-urlencoded"}
            answer = client.request(method, path, content=b'{"a": 1}', headers=headers | form)
            assert answer.status_code == 415, (method, path)
            assert "application/json" in answer.json()["detail"]
            answer = client.request(method, path, content=b'{"a": "', headers=headers | JSON)
            assert answer.status_code == 400, (method, path)


def test_a_number_that_is_a_double_however_it_is_written_is_accepted(tmp_path: Path) -> None:
    payload = b'{"i": 12345678901234567890123, "f": 0.1, "z": 1.50, "e": 1e2, "n": -0.0, "l": 1e308}'
    spec = b'{"name": "n", "source": "s", "operations": {"operation": "shift", "spec": {"*": "o.&"}}, '
    spec += b'"identifiers": [{"type": "user_id", "path": "o.i", "primary": true}]}'
    with metadata(tmp_path) as asked:
        answer = httpx.post(
            f"{asked.url}/v1/specs/preview",
            content=b'\xef\xbb\xbf{"definition": ' + spec + b', "payload": ' + payload + b"}",
            headers={"Authorization": f"Bearer {asked.token('')}"} | JSON,
        )
    assert answer.status_code == 200, answer.text
    assert "12345678901234567890123" in answer.text
