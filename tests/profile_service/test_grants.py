"""Grants to a caller, by a model of visibility, and on the running services."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idgraph.model.attributes import AttributeMetadata, DataType
from idgraph.model.callers import CallerList, Grant, KnownPerson, PersonGrant, Role, token_digest
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.web.openid import ClaimRule, Identity
from profile_service.api.following import Following
from profile_service.visibility import AuthorizationLevels, Visibility
from tests.lanes import examples
from tests.profile_service.api.conftest import (
    Metadata,
    Served,
    caller,
    problem,
    published,
    served_here,
    with_levels,
)
from tests.retail import Pipeline, records, snapshot
from tests.support.patience import eventually

PATHS = ["a", "a.b", "a.b.c", "a.d", "ab", "e"]
AGE = "demographics.age"


def attribute(path: str, level: int) -> AttributeMetadata:
    return AttributeMetadata(
        path=path,
        data_type=DataType.STRING,
        authorization_level=level,
        version=1,
        created=datetime(2026, 1, 1, tzinfo=UTC),
    )


@settings(max_examples=examples(200), deadline=None)
@given(
    st.dictionaries(st.sampled_from(PATHS), st.integers(0, 5)),
    st.integers(0, 5),
    st.frozensets(st.tuples(st.sampled_from(PATHS), st.integers(0, 5)), max_size=3),
)
def test_a_grant_shows_its_attribute_up_to_its_level_and_nothing_else(
    levels: dict[str, int], clearance: int, granted: frozenset[tuple[str, int]]
) -> None:
    found = AuthorizationLevels(
        MetadataSnapshot(version=1, attributes=tuple(attribute(*each) for each in levels.items()))
    )
    without, sees = Visibility(found, clearance).sees, Visibility(found, clearance, granted).sees
    for path in PATHS:
        related = [
            level
            for each, level in levels.items()
            if f"{path}.".startswith(f"{each}.") or each.startswith(f"{path}.")
        ]
        needed = max(related, default=0)
        is_granted = any(f"{path}.".startswith(f"{each}.") and needed <= level for each, level in granted)
        assert without(path) is (needed <= clearance)
        assert sees(path) is (needed <= clearance or is_granted)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    pipeline = Pipeline(tmp_path, snapshot=with_levels({AGE: 60, "identity.userId": 60}))
    pipeline.process(records(400))
    with ExitStack() as stack:
        yield stack.enter_context(served_here(pipeline, [caller("growth", 10), caller("officer", 100)]))


def granting(served: Served, *grants: Grant) -> None:
    """The next list of callers has these grants."""
    known = served.metadata.callers_now[0]
    served.metadata.callers_now[0] = known.model_copy(update={"grants": grants})
    while served.following.caller("growth") != served.metadata.callers_now[0]:
        pass


def until(**ahead: float) -> datetime:
    return datetime.now(UTC) + timedelta(**ahead)


def count(client: httpx.Client, query: str) -> int:
    answer = client.get("/v1/search/count", params={"q": query})
    answer.raise_for_status()
    return int(answer.json()["count"])


def test_a_grant_shows_one_attribute_everywhere_until_it_ends(served: Served) -> None:
    growth, officer = served.client("growth"), served.client("officer")
    asked = f"{AGE}>0"
    everybody = count(officer, asked)
    assert everybody > 0
    assert count(growth, asked) == 0
    granting(served, Grant(path=AGE, level=60, until=until(hours=1)))
    assert count(growth, asked) == everybody
    shown: list[dict[str, Any]] = growth.get("/v1/search", params={"q": asked, "limit": 5}).json()["items"]
    assert all("age" in each["attributes"]["demographics"] for each in shown)
    assert all(each["type"] != "user_id" for item in shown for each in item["identifiers"])
    assert growth.get("/v1/search/facets", params={"path": AGE}).json()["facets"][AGE]
    # The same list of callers, when the time is over.
    granting(served, Grant(path=AGE, level=60, until=until(seconds=-1)))
    assert count(growth, asked) == 0
    assert '"age"' not in growth.get("/v1/search", params={"limit": 5}).text


def test_a_grant_does_not_show_what_became_more_secret(served: Served) -> None:
    growth = served.client("growth")
    granting(served, Grant(path=AGE, level=59, until=until(hours=1)))
    assert count(growth, f"{AGE}>0") == 0


def test_a_granted_identifier_finds(served: Served) -> None:
    growth, officer = served.client("growth"), served.client("officer")
    found = officer.get("/v1/search", params={"q": "identity.userId=*", "limit": 1}).json()["items"][0]
    (name,) = [f"user_id:{each['value']}" for each in found["identifiers"] if each["type"] == "user_id"]
    problem(growth.get(f"/v1/profiles/{name}"), 404)
    granting(served, Grant(path="identity.userId", level=60, until=until(hours=1)))
    assert growth.get(f"/v1/profiles/{name}").status_code == 200
    hidden = served.pipeline.snapshot
    with published(served, hidden.model_copy(update={"specs": ()})):
        problem(growth.get(f"/v1/profiles/{name}"), 404)


class _SignedIn(Metadata):
    """Ann signs in by an issuer; `callers_now` says whether something is granted to her."""

    def caller_list(self) -> CallerList:
        ann = KnownPerson(identity=token_digest("issuer 7"), name="ann", is_disabled=False)
        grants = [
            PersonGrant(person="ann", path=AGE, level=60, until=until(hours=1)) for _ in self.callers_now
        ]
        return CallerList(callers=(), people=(ann,), grants=tuple(grants))


def test_a_stream_by_single_sign_on_has_the_grants_of_now() -> None:
    metadata = _SignedIn(snapshot(), [caller("granted", 0)])
    signed = Identity("issuer 7", "7", "ann", ClaimRule("groups", "people", Role.VIEWER, 20), until(hours=1))
    with Following(metadata) as following:
        eventually(following.is_ready)
        begun = following.admitted(signed)
        assert begun is not None
        assert [each.path for each in begun.grants] == [AGE]

        def present() -> int:
            still = following.still(begun)
            assert still is not None
            return len(still.grants)

        metadata.callers_now.clear()
        eventually(lambda: present() == 0)
        metadata.callers_now.append(caller("granted", 0))
        eventually(lambda: present() == 1)
