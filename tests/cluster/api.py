"""The API server, as this test's administrator."""

from __future__ import annotations

from typing import Any

import httpx

Object = dict[str, Any]


class Api:
    """Requests with JSON. Each raises httpx.HTTPError for another status than 2xx, but for those of `but`."""

    def __init__(self, url: str, token: str) -> None:
        self._client = httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {token}"}, verify=False, timeout=20
        )

    def call(
        self, method: str, path: str, body: object = None, but: tuple[int, ...] = (), **request: Any
    ) -> Object:
        """The answer's object; empty for a status of `but`."""
        answer = self._client.request(method, path, json=body, **request)
        if answer.status_code in but:
            return {}
        if not answer.is_success:
            raise httpx.HTTPStatusError(
                f"{method} {path}: {answer.text}", request=answer.request, response=answer
            )
        found: Object = answer.json()
        return found

    def get(self, path: str, **params: str) -> Object:
        return self.call("GET", path, params=params)

    def find(self, path: str) -> Object:
        """Empty if there is none."""
        return self.call("GET", path, but=(404,))

    def items(self, path: str, **params: str) -> list[Object]:
        found: list[Object] = self.get(path, **params)["items"]
        return found

    def patch(self, path: str, body: Object, but: tuple[int, ...] = ()) -> Object:
        return self.call("PATCH", path, body, but, headers={"Content-Type": "application/merge-patch+json"})

    def delete(self, path: str, **options: Any) -> None:
        self.call("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", **options}, but=(404, 409))

    def close(self) -> None:
        self._client.close()

    def is_ready(self) -> bool:
        try:
            return self._client.get("/readyz").is_success
        except httpx.HTTPError:
            return False


def path_of(thing: Object) -> str:
    """Of a pod."""
    about = thing["metadata"]
    return f"/api/v1/namespaces/{about['namespace']}/pods/{about['name']}"
