"""The client's requests: those that the service describes, and none twice that must not come twice."""

from __future__ import annotations

import inspect
import re
import socket
import threading
from typing import Any

import jsonschema_rs
import pytest

from idgraph.client import ProfilesClient
from idgraph.client.methods import Method, Methods, Request
from idgraph.model.errors import ProfileServiceError, QueryError
from tests.profile_service.api.conftest import Served

SAMPLES: dict[str, tuple[Any, ...]] = {
    "lookup": ("user_id:4493",),
    "count": ("a=1",),
    "facets": ("a", "b=1", 3),
    "call": ("GET", "views"),
    "triggers": (),
}


class Written(ProfilesClient):
    """Gives the request in place of an answer."""

    def ask(self, request: Request, read: Any) -> Any:
        del read
        return request


def test_every_method_is_tried() -> None:
    methods = {name for name, each in vars(Methods).items() if isinstance(each, Method)}
    assert methods == SAMPLES.keys()
    assert all(inspect.getdoc(getattr(ProfilesClient, each)) for each in methods)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_request_is_one_that_the_service_describes(name: str, served: Served) -> None:
    described = served.client(None).get("/openapi.json").json()
    with Written(served.url, "token") as client:
        request: Request = getattr(client, name)(*SAMPLES[name])
    found = {
        path: operations
        for path, operations in described["paths"].items()
        if re.fullmatch(re.sub(r"\{[^}]*\}", "[^/]+", path), request.path)
    }
    # `/v1/profiles/lookup` is no identifier.
    operation = found[max(found, key=lambda path: path.count("/") - path.count("{"))][request.method.lower()]
    if request.body is None:
        assert not operation.get("requestBody", {}).get("required")
    else:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        whole = {**schema, "components": described["components"]}
        jsonschema_rs.validate(whole, request.body)


def test_what_may_not_come_twice_is_not_sent_again() -> None:
    arrived: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for _ in range(2):
                connection, _ = listener.accept()
                with connection:
                    arrived.append(connection.recv(65536))

        thread = threading.Thread(target=serve)
        thread.start()
        with ProfilesClient(f"http://127.0.0.1:{listener.getsockname()[1]}", "token") as client:
            for path in (["erasures"], ["me", "households"]):
                with pytest.raises(ProfileServiceError) as unknown:
                    client.call("POST", *path, body={})
                assert unknown.value.status is None
        thread.join()
    assert [each.split()[1] for each in arrived] == [b"/v1/erasures", b"/v1/me/households"]


def test_parts_of_a_path_are_arguments_of_their_own() -> None:
    with Written("http://127.0.0.1:1", "token") as client:
        with pytest.raises(QueryError, match="as 'profiles', 'user_id:u1', 'timeline'"):
            client.call("GET", "profiles/user_id:u1/timeline")
        request: Any = client.call("GET", "profiles", "page:a/b", "timeline")
    assert request.path == "/v1/profiles/page%3Aa%2Fb/timeline"
