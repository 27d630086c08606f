"""The Python client against the service: paging, retries, refusals."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from idgraph.client import AsyncProfilesClient, ProfilesClient
from idgraph.client.methods import Method, Methods, Paged
from idgraph.model.errors import ProfileServiceError, QueryError
from idgraph.model.identifiers import Identifier
from tests.profile_service.api.conftest import Served
from tests.retail import raw

USER = "user_id:4493"


@pytest.fixture
def client(served: Served) -> Iterator[ProfilesClient]:
    with ProfilesClient(served.url, "everything") as client:
        yield client


def test_lookups(served: Served, client: ProfilesClient) -> None:
    (profile,) = served.pipeline.reader().lookup(Identifier.parse(USER))
    assert client.lookup(USER) == profile.canonical(provenance=False)
    assert client.lookup(USER, provenance=True) == profile.canonical(provenance=True)
    assert client.lookup("user_id:nobody") is None
    many = list(client.lookups([USER, "user_id:nobody"] * 120, fields=["demographics"]))
    assert len(many) == 240
    assert many[0] == many[238]
    assert many[239] is None


def test_searches_are_paged(client: ProfilesClient) -> None:
    found = [each["id"] for each in client.search(page=7)]
    assert len(found) == len(set(found)) == client.count()
    some = [each["id"] for each in client.search([{"exists": {"path": "demographics.age"}}], page=3)]
    assert len(some) == client.count("demographics.age=*")
    assert sum(number for _, number in client.facets("demographics.age", limit=1000)) == len(some)


def test_explanations_and_changes(client: ProfilesClient) -> None:
    (explained,) = client.call("GET", "profiles", USER, "explain")["items"]
    assert explained["id"] == USER
    assert explained["accepted"]
    assert client.call("GET", "profiles", USER, "history")["items"][0]["periods"][-1]["to"] is None
    moves = list(client.changes())
    assert {move["kind"] for move in moves} <= {"merged", "split", "moved"}
    assert moves
    assert list(client.changes(moves[-1]["cursor"])) == []
    assert list(client.changes(moves[0]["cursor"])) == moves[1:]


def test_refusals_are_errors_with_their_status(served: Served, client: ProfilesClient) -> None:
    for call, status in (
        (lambda: client.lookup("nonsense"), 400),
        (lambda: client.lookup(USER, purpose="curiosity"), 403),
        (lambda: list(client.search("a=(")), 400),
        (lambda: list(client.changes("nonsense")), 400),
    ):
        with pytest.raises(ProfileServiceError) as refused:
            call()
        assert refused.value.status == status
    with ProfilesClient(served.url, "revealing") as revealing:
        assert revealing.lookup(USER, purpose="a test", fields=["identity.email"])
    with pytest.raises(TypeError):
        pickle.dumps(client)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda client: client.facets(["a"]), "/paths/0"),
        (lambda client: client.lookup(USER, fields="x"), "/fields"),
        (lambda client: client.lookup(USER, field=["x"]), "/field"),
        (lambda client: client.call("GET", "search", params={"limitt": 3}), "query.limitt"),
        (lambda client: client.call("POST", "search", body={"limit": "many"}), "/limit"),
    ],
)
def test_a_refusal_keeps_what_the_service_said(client: ProfilesClient, call: Any, named: str) -> None:
    with pytest.raises(ProfileServiceError) as refused:
        call(client)
    error = refused.value
    assert error.detail in str(error)
    assert named in str(error)
    assert named in [each.get("pointer") or each.get("parameter") for each in error.errors]
    assert error.pointer in (None, *(each.get("pointer") for each in error.errors))
    assert error.hint is None or error.hint in str(error)


def test_a_hint_is_kept(client: ProfilesClient) -> None:
    with pytest.raises(ProfileServiceError) as refused:
        client.call("GET", "search", "count", params={"qq": "a=1"})
    assert refused.value.hint is not None
    assert refused.value.hint in str(refused.value)


def test_an_identifier_of_several_is_not_one_of_nobody(served: Served, client: ProfilesClient) -> None:
    served.pipeline.process(
        raw(
            {
                "type": "identify",
                "userId": user,
                "messageId": f"m{user}",
                "timestamp": "2024-03-03T10:00:00Z",
                "traits": {"email": "house@example.com"},
            },
            int(user),
            "segment",
        )
        for user in ("90001", "90002")
    )
    assert client.lookup("email:nobody@example.com") is None
    with pytest.raises(ProfileServiceError) as shared:
        client.lookup("email:house@example.com")
    assert shared.value.status == 409
    none, somebody = client.lookups(["email:house@example.com", "user_id:90001"])
    assert (none is None, somebody is None) == (True, False)


def test_one_text_is_no_list_of_identifiers(client: ProfilesClient) -> None:
    with pytest.raises(QueryError):
        list(client.lookups(USER))


def test_moments_are_of_the_days_of_a_time_zone(client: ProfilesClient) -> None:
    asked = "activity.lastSeenAt<today"
    for zone in ("Asia/Tokyo", "Pacific/Apia"):
        named = f"{asked}@{zone}"
        assert client.count(asked, time_zone=zone) == client.count(named) > 0
        assert len(list(client.search(asked, time_zone=zone))) == client.count(named)
        assert client.facets("activity.platform", asked, time_zone=zone)
    with pytest.raises(ProfileServiceError, match="Nowhere"):
        client.count(asked, time_zone="Nowhere/City")


@pytest.mark.parametrize("kind", [ProfilesClient, AsyncProfilesClient])
def test_a_notebook_shows_readable_parameters(kind: Any) -> None:
    client = kind("http://127.0.0.1:9", "token")
    for name, method in vars(Methods).items():
        if isinstance(method, Method | Paged):
            shown = str(inspect.signature(getattr(client, name)))
            assert "Unpack" not in shown
            assert "Asked" not in shown
    names = list(inspect.signature(client.search).parameters)
    assert sorted(names) == sorted(
        ["query", "sort", "page", "time_zone", "fields", "view", "provenance", "purpose", "show_identifiers"]
    )
    assert names[:5] == ["query", "sort", "page", "time_zone", "fields"]


async def _listed(some: AsyncIterator[Any]) -> list[Any]:
    return [each async for each in some]


def test_async(served: Served, client: ProfilesClient) -> None:
    moves = list(client.changes())

    async def ask() -> None:
        async with AsyncProfilesClient(served.url, "everything") as awaited:
            one, many = await asyncio.gather(awaited.lookup(USER), _listed(awaited.lookups([USER] * 150)))
            assert one is not None
            assert many == [one] * 150
            assert await _listed(awaited.lookups([])) == []
            found = [each async for each in awaited.search(page=50)]
            assert len(found) == await awaited.count()
            assert found == list(client.search(page=7))
            assert [each async for each in awaited.changes()] == moves

    asyncio.run(ask())


def test_a_503_is_retried_as_it_says() -> None:
    answers = [
        b"HTTP/1.1 503 x\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        b"",
        b'HTTP/1.1 200 x\r\nContent-Length: 11\r\nConnection: close\r\n\r\n{"count":3}',
    ]
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for answer in answers:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with ProfilesClient(f"http://127.0.0.1:{listener.getsockname()[1]}", "token") as client:
            assert client.count() == 3
        thread.join()


def test_a_service_that_is_away_is_an_error() -> None:
    with (
        ProfilesClient("http://127.0.0.1:9", "token") as client,
        pytest.raises(ProfileServiceError) as away,
    ):
        client.count()
    assert away.value.status is None
