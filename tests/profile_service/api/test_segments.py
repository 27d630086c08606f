"""Segments over HTTP: what a search finds, under a name; hidden ones do not exist."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from idgraph.client import ProfilesClient
from idgraph.model import queries
from idgraph.model.queries import Condition, Exists, FullText, Not, Query, Range, Term
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.views import SegmentDocument
from idgraph.projection.projection import Projection
from tests.profile_service.api.conftest import Served, problem, published, started
from tests.profile_service.test_consents import decided, made

pytestmark = pytest.mark.slow


SEGMENTS: dict[str, tuple[Condition, ...]] = {
    "adults": (Range("demographics.age", lower=40),),
    "contactable": (Exists("identity.email"),),
    "everybody": (),
    "ios": (Term("activity.platform", "ios"),),
    "not-ios": (Not(Term("activity.platform", "ios")),),
    "words": (FullText("ios"),),
}
PROTECTED = (Term("identity.email", "charles.wang@example.com"),)
"""By now: the attribute was not protected when the segment was saved."""


def segment(
    name: str, *conditions: Condition, version: int = 1, purpose: str | None = None
) -> SegmentDocument:
    query = queries.to_json(Query(conditions))
    return SegmentDocument(name=name, query=query, version=version, purpose=purpose)


def with_segments(snapshot: MetadataSnapshot, *segments: SegmentDocument) -> MetadataSnapshot:
    return snapshot.model_copy(update={"segments": segments})


@pytest.fixture(autouse=True, scope="module")
def segments(served: Served) -> Iterator[None]:
    found = [segment(name, *conditions) for name, conditions in SEGMENTS.items()]
    with published(served, with_segments(served.metadata.snapshot_now, *found, segment("z", *PROTECTED))):
        yield


def members(client: httpx.Client, name: str, **parameters: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    page: dict[str, Any] = {"next": None}
    while not found or page["next"]:
        asked = {"limit": 7, "cursor": page["next"]} if page["next"] else {"limit": 7}
        answer = client.get(f"/v1/segments/{name}/members", params=asked | parameters)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found += page["items"]
        if not page["items"]:
            break
    return found


@pytest.mark.parametrize("name", SEGMENTS)
def test_members_are_what_the_search_finds(everything: httpx.Client, name: str) -> None:
    body = {"query": queries.to_json(Query(SEGMENTS[name])), "limit": 1000}
    wanted = everything.post("/v1/search", json=body).json()["items"]
    found = members(everything, name)
    assert found == sorted(wanted, key=lambda each: str(each["id"]))
    assert everything.get(f"/v1/segments/{name}/count").json() == {"count": len(found)}
    everybody = [each["id"] for each in members(everything, "everybody")]
    inside = {each["id"] for each in found}
    for start in range(0, len(everybody), 100):
        some = everybody[start : start + 100]
        items = everything.post("/v1/segments/member-of", json={"identifiers": some}).json()["items"]
        assert [each["identifier"] for each in items] == some
        assert [name in each["segments"] for each in items] == [each in inside for each in some]


def test_the_client_reads_segments(served: Served, everything: httpx.Client) -> None:
    with ProfilesClient(served.url, "everything") as client:
        found = list(client.members("adults", page=7))
        assert found == members(everything, "adults")
        names = [each["id"] for each in found]
        body = {"identifiers": [*names[:5], "user_id:nobody"]}
        items = client.call("POST", "segments", "member-of", body=body)["items"]
        memberships = [each["segments"] for each in items]
        assert all("adults" in each for each in memberships[:-1] if each)
        assert memberships[-1] is None


def test_one_segment(everything: httpx.Client) -> None:
    found = everything.get("/v1/segments/adults").json()
    assert found == {
        "name": "adults",
        "version": 1,
        "description": "",
        "purpose": None,
        "q": None,
        "query": [
            {"range": {"path": "demographics.age", "lower": 40, "include_lower": True, "include_upper": True}}
        ],
        "changes": False,
        "attributes": ["demographics.age"],
        "used_by": [],
    }
    fields = everything.get("/v1/segments/adults/members?fields=demographics.age&limit=1").json()
    assert fields["items"][0]["attributes"]["demographics"].keys() == {"age"}
    page = everything.get("/v1/segments/adults/members?limit=1").json()
    problem(everything.get("/v1/search", params={"cursor": page["next"]}), 400)
    problem(everything.get("/v1/segments/nothing"), 404)
    problem(everything.get("/v1/segments/adults/members?cursor=nonsense"), 400)
    problem(everything.post("/v1/segments/member-of", json={"identifiers": ["a:b"] * 101}), 422)
    items = everything.post("/v1/segments/member-of", json={"identifiers": ["user_id:nobody"]}).json()[
        "items"
    ]
    assert items == [{"identifier": "user_id:nobody", "segments": None}]


def test_a_segment_that_asks_for_something_hidden_does_not_exist(
    everything: httpx.Client, none: httpx.Client
) -> None:
    def names(client: httpx.Client) -> list[str]:
        return [each["name"] for each in client.get("/v1/segments").json()["items"]]

    # The one that asks for a value of a protected attribute exists for nobody.
    assert names(everything) == list(SEGMENTS)
    assert names(none) == ["everybody", "ios", "not-ios"]
    for part in ("", "/count", "/members"):
        for name in ("adults", "contactable", "words", "z"):
            refused = problem(none.get(f"/v1/segments/{name}{part}"), 404)
            assert refused == problem(none.get(f"/v1/segments/nothing{part}"), 404)
    anonymous = "anonymous_id:faf6ec9d-393c-4a40-8401-7f25e6f50aaa"
    body = {"identifiers": [anonymous, "user_id:4493"]}
    first, hidden = none.post("/v1/segments/member-of", json=body).json()["items"]
    assert not {"adults", "words"} & {*first["segments"]}
    assert "everybody" in first["segments"]
    assert hidden["segments"] is None


def test_a_segment_with_a_purpose_has_those_who_consented(tmp_path: Path) -> None:
    pipeline = made(tmp_path / "p", decided(1, "given", source="phone"), consents_marketing=60)
    with started(tmp_path, pipeline) as served:
        everything, half = served.client("everything"), served.client("half")
        both = [segment("m", purpose="marketing"), segment("r", purpose="research")]
        with published(served, with_segments(pipeline.snapshot, *both)):
            (member,) = members(everything, "m")
            assert member["consents"] == [{"purpose": "marketing", "source": "phone", "time": None}]
            (member,) = members(half, "m")
            assert member["consents"] == [{"purpose": "marketing"}]
            assert "consents" not in member["attributes"]
            assert members(half, "r") == []
            body = {"identifiers": ["user_id:ann"]}
            (item,) = half.post("/v1/segments/member-of", json=body).json()["items"]
            assert item["segments"] == ["m"]
            pipeline.process([decided(2, "withdrawn")])
            assert members(half, "m") == []
            assert half.get("/v1/segments/m/count").json() == {"count": 0, "without_consent": 1}
            (item,) = half.post("/v1/segments/member-of", json=body).json()["items"]
            assert item["segments"] == []


def test_the_feed_has_who_entered_and_left_and_hides_hidden_segments(tmp_path: Path) -> None:
    first = decided(1, "given", source="phone")
    pipeline = made(tmp_path / "p", consents_marketing=60)
    open_one, hidden = segment("everybody"), segment("phoned", Term("consents.marketing.source", "phone"))
    pipeline.snapshot = with_segments(pipeline.snapshot, open_one, hidden)
    for event in (first, decided(2, "withdrawn", source="shop"), decided(3, "given", source="phone")):
        pipeline.process([event])
    with started(tmp_path, pipeline) as served, ProfilesClient(served.url, "everything") as everything:
        half = served.client("half")
        kinds = [(each["segment"], each["kind"], each["profile"]) for each in everything.changes()]
        assert kinds == [
            ("everybody", "entered", "user_id:ann"),
            ("phoned", "entered", "user_id:ann"),
            ("phoned", "left", "user_id:ann"),
            ("phoned", "entered", "user_id:ann"),
        ]
        assert [each["kind"] for each in everything.changes(segment="phoned")] == [
            "entered",
            "left",
            "entered",
        ]
        seen = half.get("/v1/changes").json()
        assert [each["segment"] for each in seen["items"]] == ["everybody"]
        assert half.get("/v1/changes", params={"cursor": seen["next"]}).json()["items"] == []
        refused = problem(half.get("/v1/changes?segment=phoned"), 404)
        assert refused == problem(half.get("/v1/changes?segment=nothing"), 404)
        pipeline.store.erase(["user_id:ann"], 10)
        Projection(pipeline.store, pipeline.index, pipeline.rules).project(["user_id:ann"])
        *_, left = everything.changes(segment="everybody")
        assert (left["kind"], left["profile"][0]) == ("left", "~")


def test_the_feed_has_who_changed_for_those_who_may_see_all(tmp_path: Path) -> None:
    pipeline = made(tmp_path / "p", consents_marketing=60)
    told = segment("told").model_copy(update={"changes": True})
    pipeline.snapshot = with_segments(pipeline.snapshot, told, segment("untold"))
    events = [decided(1, "given", source="phone"), decided(2, "withdrawn", source="shop")]
    pipeline.process(events[:1])
    with started(tmp_path, pipeline) as served, ProfilesClient(served.url, "everything") as everything:

        def kinds(cursor: str = "") -> list[tuple[str, str]]:
            return [(each["segment"], each["kind"]) for each in everything.changes(cursor, "told")]

        *_, last = everything.changes()
        assert kinds() == [("told", "entered"), ("told", "changed")]
        pipeline.process([events[0]])
        assert kinds(last["cursor"]) == [], "nothing has changed"
        pipeline.process(events[1:])
        assert kinds(last["cursor"]) == [("told", "changed")]
        half = served.client("half")
        seen = half.get("/v1/changes").json()
        shown = [(each["segment"], each["kind"]) for each in seen["items"]]
        assert shown == [("told", "entered"), ("untold", "entered")]
        lengths = set()
        for number in range(10, 24):
            pipeline.process([decided(number, "given" if number % 2 else "withdrawn")])
            none = half.get("/v1/changes", params={"cursor": seen["next"]}).json()
            assert none["items"] == []
            lengths.add(len(none["next"]))
        assert len(lengths) == 1
