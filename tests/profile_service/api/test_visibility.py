"""Attributes that a caller may not see are absent, everywhere: a hidden attribute answers as one that does not
exist."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from idgraph.client import ProfilesClient
from idgraph.model.callers import CallerList
from idgraph.model.snapshots import DiscoveryDefaults, MetadataSnapshot
from profile_service.visibility import AuthorizationLevels, Visibility
from sinks.index_values import cursor_of
from sinks.tantivy.index import TantivyProfileIndex
from tests.profile_service.api.conftest import (
    LEVELS,
    Served,
    caller,
    identified,
    problem,
    published,
    started,
    with_levels,
)
from tests.retail import Pipeline, attribute, records, snapshot
from transforms.privacy.protected_names import TombstoneNames
from transforms.schema.policy_tree import PolicyTree

pytestmark = pytest.mark.slow


USER = "user_id:4493"
ANONYMOUS = "anonymous_id:faf6ec9d-393c-4a40-8401-7f25e6f50aaa"
HIDDEN = {
    "demographics.age": "demographicx.age",
    "activity.search.query": "activitx.search.query",
    # Open and sealed ones beside each other, below an attribute that is protected or not.
    "payment.card": "payment.cart",
    "payment.bank.iban": "payment.bank.name",
    "demographics.income": "demographics.incomx",
    # Spelled in another way.
    r"demographics.a\ge": r"demographics.a\gx",
}
"""Attributes that a caller without clearance does not see, each with a name of the same length that nothing has."""
PROTECTED = ("payment", "demographics.income")
PAYMENT = [
    attribute("payment", encryption="protected"),
    attribute("payment.card", status="active", authorization_level=30),
    attribute("payment.bank.iban", authorization_level=30, encryption="searchable"),
    attribute("demographics.income", authorization_level=30, encryption="protected"),
]

Ask = Callable[[httpx.Client, str], httpx.Response]
ASKED: dict[str, Ask] = {
    "term": lambda client, path: client.get("/v1/search", params={"q": f"{path}=37"}),
    "not": lambda client, path: client.get("/v1/search", params={"q": f"NOT {path}=37", "limit": 3}),
    "or": lambda client, path: client.get("/v1/search", params={"q": f"{path}=37 OR activity.platform=ios"}),
    "exists": lambda client, path: client.get("/v1/search", params={"q": f"{path}=*"}),
    "not exists": lambda client, path: client.get("/v1/search/count", params={"q": f"NOT {path}=*"}),
    "range": lambda client, path: client.get("/v1/search", params={"q": f"{path}>=3"}),
    "prefix": lambda client, path: client.get("/v1/search", params={"q": f"{path}=M*"}),
    "words": lambda client, path: client.get("/v1/search", params={"q": f"{path}:makeup"}),
    "words or": lambda client, path: client.get(
        "/v1/search", params={"q": f"{path}:makeup OR activity.platform=ios", "limit": 3}
    ),
    "sort": lambda client, path: client.get("/v1/search", params={"sort": path, "limit": 5}),
    "sort down": lambda client, path: client.get("/v1/search", params={"sort": f"-{path}", "limit": 5}),
    "words sorted": lambda client, path: client.get("/v1/search", params={"q": "ios", "sort": path}),
    "facets": lambda client, path: client.get("/v1/search/facets", params={"path": path}),
    "count": lambda client, path: client.get("/v1/search/count", params={"q": f"{path}=37"}),
    "fields": lambda client, path: client.get(f"/v1/profiles/{ANONYMOUS}", params={"fields": path}),
    "json": lambda client, path: client.post("/v1/search", json={"query": [{"exists": {"path": path}}]}),
    "mistyped words": lambda client, path: client.post(
        "/v1/search", json={"query": [{"words": {"words": "makeup", "path": path, "edits": 1}}]}
    ),
    "json type": lambda client, path: client.post(
        "/v1/search", json={"query": [{"term": {"path": path, "value": True}}]}
    ),
}


OTHERS: tuple[dict[str, Any], ...] = (
    {},
    {"sort": "$none"},
    {"sort": "-$none"},
    {"sort": "payment.$none"},
    {"q": "ios"},
    {"q": "activity.platform=ios"},
)
"""Further searches, of which a cursor is not."""


@pytest.fixture(scope="module", params=["memory", "tantivy"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """With each embedded index: that in memory takes a cursor of any search."""
    folder = tmp_path_factory.mktemp("profiles")
    known = with_levels(LEVELS)
    pipeline = Pipeline(
        folder, snapshot=known.model_copy(update={"attributes": (*known.attributes, *PAYMENT)})
    )
    if request.param == "tantivy":
        pipeline.index = TantivyProfileIndex(folder / "index", TombstoneNames(pipeline.provider))
    pipeline.process(records(400))
    with started(folder, pipeline) as served:
        yield served


@pytest.mark.parametrize("kind", ASKED)
def test_a_hidden_attribute_answers_as_an_unknown_one(
    none: httpx.Client, everything: httpx.Client, kind: str
) -> None:
    for path, nothing in HIDDEN.items():
        hidden, unknown = ASKED[kind](none, path), ASKED[kind](none, nothing)
        assert hidden.status_code == unknown.status_code
        assert hidden.status_code == 200 or path.startswith("payment"), hidden.text
        assert comparable(hidden, path) == comparable(unknown, nothing)
        assert ASKED[kind](everything, path).status_code == 200 or path.startswith(PROTECTED)


def test_a_cursor_says_nothing_of_a_hidden_attribute(none: httpx.Client) -> None:
    """Found by review: that of a hidden attribute was another search's."""
    for path in ("demographics.age", HIDDEN["demographics.age"], "demographics.income"):
        for kind in ("not", "sort", "sort down", "words sorted", "words or"):
            cursor = ASKED[kind](none, path).json()["next"]
            for other in OTHERS:
                problem(none.get("/v1/search", params=other | {"cursor": cursor}), 400)


def comparable(answer: httpx.Response, path: str) -> Any:
    found = answer.json()
    for name in ("next", "search"):
        # They are sealed: as long as what they hold.
        if found.get(name):
            found[name] = len(found[name])
    return json.loads(json.dumps(found).replace(json.dumps(path)[1:-1], "PATH"))


def test_nobody_reads_what_another_caller_typed(everything: httpx.Client, none: httpx.Client) -> None:
    token = everything.get("/v1/search?q=demographics.age=37").json()["search"]
    assert everything.post("/v1/search", json={"search": token}).json()["q"] == "demographics.age=37"
    problem(none.post("/v1/search", json={"search": token}), 400)


def test_those_who_may_see_it_find_it(
    everything: httpx.Client, half: httpx.Client, none: httpx.Client
) -> None:
    for client, is_found in ((everything, True), (half, True), (none, False)):
        assert bool(client.get("/v1/search/count?q=demographics.age=37").json()["count"]) is is_found
        assert (
            bool(client.get("/v1/search/facets?path=demographics.age").json()["facets"]["demographics.age"])
            is is_found
        )
        profile = client.get(f"/v1/profiles/{ANONYMOUS}").json()
        assert ("age" in profile["attributes"]["demographics"]) is is_found


def test_words_find_only_what_is_visible(everything: httpx.Client, none: httpx.Client) -> None:
    assert everything.get("/v1/search/count?q=rendezvous").json()["count"] > 0
    assert none.get("/v1/search/count?q=rendezvous").json() == {"count": 0}
    for word in ("guitar", "jewelry", "ios", "floral jewelry", "jewel*"):
        visible = none.get("/v1/search/count", params={"q": word}).json()["count"]
        assert visible <= everything.get("/v1/search/count", params={"q": word}).json()["count"]
    assert none.get("/v1/search/count?q=ios").json()["count"] > 0


def test_a_hidden_identifier_neither_shows_nor_finds(everything: httpx.Client, half: httpx.Client) -> None:
    assert everything.get(f"/v1/profiles/{USER}").status_code == 200
    problem(half.get(f"/v1/profiles/{USER}"), 404)
    shown = half.get(f"/v1/profiles/{ANONYMOUS}?provenance=true").text
    # The user name of the example, `user4493`, is an attribute that nobody hid.
    assert "4493" not in shown.replace("user4493", "")
    assert "user_id" not in [each["type"] for each in json.loads(shown)["identifiers"]]
    assert (
        half.post("/v1/profiles/lookup", json={"identifiers": [USER]}).json()["items"][0]["profile"] is None
    )


def test_a_cursor_holds_no_id_and_is_no_place_of_its_holders_making(half: httpx.Client) -> None:
    """Found by review: it held the stored id of the last profile, hidden or not, and any place was believed."""
    page = half.get("/v1/search?limit=1").json()
    cursor: str = page["next"]
    held = base64.urlsafe_b64decode(cursor + "==")
    assert not any(kind in held for kind in (b"user_id", b"anonymous_id", b"email", b"device_id"))
    assert half.get(f"/v1/search?limit=1&cursor={cursor}").json()["items"] != page["items"]
    for place in (["by id", {"id": "str:user_id:4493"}], ["ranked", 10**12]):
        problem(half.get(f"/v1/search?q=guitar&cursor={cursor_of(place)}"), 400)
    problem(half.get("/v1/changes?cursor=1"), 400)


def test_links_and_histories_hide_identifiers_too(everything: httpx.Client, half: httpx.Client) -> None:
    for part in ("explain", "history"):
        problem(half.get(f"/v1/profiles/{USER}/{part}"), 404)
        shown = half.get(f"/v1/profiles/{ANONYMOUS}/{part}")
        assert shown.status_code == 200
        assert "user_id:4493" in everything.get(f"/v1/profiles/{ANONYMOUS}/{part}").text
        assert "4493" not in shown.text.replace("user4493", "")
    assert re.search("user_id:[^~]", everything.get("/v1/changes?limit=1000").text)
    hidden = half.get("/v1/changes?limit=1000")
    assert "user_id:~" in hidden.text
    assert all(
        move[name].partition(":")[2].startswith("~")
        for move in hidden.json()["items"]
        for name in ("fragment", "previous", "profile")
        if move[name].startswith("user_id:")
    )


def test_suggestions_name_nothing_hidden(everything: httpx.Client, none: httpx.Client) -> None:
    (seen,) = everything.get("/v1/search", params={"q": "demographics.agee=37"}).json()["warnings"]
    assert "demographics.age?" in seen
    (unseen,) = none.get("/v1/search", params={"q": "demographics.agee=37"}).json()["warnings"]
    assert "demographics.age?" not in unseen
    for sort in ("demographics.agee", "-demographics.agee"):
        assert everything.get("/v1/search", params={"sort": sort}).json()["warnings"] == [seen]
        assert none.get("/v1/search", params={"sort": sort}).json()["warnings"] == [unseen]
    assert everything.get("/v1/search?sort=demographics.age").json()["warnings"] == []
    (hidden,) = none.get("/v1/search?sort=demographics.age").json()["warnings"]
    assert hidden.startswith("no attribute is called demographics.age;")


WARNED: dict[str, Callable[[httpx.Client, str], httpx.Response]] = {
    "count": lambda client, path: client.get("/v1/search/count", params={"q": f"{path}=37"}),
    "count by body": lambda client, path: client.post("/v1/search/count", json={"q": f"NOT {path}=4"}),
    "facets": lambda client, path: client.get("/v1/search/facets", params={"path": path}),
    "facets of": lambda client, path: client.get(
        "/v1/search/facets", params={"path": "activity.platform", "q": f"{path}=*"}
    ),
    "fields": lambda client, path: client.get("/v1/search", params={"limit": 1, "fields": path}),
    "look-up": lambda client, path: client.get(f"/v1/profiles/{ANONYMOUS}", params={"fields": path}),
    "batch": lambda client, path: client.post(
        "/v1/profiles/lookup", json={"identifiers": [ANONYMOUS], "fields": [path, "activity"]}
    ),
}


@pytest.mark.parametrize("route", WARNED)
def test_every_answer_warns_of_what_no_attribute_is_called(
    everything: httpx.Client, none: httpx.Client, route: str
) -> None:
    ask = WARNED[route]
    assert not ask(everything, "demographics.age").json().get("warnings")
    (said,) = ask(everything, "demographics.agee").json()["warnings"]
    assert "did you mean demographics.age?" in said
    # One that is hidden is one that there is not.
    for path in ("demographics.age", "demographics.agee"):
        (hidden,) = ask(none, path).json()["warnings"]
        assert f" {path}" in hidden
        assert "demographics.age?" not in hidden


def test_the_client_passes_warnings_on(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    said: list[str] = []
    with (
        ProfilesClient(served.url, "everything", warn=said.append) as client,
        ProfilesClient(served.url, "everything") as logging,
    ):
        assert list(client.search("demografics.age>=3", page=1)) == []
        assert client.count("demografics.age>=3") == 0
        assert client.facets("demografics.age") == []
        assert client.lookup(ANONYMOUS, fields=["demografics"]) is not None
        assert len(list(client.search("", page=100, fields=["demografics"]))) > 100
        assert len(said) == 5
        assert logging.count("demografics.age>=3") == 0
    assert "demographics.age" in caplog.text


def test_a_changed_level_holds_from_the_next_snapshot_on(served: Served, half: httpx.Client) -> None:
    assert "gender" in half.get(f"/v1/profiles/{ANONYMOUS}").json()["attributes"]["demographics"]
    with published(served, with_levels({"demographics": 90})):
        assert "demographics" not in half.get(f"/v1/profiles/{ANONYMOUS}").json()["attributes"]


def test_a_value_above_a_hidden_attribute_is_hidden_and_so_is_one_below() -> None:
    from profile_service.visibility import AuthorizationLevels, Visibility

    declared = [attribute("a.b", authorization_level=50), attribute("c")]
    levels = AuthorizationLevels(snapshot(declared=declared, specs=[]))
    seen = {path for path in ("a", "a.b", "a.b.c", "a.c", "c", "d") if Visibility(levels, 49).sees(path)}
    assert seen == {"a.c", "c", "d"}
    assert Visibility(levels, 50).is_total


def test_an_undeclared_attribute_has_the_level_of_the_defaults_and_a_declared_one_its_own() -> None:
    declared = [
        attribute("a.b", authorization_level=70),
        attribute("c"),
        attribute("c.e", authorization_level=10),
    ]
    strict = DiscoveryDefaults(authorization_level=50)
    tree = PolicyTree(snapshot(declared=declared, specs=[]).model_copy(update={"defaults": strict}))
    levels = {"a": 70, "a.b": 70, "a.b.x": 70, "a.x": 50, "c": 10, "c.e": 10, "c.x": 50, "d": 50}
    assert {path: tree.level(path) for path in levels} == levels
    assert {path: tree.policy(path).authorization_level for path in levels} == levels


def by_default(level: int, *, without: Collection[str] = ()) -> MetadataSnapshot:
    """The example's snapshot under discovery defaults of a level; it does not know the attributes `without`."""
    known = with_levels({})
    attributes = tuple(each for each in known.attributes if each.path not in without)
    defaults = known.defaults.model_copy(update={"authorization_level": level})
    return known.model_copy(update={"attributes": attributes, "defaults": defaults})


@pytest.mark.parametrize("kind", ASKED)
def test_the_level_of_the_defaults_holds_for_attributes_that_the_catalogue_does_not_have(
    served: Served, none: httpx.Client, everything: httpx.Client, kind: str
) -> None:
    """Not discovered yet, beyond a bound, purged."""
    path, nothing = "demographics.age", HIDDEN["demographics.age"]
    with published(served, by_default(50, without=[path])):
        hidden, unknown = ASKED[kind](none, path), ASKED[kind](none, nothing)
        # By an identifier that is taken from an attribute that nobody declared, nobody is found.
        assert hidden.status_code == unknown.status_code == (404 if kind == "fields" else 200)
        assert comparable(hidden, path) == comparable(unknown, nothing)
        assert ASKED[kind](everything, path).status_code == 200


def test_what_the_defaults_hide_is_in_no_profile_and_what_is_declared_open_is(
    served: Served, none: httpx.Client, half: httpx.Client
) -> None:
    name = f"/v1/profiles/{ANONYMOUS}"
    with published(served, by_default(50, without=["demographics.age"])):
        problem(none.get(name), 404)  # its identifier is taken from an attribute that nobody declared
        assert "age" in half.get(name).json()["attributes"]["demographics"]
        items = none.get("/v1/search", params={"limit": 50, "provenance": True}).json()["items"]
        declared = {each.path for each in served.pipeline.snapshot.attributes}
        assert {path for each in items for path in each["provenance"]} <= declared - {"demographics.age"}


def test_a_value_that_a_detector_sealed_needs_its_clearance_before_the_catalogue_knows_of_it(
    tmp_path: Path,
) -> None:
    pipeline = Pipeline(tmp_path, snapshot=snapshot(declared=[]))
    pipeline.process([identified("7001", "ada@example.com")])
    with started(tmp_path, pipeline) as served:
        seen, unseen = (
            served.client(each).get("/v1/profiles/user_id:7001").json() for each in ("everything", "half")
        )
        assert seen["attributes"]["identity"]["email"] == {"$protected": True}
        assert "email" not in unseen["attributes"]["identity"]


def test_explain_shows_candidates_that_lost_and_hides_hidden_ones(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, snapshot=with_levels(LEVELS))
    pipeline.process(records(400))
    with started(tmp_path, pipeline) as served:
        everything, none = served.client("everything"), served.client("none")
        name = "anonymous_id:0657279b-9fb4-4031-93df-ab2c8311745e"
        found = {each["path"]: each for each in explained(everything, name)}
        for client in (everything, none):
            whole = client.get(f"/v1/profiles/{name}?provenance=true").json()
            assert {each["path"]: each["event"] for each in explained(client, name)} == {
                path: each["event"] for path, each in whole["provenance"].items()
            }
        for each in found.values():
            stamps = [(said["priority"], said["ordinal"]) for said in (each, *each["lost"])]
            assert stamps == sorted(stamps, reverse=True)
        seen = found["activity.lastEvent"]
        assert (seen["value"], [each["value"] for each in seen["lost"]]) == ("Purchase", ["View"])
        sealed = found["identity.email"]
        assert sealed["lost"]
        assert all(each["value"] == {"$protected": True} for each in (sealed, *sealed["lost"]))


def explained(client: httpx.Client, name: str) -> list[dict[str, Any]]:
    (found,) = client.get(f"/v1/profiles/{name}/explain").json()["items"]
    values: list[dict[str, Any]] = found["values"]
    return values


def test_identifiers_that_no_active_spec_takes_are_hidden_with_the_rest() -> None:
    """Found by review: a spec that was retired showed what had been hidden."""
    levels = with_levels(LEVELS)
    retired = levels.model_copy(update={"specs": ()})
    assert Visibility(AuthorizationLevels(levels), 50).sees_type("anonymous_id")
    for kind in ("user_id", "anonymous_id"):
        assert not Visibility(AuthorizationLevels(retired), 50).sees_type(kind)
        assert Visibility(AuthorizationLevels(retired), 100).sees_type(kind)


def test_a_right_of_a_later_version_is_none() -> None:
    """Found by review: the whole list was refused, and revoked tokens stayed in force."""
    known = caller("crm", 20).model_dump(mode="json")
    (read,) = CallerList.model_validate(
        {"callers": [known | {"scopes": ["rules", "future"], "more": 1}], "x": 1}
    ).callers
    assert read.scopes == {"rules"}
