"""Views over HTTP: selection, renaming, shape; hidden sources; consent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from idgraph.client import ProfilesClient
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.views import ViewDocument
from tests.profile_service.api.conftest import Served, problem, published, started
from tests.profile_service.test_consents import decided, made

USER = "user_id:4493"
ANONYMOUS = "anonymous_id:faf6ec9d-393c-4a40-8401-7f25e6f50aaa"
VIEWS: dict[str, dict[str, Any]] = {
    "marketing": {"years": "demographics.age", "where": {"app": "upper(activity.platform)"}},
    "grown-up": {"is_grown_up": "demographics.age >= `18`"},
    "ids": {"user": "identity.userId", "keys": "length(keys(@))"},
    "broken": {
        "gender": "abs(demographics.gender)",
        "both": {"gender": "abs(demographics.gender)", "years": "demographics.age"},
    },
    "contact": {"mail": "identity.email"},
}


def with_views(snapshot: MetadataSnapshot, **purposes: str) -> MetadataSnapshot:
    views = [
        ViewDocument(name=name, attributes=attributes, version=3, purpose=purposes.get(name))
        for name, attributes in VIEWS.items()
    ]
    return snapshot.model_copy(update={"views": tuple(views)})


@pytest.fixture(autouse=True, scope="module")
def views(served: Served) -> Iterator[None]:
    with published(served, with_views(served.metadata.snapshot_now)):
        yield


def asked(client: httpx.Client, view: str, of: str = ANONYMOUS) -> dict[str, Any]:
    answer = client.get(f"/v1/profiles/{of}", params={"view": view})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_misspelt_parameter_is_refused(everything: httpx.Client) -> None:
    """Found by review: a view that was misspelt gave the whole profile, without the consent that it names."""
    for method, path in (("GET", f"profiles/{ANONYMOUS}"), ("GET", "search"), ("GET", "segments/a/members")):
        refused = problem(everything.request(method, f"/v1/{path}?provenance=true&veiw=marketing"), 400)
        assert refused["hint"] == "did you mean view?"
        assert [each["parameter"] for each in refused["errors"]] == ["query.veiw"]
    refused = problem(everything.post("/v1/search?view=marketing", json={}), 400)
    assert refused["hint"] == "it has wait_for"
    assert problem(everything.get("/v1/views?view"), 400)["hint"] == "it has none"


def test_a_view_selects_renames_and_shapes(everything: httpx.Client) -> None:
    whole = everything.get(f"/v1/profiles/{ANONYMOUS}").json()
    found = asked(everything, "marketing")
    assert found["attributes"] == {
        "years": whole["attributes"]["demographics"]["age"],
        "where": {"app": whole["attributes"]["activity"]["platform"].upper()},
    }
    assert found["view"] == {"name": "marketing", "version": 3}
    assert (found["id"], found["identifiers"]) == (whole["id"], whole["identifiers"])
    body = {"identifiers": [ANONYMOUS, "user_id:nobody"], "view": "marketing"}
    items = everything.post("/v1/profiles/lookup", json=body).json()["items"]
    assert [item["profile"] for item in items] == [found, None]
    query: dict[str, Any] = {
        "q": f"demographics.age={found['attributes']['years']}",
        "view": "marketing",
        "limit": 1000,
    }
    assert found in everything.get("/v1/search", params=query).json()["items"]
    assert found in everything.post("/v1/search", json=query).json()["items"]


def test_the_client_takes_a_view(served: Served, everything: httpx.Client) -> None:
    with ProfilesClient(served.url, "everything") as client:
        found = asked(everything, "marketing")
        assert client.lookup(ANONYMOUS, view="marketing") == found
        assert found in list(client.search(view="marketing"))


def test_hidden_sources_never_existed(everything: httpx.Client, none: httpx.Client) -> None:
    assert asked(none, "marketing")["attributes"].keys() == {"where"}
    assert asked(everything, "grown-up")["attributes"] == {"is_grown_up": True}
    assert asked(none, "grown-up")["attributes"] == {}
    assert "user" in asked(everything, "ids")["attributes"]
    assert asked(none, "ids")["attributes"].keys() == {"keys"}
    listed = none.get("/v1/views").json()["items"]
    assert [each["name"] for each in listed] == list(VIEWS)
    assert "demographics" not in str(listed)


def test_a_view_that_fails_for_a_profile_says_where_and_no_value(everything: httpx.Client) -> None:
    found = asked(everything, "broken")
    whole = everything.get(f"/v1/profiles/{ANONYMOUS}").json()
    assert found["attributes"] == {"both": {"years": whole["attributes"]["demographics"]["age"]}}
    assert found["view"]["problem"].count("gender") == 2
    assert str(whole["attributes"]["demographics"]["gender"]) not in found["view"]["problem"].split()


def test_what_a_view_reveals_is_recorded(served: Served) -> None:
    client = served.client("revealing")
    assert asked(client, "contact", USER)["attributes"] == {"mail": {"$protected": True}}
    before = served.audit.read_text() if served.audit.exists() else ""
    opened = client.get(f"/v1/profiles/{USER}?view=contact&reveal=true&purpose=ticket+8")
    assert opened.json()["attributes"] == {"mail": "charles.wang@example.com"}
    (line,) = served.audit.read_text().removeprefix(before).splitlines()
    assert '"attributes":["identity.email"]' in line.replace(" ", "")


def test_an_unknown_view_and_two_selections_are_refused(everything: httpx.Client) -> None:
    problem(everything.get(f"/v1/profiles/{USER}?view=nothing"), 400)
    problem(everything.get(f"/v1/profiles/{USER}?view=contact&fields=a"), 400)
    problem(everything.post("/v1/search", json={"view": "nothing"}), 400)


def test_a_view_with_a_purpose_leaves_out_whoever_has_not_consented(tmp_path: Path) -> None:
    pipeline = made(tmp_path / "p", decided(1, "given", source="phone"), consents_marketing=60)
    with started(tmp_path, pipeline) as served:
        everything, half = served.client("everything"), served.client("half")
        view = ViewDocument(name="v", attributes={"all": "@"}, version=1, purpose="marketing")
        other = ViewDocument(name="other", attributes={"all": "@"}, version=1, purpose="research")
        with published(served, pipeline.snapshot.model_copy(update={"views": (other, view)})):
            found = asked(everything, "v", "user_id:ann")
            assert found["consents"] == [{"purpose": "marketing", "source": "phone", "time": None}]
            hidden = asked(half, "v", "user_id:ann")
            assert hidden["consents"] == [{"purpose": "marketing"}]
            assert "consents" not in str(hidden["attributes"])
            problem(everything.get("/v1/profiles/user_id:ann?view=other"), 404)
            pipeline.process([decided(2, "withdrawn")])
            for client in (everything, half):
                refused = problem(client.get("/v1/profiles/user_id:ann?view=v"), 404)
                assert refused == problem(client.get("/v1/profiles/user_id:nobody?view=v"), 404)
                body = {"identifiers": ["user_id:ann"], "view": "v"}
                (item,) = client.post("/v1/profiles/lookup", json=body).json()["items"]
                assert item["profile"] is None
                assert client.get("/v1/search?view=v").json()["items"] == []
                assert len(client.get("/v1/search").json()["items"]) == 1
