"""The client's methods for consents, contacts, households, access requests and erasures: the same in both clients."""

from __future__ import annotations

import asyncio
import inspect
import re
import socket
import threading
from datetime import UTC, datetime
from typing import Any

import jsonschema_rs
import pytest

from idgraph.client import AsyncProfilesClient, ProfilesClient
from idgraph.client.methods import Methods
from idgraph.client.requests import Method, Request
from idgraph.model.errors import ProfileServiceError
from tests.profile_service.api.conftest import Served
from tests.profile_service.api.test_consents import flow, recorded
from tests.profile_service.api.test_contacts import agents
from tests.profile_service.api.test_households import home

__all__ = ["agents", "home", "recorded"]

WHEN = datetime(2024, 3, 1, 12, tzinfo=UTC)
SAMPLES: dict[str, tuple[Any, ...]] = {
    "lookup": ("user_id:4493",),
    "count": ("a=1",),
    "facets": ("a", "b=1", 3),
    "segments_of": (["user_id:1"],),
    "explain": ("user_id:a/b",),
    "history": ("user_id:1",),
    "consents": ("user_id:1",),
    "record_consent": ("user_id:1", "marketing", "given", "web", WHEN),
    "find_contacts": (),
    "memberships": ("user_id:1",),
    "person_token": ("user_id:1", 5),
    "households": (),
    "found_household": ("Ann",),
    "invite": ("h",),
    "accept": ("code", "Ann"),
    "decline": ("code",),
    "share": ("h", [{"attribute": "a", "to": ["m"], "purpose": "p", "until": "2026-01-01T00:00:00Z"}]),
    "leave": ("h",),
    "decide": ("marketing", "withdrawn", "web"),
    "request_access": ("user_id:1", "asked"),
    "access_request": ("job",),
    "access_document": ("job",),
    "preview_erasure": (["user_id:1"],),
    "erase": (["user_id:1"], "asked"),
    "erasure": ("job",),
    "call": ("GET", "views"),
}
NAMED = {"find_contacts": {"name": "Ann", "postcode": "1", "fields": ["a"]}}


class Both:
    """Calls a method of both clients, and gives what both say."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = url, token

    def __getattr__(self, name: str) -> Any:
        def call(*words: Any, **named: Any) -> Any:
            with ProfilesClient(self._url, self._token) as client:
                found = getattr(client, name)(*words, **named)
            assert asyncio.run(self._awaited(name, words, named)) == found
            return found

        return call

    async def _awaited(self, name: str, words: Any, named: Any) -> Any:
        async with AsyncProfilesClient(self._url, self._token) as client:
            return await getattr(client, name)(*words, **named)


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
        request: Request = getattr(client, name)(*SAMPLES[name], **NAMED.get(name, {}))
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


def test_consents(recorded: Served) -> None:
    officer = Both(recorded.url, "officer")
    (found,) = officer.consents("user_id:ann")
    assert (found["purpose"], found["status"]) == ("marketing", "given")
    # Both clients record the same decision: one event, which the flow is given twice.
    event = officer.record_consent("user_id:ann", "marketing", "withdrawn", "web", WHEN)
    assert flow(recorded.pipeline) == 2
    (found,) = officer.consents("user_id:ann")
    assert (found["status"], found["event"]) == ("withdrawn", event)
    with (
        ProfilesClient(recorded.url, "reader") as reader,
        pytest.raises(ProfileServiceError) as refused,
    ):
        reader.record_consent("user_id:ann", "marketing", "withdrawn", "web")
    assert refused.value.status == 403


def test_contacts(agents: Served) -> None:
    found = Both(agents.url, "agent").find_contacts(name="Johana Johnson", fields=["identity.name"], limit=1)
    assert [each["profile"]["attributes"]["identity"]["name"]["first"] for each in found] == ["Johanna"]


def test_households(home: Served) -> None:
    with ProfilesClient(home.url, "portal") as portal:
        tokens = [portal.person_token(f"user_id:{number}", 5)["token"] for number in (1, 2)]
    with ProfilesClient(home.url, tokens[0]) as ann, ProfilesClient(home.url, tokens[1]) as bob:
        household = ann.found_household("Ann")
        code = ann.invite(household)["code"]
        assert bob.accept(code, "Bob") == household
        (seen,) = Both(home.url, tokens[0]).households()
        (other,) = [each for each in seen["members"] if each not in seen["me"]]
        ann.share(household, [{"attribute": "demographics.age", "to": [other], "purpose": "a loan"}])
        (shared,) = bob.households()[0]["shared_with_me"]
        assert shared["attributes"] == {"demographics": {"age": 31}}
        (membership,) = Both(home.url, "reader").memberships("user_id:1")
        assert (membership["id"], membership["names"]) == (household, ["Ann"])
        bob.decline(ann.invite(household)["code"])
        bob.leave(household)
        assert bob.households() == []


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
            for use in (lambda: client.erase(["user_id:1"], "asked"), lambda: client.found_household("Ann")):
                with pytest.raises(ProfileServiceError) as unknown:
                    use()
                assert unknown.value.status is None
        thread.join()
    assert [each.split()[1] for each in arrived] == [b"/v1/erasures", b"/v1/me/households"]
