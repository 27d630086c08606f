"""Triggers from an event to the receiver: what is sent, what is not and why, and the ledger of both."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from idgraph.client import ProfilesClient
from idgraph.model import queries
from idgraph.model.backoff import Backoff
from idgraph.model.events import RawRecord
from idgraph.model.ledger import Crossing, Delivery
from idgraph.model.pins import PinRecord
from idgraph.model.queries import Query, Term
from idgraph.model.shared_documents import SharedDocuments
from idgraph.model.triggers import TriggerDocument
from idgraph.model.views import ViewDocument
from idgraph.projection.projection import Projection
from profile_service.api.triggers import Triggers
from profile_service.api.webhooks import Webhook
from profile_service.trigger_ledger import TriggerLedger, request_erasure
from tests.contracts.implementations import SHARED_DOCUMENTS, Implementation
from tests.profile_service.api.conftest import Served, caller, problem, published, served_here, with_levels
from tests.profile_service.api.test_segments import segment, with_segments
from tests.profile_service.test_consents import decided as decided_on
from tests.profile_service.test_consents import made
from tests.retail import Pipeline, raw
from tests.support.patience import eventually

pytestmark = pytest.mark.slow

DAY_SECONDS = 86_400


class Receiver:
    """Takes deliveries, unless it has a reason not to."""

    at_once = 1

    def __init__(self) -> None:
        self.taken: list[Delivery] = []
        self.reason: str | None = None

    def send(self, deliveries: Sequence[Delivery]) -> str | None:
        if self.reason is None:
            self.taken += deliveries
        return self.reason

    @property
    def ids(self) -> list[str]:
        return [each.id for each in self.taken]


def trigger(name: str = "welcome", **content: Any) -> TriggerDocument:
    stated = {"name": name, "version": 1, "when": {"segment": "ios"}, "webhook": "crm", **content}
    return TriggerDocument.model_validate(stated)


LEFT = {"segment": "ios", "on": "left"}
VIEW = ViewDocument(name="short", attributes={"platform": "activity.platform"}, version=1)
SEGMENTS = (segment("ios", Term("activity.platform", "ios")), segment("everybody"))


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profile_service.api.triggers.RETRY", Backoff(base=0.01, cap=0.01))
    for name in ("LEASED_SECONDS", "POLL_SECONDS"):
        monkeypatch.setattr(f"profile_service.api.triggers.{name}", 0.01)


@pytest.fixture
def served(tmp_path: Path, soon: None) -> Iterator[Served]:
    pipeline = Pipeline(tmp_path, now=time.time)
    pipeline.snapshot = with_segments(pipeline.snapshot, *SEGMENTS).model_copy(update={"views": (VIEW,)})
    with served_here(pipeline, [caller("all", 100)]) as found:
        yield found


@pytest.fixture(params=SHARED_DOCUMENTS, ids=str)
def documents(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SharedDocuments]:
    implementation: Implementation[SharedDocuments] = request.param
    with implementation.opened(tmp_path) as opened:
        yield opened


@contextmanager
def following(
    served: Served, documents: SharedDocuments, receiver: Receiver, *triggers: TriggerDocument
) -> Iterator[None]:
    served.service.documents = documents
    wanted = served.metadata.snapshot_now.model_copy(update={"triggers": triggers})
    with (
        published(served, wanted),
        Triggers(served.service, [Webhook("crm", None, 0, receiver)], documents),
    ):
        eventually(lambda: documents.read("triggers/place.json"))
        yield


def seen(user: str, platform: str, email: str = "", days_ago: float = 0.0) -> RawRecord:
    moment = time.gmtime(time.time() - days_ago * DAY_SECONDS)
    event = {
        "timestamp": time.strftime("%Y-%m-%dT%H:%M:%S.000000+00:00", moment),
        "userId": user,
        "type": "identify",
        "platform": platform,
        "traits": {"email": email} if email else {},
        "messageId": f"{user} {platform} {email} {days_ago}",
    }
    return raw(event, source="segment")


def ledger(served: Served, name: str = "welcome") -> list[dict[str, Any]]:
    answer = served.client("all").get(f"/v1/triggers/{name}/ledger")
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


def outcomes(served: Served, name: str = "welcome") -> list[tuple[str, str]]:
    return [(each["outcome"], each["reason"]) for each in ledger(served, name)]


def test_a_member_is_reported_once(served: Served, documents: SharedDocuments) -> None:
    receiver = Receiver()
    with following(served, documents, receiver, trigger(view="short")):
        served.pipeline.process([seen("a", "ios")])
        eventually(lambda: outcomes(served) == [("fired", "")])
        served.pipeline.process([seen("a", "ios")])
        with ProfilesClient(served.url, "all") as client:
            assert list(client.trigger_ledger("welcome", page=1)) == ledger(served)
    (taken,) = receiver.taken
    assert taken.profile == "user_id:a"
    assert {
        name: taken.document[name] for name in ("trigger", "kind", "segment", "profile", "attributes")
    } == {
        "trigger": "welcome",
        "kind": "entered",
        "segment": "ios",
        "profile": "user_id:a",
        "attributes": {"platform": "ios"},
    }
    # Read again from the begin of the feed: as after a crash.
    documents.write("triggers/place.json", b'{"cursor":"","moves":[]}')
    with following(served, documents, receiver, trigger(view="short")):
        served.pipeline.process([seen("b", "ios")])
        eventually(lambda: len(receiver.taken) == 2)
    assert [each.profile for each in receiver.taken] == ["user_id:a", "user_id:b"]


def test_old_events_are_silent(served: Served, documents: SharedDocuments) -> None:
    receiver = Receiver()
    with following(served, documents, receiver, trigger()):
        served.pipeline.process([seen("a", "ios", days_ago=2)])
        eventually(lambda: outcomes(served) == [("suppressed", "expired")])
    assert receiver.taken == []


def test_a_receiver_that_takes_nothing_gets_it_later(served: Served, documents: SharedDocuments) -> None:
    receiver = Receiver()
    receiver.reason = "status 500"
    with following(served, documents, receiver, trigger()):
        served.pipeline.process([seen("a", "ios")])
        eventually(lambda: outcomes(served) == [("waiting", "status 500")])
        (waiting,) = ledger(served)
        receiver.reason = None
        eventually(lambda: outcomes(served) == [("fired", "")])
    assert receiver.ids == [waiting["id"]]


def test_an_own_search(served: Served, documents: SharedDocuments) -> None:
    receiver = Receiver()
    query = queries.to_json(Query((Term("activity.platform", "ios"),)))
    own = trigger(when={"q": "activity.platform=ios"}, query=query)
    bye = trigger("bye", when={"q": "activity.platform=ios", "on": "becomes_false"}, query=query)
    served.pipeline.snapshot = served.pipeline.snapshot.model_copy(update={"triggers": (own, bye)})
    with following(served, documents, receiver, own, bye):
        served.pipeline.process([seen("a", "ios", days_ago=0.002)])
        eventually(lambda: outcomes(served) == [("fired", "")])
        served.pipeline.process([seen("a", "android")])
        eventually(lambda: outcomes(served, "bye") == [("fired", "")])
        client = served.client("all")
        feed = {each.get("segment") for each in client.get("/v1/changes").json()["items"]}
        assert feed <= {"ios", "everybody"}
        member = client.post("/v1/segments/member-of", json={"identifiers": ["user_id:a"]}).json()
        assert member["items"][0]["segments"] == ["everybody"]
    assert [each.document["kind"] for each in receiver.taken] == ["becomes_true", "becomes_false"]


def test_a_view_that_is_gone_stops_no_other_trigger(served: Served, documents: SharedDocuments) -> None:
    receiver = Receiver()
    with following(served, documents, receiver, trigger(view="gone"), trigger("z")):
        served.pipeline.process([seen("a", "ios")])
        eventually(lambda: [outcome for outcome, _ in outcomes(served)] == ["waiting"])
        eventually(lambda: outcomes(served, "z") == [("fired", "")])
    assert receiver.taken[0].document["trigger"] == "z"


def test_another_process_goes_on_with_what_waits(served: Served, documents: SharedDocuments) -> None:
    receiver = Receiver()
    receiver.reason = "status 500"
    with following(served, documents, receiver, trigger()):
        served.pipeline.process([seen("a", "ios")])
        eventually(lambda: outcomes(served) == [("waiting", "status 500")])
    receiver.reason = None
    with following(served, documents, receiver, trigger()):
        eventually(lambda: outcomes(served) == [("fired", "")])
    assert len(receiver.taken) == 1
    assert TriggerLedger(documents).waiting() == []


def test_without_triggers_what_comes_is_for_nobody(served: Served, documents: SharedDocuments) -> None:
    receiver = Receiver()
    with following(served, documents, receiver, trigger()):
        with published(served, served.metadata.snapshot_now.model_copy(update={"triggers": ()})):
            eventually(lambda: documents.read("triggers/place.json") is None)
            served.pipeline.process([seen("a", "ios")])
        eventually(lambda: documents.read("triggers/place.json"))
        served.pipeline.process([seen("b", "ios")])
        eventually(lambda: receiver.taken)
    assert [each.profile for each in receiver.taken] == ["user_id:b"]


def test_limits_and_who_left(served: Served, documents: SharedDocuments) -> None:
    receiver = Receiver()
    limited = trigger(limits=[{"most": 1, "per": "7d"}])
    farewell = trigger("farewell", when=LEFT)
    with following(served, documents, receiver, limited, farewell):
        for place, platform in enumerate(("ios", "android", "ios")):
            served.pipeline.process([seen("a", platform, days_ago=(2 - place) / 1000)])
        eventually(lambda: len(ledger(served)) == 2)
        eventually(lambda: outcomes(served, "farewell") == [("fired", "")])
        eventually(lambda: sorted(outcomes(served)) == [("fired", ""), ("suppressed", "limit: 1 per 7d")])
    assert [each.document["kind"] for each in receiver.taken] == ["entered", "left"]


def test_quiet_hours_hold_a_message(served: Served, documents: SharedDocuments) -> None:
    receiver = Receiver()
    hour = time.gmtime().tm_hour
    quiet = {"from": f"{hour:02}:00", "to": f"{(hour + 2) % 24:02}:00"}
    with following(served, documents, receiver, trigger(quiet=quiet)):
        served.pipeline.process([seen("a", "ios")])
        eventually(lambda: outcomes(served) == [("held", "")])
    (message,) = TriggerLedger(documents).waiting()
    assert message.due_ms > time.time() * 1000
    assert receiver.taken == []


def decided(served: Served, decision: str, at_ms: int) -> None:
    pipeline = served.pipeline
    pipeline.store.add_pins([PinRecord("user_id:a", "user_id:b", at_ms, decision)])
    Projection(pipeline.store, pipeline.index, pipeline.rules).project(sorted(pipeline.store.ids()))


@pytest.mark.parametrize("oldest", ["ios", "android"])
def test_a_merge_and_a_split_report_nobody(served: Served, documents: SharedDocuments, oldest: str) -> None:
    receiver = Receiver()
    first, second = ("a", "b") if oldest == "ios" else ("b", "a")
    crossed = 0

    def crossings() -> int:
        return sum(isinstance(each, Crossing) for each in served.pipeline.store.ledger())

    everybody = trigger("all", when={"segment": "everybody"})
    with following(served, documents, receiver, trigger(), everybody, trigger("bye", when=LEFT)):
        served.pipeline.process([seen(first, "ios", days_ago=0.003)])
        served.pipeline.process([seen(second, "android", days_ago=0.002)])
        eventually(lambda: len(receiver.taken) == 3)
        for at_ms, decision in enumerate(("always", "never", "always"), 1):
            crossed = crossings()
            decided(served, decision, at_ms)
            assert crossings() > crossed
        served.pipeline.process([seen("c", "ios")])
        eventually(lambda: len(receiver.taken) >= 5)
        found = [each for name in ("welcome", "all", "bye") for each in outcomes(served, name)]
    assert sorted(each.profile for each in receiver.taken) == [
        f"user_id:{each}" for each in sorted((first, first, second, "c", "c"))
    ]
    assert {reason for _, reason in found} - {""} <= {"merged", "split"}
    assert len(found) > 5


def test_an_event_of_a_merged_person_is_reported(served: Served, documents: SharedDocuments) -> None:
    """Though it comes with the merge: one part has the attribute by itself."""
    receiver = Receiver()
    with following(served, documents, receiver, trigger()):
        served.pipeline.process([seen("a", "android", "a@example.com", 0.003)])
        pipeline = served.pipeline
        pipeline.store.add_pins([PinRecord("user_id:a", "user_id:b", 1, "always")])
        pipeline.process([seen("b", "ios", "b@example.com")])
        eventually(lambda: outcomes(served) == [("fired", "")])
    assert [each.profile for each in receiver.taken] == ["user_id:a"]


@pytest.mark.parametrize("expires", ["1d", None])
def test_a_new_definition_sends_nothing(
    served: Served, documents: SharedDocuments, expires: str | None
) -> None:
    """Neither to those who meet it by then, nor to those who have an event before all were evaluated for it; thrice: defined,
    edited, and defined again after it was retired."""
    receiver = Receiver()
    everybody = trigger("everybody", when={"segment": "everybody", "on": "left"})
    pipeline = served.pipeline
    projection = Projection(pipeline.store, pipeline.index, pipeline.rules)

    def followed(*triggers: TriggerDocument) -> None:
        pipeline.snapshot = pipeline.snapshot.model_copy(update={"triggers": (everybody, *triggers)})

    def own(platform: str) -> TriggerDocument:
        query = queries.to_json(Query((Term("activity.platform", platform),)))
        return trigger("new", when={"q": "..."}, query=query, expires=expires)

    platforms = {"a": "ios", "b": "ios", "c": "android", "d": "android"}
    pipeline.process([seen(name, each, days_ago=0.01) for name, each in platforms.items()])
    with following(served, documents, receiver, everybody, own("ios")):
        for number, platform in enumerate(("ios", "android", "", "android")):
            before = len(ledger(served, "new"))
            followed(*([own(platform)] if platform else []))
            # One event of somebody who meets it all the time, before the others are evaluated.
            again = seen(
                "a" if platform == "ios" else "c", platform or "android", days_ago=(5 - number) / 1000
            )
            outputs = list(pipeline.map_stage().run([again]))
            pipeline.commit_stage().run(item for output in outputs for item in output.encoded())
            projection.sweep()
            eventually(lambda: len(ledger(served, "new")) >= before + 2 * (number < 2))  # noqa: B023
        pipeline.process([seen("e", "android", days_ago=0.001), seen("a", "android")])
        eventually(lambda: outcomes(served, "new").count(("fired", "")) == 2)
        assert set(outcomes(served, "new")) == {("suppressed", "defined"), ("fired", "")}
    assert sorted(each.profile for each in receiver.taken) == ["user_id:a", "user_id:e"]


def test_a_message_does_not_wait_for_a_backlog(
    served: Served, documents: SharedDocuments, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of crossings behind it; and what is silent leaves a line, and no document of its own."""
    monkeypatch.setattr("profile_service.api.triggers.PAGE", 4)
    receiver = Receiver()
    with following(served, documents, receiver, trigger()):
        pass
    served.pipeline.process([seen("fresh", "ios")])
    served.pipeline.process([seen(f"u{number}", "ios", days_ago=20) for number in range(20)])
    at_ledger: list[int] = []
    taken = receiver.send

    def noted(deliveries: Sequence[Delivery]) -> str | None:
        at_ledger.append(len(TriggerLedger(documents).lines("welcome", 100)))
        return taken(deliveries)

    monkeypatch.setattr(receiver, "send", noted)
    with following(served, documents, receiver, trigger()):
        eventually(lambda: len(ledger(served)) == 21)
        assert at_ledger[0] < 10
        assert receiver.ids == [each["id"] for each in ledger(served) if each["outcome"] == "fired"]
    assert len(documents.names("triggers/people/*/*.json")) == 1
    # As after a crash before the place was kept, though what was silent has a fresh event by now.
    served.pipeline.process([seen(f"u{number}", "ios", days_ago=0.001) for number in range(20)])
    documents.write("triggers/place.json", b'{"cursor":""}')
    with following(served, documents, receiver, trigger()):
        served.pipeline.process([seen("z", "ios")])
        eventually(lambda: len(receiver.taken) == 2)
        assert len(ledger(served)) == 22
    assert [each.profile for each in receiver.taken] == ["user_id:fresh", "user_id:z"]


def test_changes_are_passed_over_once(
    served: Served, documents: SharedDocuments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("profile_service.api.triggers.PLACE_SECONDS", 0)
    store = served.pipeline.store
    with following(served, documents, Receiver(), trigger()):
        served.pipeline.process([seen("a", "ios")])
        eventually(lambda: outcomes(served) == [("fired", "")])
        store.cross([Crossing(1_000, "user_id:a", "ios*", 1_000)])
        eventually(
            lambda: json.loads(documents.read("triggers/place.json") or b"")["cursor"] == store.ledger_end("")
        )


PURPOSE = segment("mail", purpose="marketing")


@pytest.mark.parametrize("on", ["entered", "left"])
def test_no_message_after_a_withdrawn_consent(
    tmp_path: Path, documents: SharedDocuments, soon: None, on: str
) -> None:
    """Only that she left, so that the receiver learns it."""
    pipeline = made(tmp_path / "pipeline")
    pipeline.snapshot = with_segments(pipeline.snapshot, PURPOSE)
    receiver = Receiver()
    receiver.reason = "status 500"
    mail = trigger(when={"segment": "mail", "on": on}, expires=None)
    with (
        served_here(pipeline, [caller("all", 100)]) as served,
        following(served, documents, receiver, mail),
    ):
        pipeline.process([decided_on(1, "given")])
        if on == "entered":
            eventually(lambda: outcomes(served) == [("waiting", "status 500")])
        pipeline.process([decided_on(2, "withdrawn")])
        receiver.reason = None
        wanted = ("suppressed", "no consent") if on == "entered" else ("fired", "")
        eventually(lambda: outcomes(served) == [wanted])
    assert [each.document["kind"] for each in receiver.taken] == [on] * (on == "left")


@pytest.mark.parametrize("when", [{"segment": "ios"}, {"attribute": "activity.platform", "on": "changes"}])
def test_no_message_about_what_is_hidden_by_then(
    served: Served, documents: SharedDocuments, when: dict[str, str]
) -> None:
    receiver = Receiver()
    receiver.reason = "status 500"
    one = trigger(when=when)
    served.pipeline.snapshot = served.pipeline.snapshot.model_copy(update={"triggers": (one,)})
    with following(served, documents, receiver, one):
        served.pipeline.process([seen("a", "android", days_ago=0.002)])
        served.pipeline.process([seen("a", "ios", days_ago=0.001)])
        eventually(lambda: outcomes(served) == [("waiting", "status 500")])
        hidden = with_levels({"activity.platform": 1}).attributes
        with published(served, served.metadata.snapshot_now.model_copy(update={"attributes": hidden})):
            receiver.reason = None
            eventually(lambda: outcomes(served)[0][0] == "suppressed")
    assert receiver.taken == []


def test_a_retired_trigger_keeps_its_ledger_for_those_who_see_everything(
    served: Served, documents: SharedDocuments
) -> None:
    with following(served, documents, Receiver(), trigger()):
        served.pipeline.process([seen("a", "ios")])
        eventually(lambda: outcomes(served) == [("fired", "")])
    with published(served, served.metadata.snapshot_now.model_copy(update={"triggers": ()})):
        assert outcomes(served) == [("fired", "")]
        hidden = with_levels({"identity.email": 101}).attributes
        with published(served, served.metadata.snapshot_now.model_copy(update={"attributes": hidden})):
            problem(served.client("all").get("/v1/triggers/welcome/ledger"), 404)


def test_hidden_segments_have_no_triggers(served: Served, documents: SharedDocuments) -> None:
    receiver = Receiver()
    with following(served, documents, receiver, trigger(), trigger("all", when={"segment": "none"})):
        listed = served.client("all").get("/v1/triggers").json()["items"]
        assert [each["name"] for each in listed] == ["welcome"]
        with ProfilesClient(served.url, "all") as client:
            assert client.triggers() == listed
        for name in ("all", "unknown"):
            problem(served.client("all").get(f"/v1/triggers/{name}/ledger"), 404)


def test_a_value_that_changes_is_reported(served: Served, documents: SharedDocuments) -> None:
    """Not its first value, not the same again, not by a merge."""
    receiver = Receiver()
    changes = trigger("platform", when={"attribute": "activity.platform", "on": "changes"})
    served.pipeline.snapshot = served.pipeline.snapshot.model_copy(update={"triggers": (changes,)})

    def seen_ago(user: str, platform: str, days_ago: float) -> None:
        served.pipeline.process([seen(user, platform, days_ago=days_ago)])

    with following(served, documents, receiver, changes):
        for number, platform in enumerate(("ios", "ios", "android", "ios")):
            seen_ago("a", platform, (10 - number) / 1000)
        eventually(lambda: len(receiver.taken) == 2)
        seen_ago("b", "android", 0.001)
        decided(served, "always", 1)
        eventually(lambda: ("suppressed", "merged") in outcomes(served, "platform"))
        seen_ago("b", "web", 0.0005)
        eventually(lambda: len(receiver.taken) == 3)
        # What came late changes nothing that is newer, and is old where it does.
        seen_ago("c", "ios", 4)
        seen_ago("c", "web", 3)
        eventually(lambda: ("suppressed", "expired") in outcomes(served, "platform"))
    assert [each.profile for each in receiver.taken] == ["user_id:a", "user_id:a", "user_id:a"]
    assert len(set(receiver.ids)) == 3
    assert {each.document["kind"] for each in receiver.taken} == {"changes"}
    feed = served.client("all").get("/v1/changes").json()["items"]
    assert {each.get("segment") for each in feed} <= {None, "ios", "everybody"}


def test_an_erasure_takes_her_lines_and_a_replay_fires_nothing(
    served: Served, documents: SharedDocuments
) -> None:
    receiver = Receiver()
    store = served.pipeline.store
    once = trigger(limits=[{"most": 1, "per": "1h"}])
    with following(served, documents, receiver, once):
        served.pipeline.process([seen(each, "ios", days_ago=0.002) for each in "ab"])
        eventually(lambda: len(receiver.taken) == 2)
        name = store.name("user_id:a").hex()
        store.erase(["user_id:a"], time.time_ns() // 1_000_000)
        served.pipeline.project()
        request_erasure(documents, [name])
        eventually(lambda: not documents.names("triggers/erasures/*.json"))
        assert [each["profile"] for each in ledger(served)] == ["user_id:b"]
        assert not documents.names(f"triggers/people/*/{name}.json")
    documents.write("triggers/place.json", b'{"cursor":""}')
    with following(served, documents, receiver, once):
        # She comes back as another person: what was sent does not count, nor is it sent again.
        served.pipeline.process([seen("a", "ios", days_ago=-0.0001)])
        eventually(lambda: len(receiver.taken) == 3)
        served.pipeline.process([seen("c", "ios")])
        eventually(lambda: len(receiver.taken) == 4)
    assert [each.profile[-1] for each in receiver.taken[2:]] == ["a", "c"]
    assert len(set(receiver.ids)) == 4


def test_an_erasure_without_a_service_takes_her_lines(served: Served, documents: SharedDocuments) -> None:
    receiver = Receiver()
    receiver.reason = "status 500"
    with following(served, documents, receiver, trigger()):
        served.pipeline.process([seen("a", "ios")])
        eventually(lambda: outcomes(served) == [("waiting", "status 500")])
    request_erasure(documents, [served.pipeline.store.name("user_id:a").hex()])
    kept = TriggerLedger(documents)
    assert (kept.lines("welcome", 10), kept.waiting()) == ([], [])
