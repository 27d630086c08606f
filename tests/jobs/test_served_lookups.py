"""Notes of served look-ups: features as of their moments are what was served, or it shows."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from idgraph.jobs.features.check import CheckedLookups, FeatureCheck
from idgraph.jobs.features.served import ServedHashes, ServedLookups, notes, rules_of, sweep
from idgraph.model.canonical import encode
from idgraph.model.identifiers import Identifier
from idgraph.model.timelines import DAY_MS
from idgraph.projection.behaviour import BehaviourReader
from sinks.document_folder import DocumentFolder
from tests.jobs.test_features import email, iso
from tests.profile_service.api.conftest import Served, caller, published, served_here
from tests.projection.test_behaviour import COUNT, ORDER, SESSIONS, SUM, derived, with_behaviour
from tests.retail import Pipeline, attribute, order
from transforms.privacy.protected_names import TombstoneNames

PERSONS = 6
SHARE = derived("behaviour.share", expression="behaviour.sessions.count")
MIXED = derived("behaviour.mixed", expression="[behaviour.orders30d, address.shipping.city]")
HIDDEN = "behaviour.sessions.count"


class Noted:
    """A service that notes all look-ups."""

    def __init__(self, served: Served) -> None:
        pipeline = self.pipeline = served.pipeline
        self.served = served
        self.documents = DocumentFolder(pipeline.folder)
        provider = pipeline.provider
        self.hashes = ServedHashes(provider.purpose_key("served"), TombstoneNames(provider))
        served.service.served = self.log = ServedLookups(self.documents, self.hashes, 1.0)

    def look(self, persons: Iterator[int] | range = range(PERSONS), token: str = "everything") -> int:
        """Look each up by each way; the number of look-ups."""
        client, names = self.served.client(token), [email(each) for each in persons]
        for name in names:
            self.get(client, name)
        answer = client.post("/v1/profiles/lookup", json={"identifiers": names})
        assert all(item["profile"] for item in answer.json()["items"])
        return 2 * len(names)

    def get(self, client: httpx.Client, name: str) -> dict[str, Any]:
        answer = client.get(f"/v1/profiles/{name}")
        assert answer.status_code == 200
        found: dict[str, Any] = answer.json()
        return found

    def order(self, number: int, person: int = 0, days_ago: float = 2) -> None:
        created_at = iso(int(1000 * time.time()) - int(days_ago * DAY_MS))
        self.pipeline.process(
            [
                order(
                    person,
                    number,
                    order_id=f"L{number}",
                    created_at=created_at,
                    cart={"total": "5.00", "items": 1},
                )
            ]
        )

    def checked(self) -> CheckedLookups:
        self.log.flush()
        reader = self.pipeline.reader()
        rules = rules_of(self.pipeline.snapshot)
        check = FeatureCheck(reader, self.pipeline.store, self.hashes, rules, scans=True)
        return check.of(list(notes(self.documents)))


@pytest.fixture
def noted(tmp_path: Path) -> Iterator[Noted]:
    known = with_behaviour((ORDER,), (COUNT, SUM, SESSIONS, SHARE, MIXED))
    levels = (*known.attributes, attribute(HIDDEN, "integer", authorization_level=95))
    pipeline = Pipeline(tmp_path, snapshot=known.model_copy(update={"attributes": levels}), now=time.time)
    with served_here(pipeline, [caller("everything", 100), caller("half", 90)]) as served:
        made = Noted(served)
        for number, person in enumerate([*range(PERSONS)] * 4, 1):
            made.order(number, person, days_ago=number)
        yield made


def test_features_are_what_was_served_to_each_caller(noted: Noted) -> None:
    expected = noted.look() + noted.look() + noted.look(token="half")
    found = noted.checked()
    assert found.outcomes == Counter(same=expected)
    assert found.share == 0
    seen, hidden = (
        [each.values for each in notes(noted.documents) if each.clearance == level] for level in (100, 90)
    )
    assert len(seen) == 2 * len(hidden)
    # Only what depends on timelines alone.
    assert {*next(notes(noted.documents)).values} == {
        *("behaviour.orders30d", "behaviour.revenue", "behaviour.sessions", "behaviour.share")
    }


def test_late_events_are_reported_by_themselves(noted: Noted) -> None:
    for number in range(1, 3):
        noted.look(range(2))
        noted.order(100 + number)
    noted.look(range(2))
    found = noted.checked()
    assert found.outcomes == Counter(same=8, late=4)
    assert not found.attributes


def test_an_event_that_was_there_before_a_stale_answer_is_no_excuse(
    noted: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = noted.served.client("everything")
    noted.get(client, email(0))
    caller_of, has = noted.served.following.caller_named("everything"), lambda _: False
    assert caller_of is not None
    stale = noted.served.service._plain(caller_of, Identifier.parse(email(0)), has)
    monkeypatch.setattr(noted.served.service, "_plain", lambda *_: stale)
    noted.order(100)
    before = noted.get(client, email(0))
    monkeypatch.undo()
    assert noted.get(client, email(0)) != before
    found = noted.checked()
    # The first one cannot be told from one that was right.
    assert found.outcomes == Counter(late=1, differs=1, same=1)
    assert found.attributes["behaviour.orders30d"] + found.attributes["behaviour.sessions"] > 0
    assert [each["attributes"] for each in found.examples] == [sorted(found.attributes)]


def test_another_value_differs(noted: Noted, monkeypatch: pytest.MonkeyPatch) -> None:
    derive = BehaviourReader.of

    def wrong(own: BehaviourReader, persons: Any, now_ms: int) -> Any:
        return derive(own, persons, now_ms - 40 * 365 * 86_400_000)

    with monkeypatch.context() as patch:
        patch.setattr(BehaviourReader, "of", wrong)
        noted.look(range(1))
    assert noted.checked().outcomes == Counter(differs=2)


def test_what_cannot_be_compared_is_counted(noted: Noted) -> None:
    noted.look(range(2))
    (own,) = noted.pipeline.reader().owners(Identifier.parse(email(0))).persons
    noted.pipeline.store.erase([each.stored.id for each in own.members], until=0)
    assert noted.checked().outcomes == Counter(same=2, gone=2)
    newer = noted.pipeline.snapshot.model_copy(update={"behaviour_version": 2})
    with published(noted.served, newer):
        noted.pipeline.snapshot = newer
        assert noted.checked().outcomes == Counter(redefined=2, gone=2)


def test_notes_have_no_value_and_no_id(noted: Noted) -> None:
    noted.look(range(1))
    noted.log.flush()
    (name,) = noted.documents.names("served/*")
    content = noted.documents.read(name) or b""
    first, second = json.loads(content)
    (own,) = noted.pipeline.reader().lookup(Identifier.parse(email(0)))
    for text in (own.id, email(0), "O1", *(str(each) for each in own.identifiers)):
        assert encode(text).strip(b'"') not in content
    # Of equal values, two notes have two hashes.
    assert first[2:5] == second[2:5]
    assert not {*first[6].values()} & {*second[6].values()}


def test_documents_are_bounded(noted: Noted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("idgraph.jobs.features.served.NOTES_AT_ONCE", 2)
    monkeypatch.setattr("idgraph.jobs.features.served.MOST_DOCUMENTS", 2)
    for _ in range(3):
        noted.look(range(2))
        noted.log.flush()
    assert len(list(notes(noted.documents))) == 6
    assert len(noted.documents.names("served/*")) == 3


def test_notes_go_with_their_time(noted: Noted, monkeypatch: pytest.MonkeyPatch) -> None:
    noted.look(range(2))
    noted.log.flush()
    now = time.time_ns() // 1_000_000
    monkeypatch.setattr("idgraph.jobs.features.served._now_ms", lambda: now + 2 * DAY_MS)
    noted.look(range(2))
    noted.log.flush()
    assert len(noted.documents.names("served/*")) == 2
    monkeypatch.setattr("idgraph.jobs.features.served._now_ms", lambda: now + 8 * DAY_MS)
    sweep(noted.documents)
    assert len(noted.documents.names("served/*")) == 1


def test_only_a_share_is_noted(noted: Noted) -> None:
    noted.served.service.served = ServedLookups(noted.documents, noted.hashes, 0.0)
    noted.look()
    assert not list(notes(noted.documents))
