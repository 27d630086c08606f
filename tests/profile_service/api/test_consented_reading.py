"""Who is read for a purpose, against a model of consents: several sources decide with times in any order, and persons merge and
split. What a merged person decided last counts for all of it, and after a split each has their own decisions again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from idgraph.model.callers import Scope
from idgraph.model.queries import Exists
from idgraph.model.views import ViewDocument
from tests.lanes import examples
from tests.profile_service.api.conftest import Served, caller, served_here
from tests.profile_service.api.test_segments import segment
from tests.profile_service.test_consents import SOURCE, SPEC
from tests.retail import UNDETECTED, Pipeline, raw, snapshot

pytestmark = pytest.mark.slow


SOURCES = ("phone", "shop", "web")
PURPOSES = ("marketing", "research")
NUMBERS = count()
"""Each example has persons of its own, in one store."""

Decided = tuple[int, str, str]
"""What decides between two decisions: ordinal, source, event."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    specs = [SPEC.model_copy(update={"name": each, "source": each}) for each in SOURCES]
    views = [ViewDocument(name=each, attributes={"all": "@"}, version=1, purpose=each) for each in PURPOSES]
    segments = [segment(each, purpose=each) for each in PURPOSES]
    known = snapshot(specs=specs, declared=[], defaults=UNDETECTED).model_copy(
        update={"views": tuple(views), "segments": tuple(segments)}
    )
    sources = {each: SOURCE.model_copy(update={"name": each, "path": Path(each)}) for each in SOURCES}
    pipeline = Pipeline(tmp_path_factory.mktemp("consents"), snapshot=known, sources=sources)
    callers = [caller("everything", 100, scopes=[Scope.LINKS])]
    with served_here(pipeline, callers, project=lambda _: pipeline.project().is_whole) as found:
        yield found


@dataclass
class Told:
    """The system and the model, told the same. Of three persons, the second may be the same as each of the others."""

    served: Served
    sent: list[Any] = field(default_factory=list)
    decided: list[dict[str, tuple[Decided, str | None]]] = field(default_factory=lambda: [{}, {}, {}])
    joined: set[int] = field(default_factory=set)
    """0: the first and the second are one; 1: the second and the third."""

    def __post_init__(self) -> None:
        number = next(NUMBERS)
        self.names = [f"user_id:person-{number}-{each}" for each in range(3)]
        self.client = self.served.client("everything")
        for each in range(3):
            self.decide(each, "other", "web", 1, "given")

    def decide(self, person: int, purpose: str, source: str, ordinal: int, status: str | None) -> None:
        event = {"id": f"e{len(self.sent)}", "at": ordinal, "consents": {purpose: {"status": status}}}
        event["identifiers"] = {"user_id": self.names[person].partition(":")[2]}
        self.sent.append(raw(event, len(self.sent), source))
        self.served.pipeline.process(self.sent[-1:])
        said = (ordinal, source, str(event["id"])), status
        own = self.decided[person]
        own[purpose] = max(own.get(purpose, said), said, key=lambda each: each[0])

    def again(self, number: int) -> None:
        self.served.pipeline.process([self.sent[number % len(self.sent)]])

    def pin(self, edge: int, decision: str) -> None:
        pins = [{"pair": self.names[edge : edge + 2], "decision": decision}]
        answer = self.client.post("/v1/links", json={"pins": pins, "reason": "x"})
        assert answer.status_code == 200, answer.text
        self.joined = self.joined - {edge} | ({edge} if decision == "always" else set())

    def one(self, person: int) -> list[int]:
        """Who is the same as somebody."""
        parts = [[0]]
        for each in (1, 2):
            if each - 1 in self.joined:
                parts[-1].append(each)
            else:
                parts.append([each])
        return next(part for part in parts if person in part)

    def counts(self, person: int, purpose: str) -> tuple[Decided, str | None] | None:
        """The decision of a person that counts."""
        said = [self.decided[each][purpose] for each in self.one(person) if purpose in self.decided[each]]
        return max(said, key=lambda each: each[0], default=None)

    def require_same(self) -> None:
        consented = [
            [p for p in PURPOSES if (self.counts(each, p) or ((), ""))[1] == "given"] for each in range(3)
        ]
        body: dict[str, Any] = {"identifiers": self.names}
        for purpose in PURPOSES:
            answer = self.client.post("/v1/profiles/lookup", json=body | {"view": purpose}).json()
            seen = [each["profile"] is not None for each in answer["items"]]
            assert seen == [purpose in each for each in consented]
        found = self.client.post("/v1/segments/member-of", json=body).json()["items"]
        assert [each["segments"] for each in found] == consented
        for each, name in enumerate(self.names):
            items = self.client.get(f"/v1/profiles/{name}/consents").json()["items"]
            shown = [((one["ordinal"], one["event"]), one["purpose"], one["status"]) for one in items]
            said = [(self.counts(each, purpose), purpose) for purpose in (*PURPOSES, "other")]
            # A status that was deleted is no decision.
            expected = [((one[0][0], one[0][2]), purpose, one[1]) for one, purpose in said if one and one[1]]
            assert sorted(shown) == sorted(expected)

    def require_indexed(self) -> None:
        """The index has the same members; a merged person is one."""
        for purpose in PURPOSES:
            answer = self.client.get(f"/v1/segments/{purpose}/members?limit=1000&fields=none").json()
            of_person = {f"{i['type']}:{i['value']}" for each in answer["items"] for i in each["identifiers"]}
            wanted = [(self.counts(each, purpose) or ((), ""))[1] == "given" for each in range(3)]
            assert [name in of_person for name in self.names] == wanted


WHO, EDGE = st.integers(0, 2), st.integers(0, 1)
STATUS = st.sampled_from(["given", "given", "withdrawn", "withdrawn", None])
DECIDE = st.tuples(
    st.just("decide"), WHO, st.sampled_from(PURPOSES), st.sampled_from(SOURCES), st.integers(1, 5), STATUS
)
PIN = st.tuples(st.just("pin"), EDGE, st.sampled_from(["always", "always", "never", "none"]))
ACTS = st.one_of(DECIDE, DECIDE, PIN, st.tuples(st.just("again"), st.integers(0, 9)))
GIVEN, LATER = (
    ("decide", 0, "marketing", "shop", 2, "given"),
    ("decide", 1, "marketing", "web", 3, "withdrawn"),
)
WEB, SHOP = ("decide", 0, "research", "web", 2, "given"), ("decide", 1, "research", "shop", 2, "withdrawn")
"""Of one moment: the greater source decides."""


@example([WEB, SHOP, ("pin", 0, "always"), ("again", 3), ("pin", 0, "none")])
@example([LATER, ("pin", 0, "always"), GIVEN, ("pin", 0, "never"), ("pin", 0, "always"), ("pin", 0, "none")])
@settings(max_examples=examples(100))
@given(st.lists(ACTS, min_size=4, max_size=12))
def test_who_is_read_for_a_purpose_has_consented_last(served: Served, acts: list[tuple[Any, ...]]) -> None:
    told = Told(served)
    for kind, *words in acts:
        getattr(told, kind)(*words)
        told.require_same()
    told.require_indexed()


def test_counts_say_how_many_have_not_consented(tmp_path: Path) -> None:
    known = snapshot(specs=[SPEC], declared=[], defaults=UNDETECTED)
    segments = (segment("wanted", Exists("consents.other.status"), purpose="research"), segment("all"))
    views = (ViewDocument(name="v", attributes={"all": "@"}, version=1, purpose="research"),)
    known = known.model_copy(update={"segments": segments, "views": views})
    pipeline = Pipeline(tmp_path, snapshot=known, sources={"consents": SOURCE})
    for number, status in enumerate(("given", "withdrawn", None, "withdrawn")):
        said = {"other": {"status": "given"}} | ({"research": {"status": status}} if status else {})
        event = {"id": f"e{number}", "at": 1, "consents": said, "identifiers": {"user_id": f"p{number}"}}
        pipeline.process([raw(event, number, "consents")])
    with served_here(pipeline, [caller("everything", 100), caller("none", 0)]) as served:
        client = served.client("everything")
        assert client.get("/v1/segments/wanted/count").json() == {"count": 1, "without_consent": 3}
        assert client.get("/v1/segments/all/count").json() == {"count": 4}
        found = client.get("/v1/search", params={"view": "v"}).json()
        assert len(found["items"]) == 1
        (warning,) = found["warnings"]
        assert "research" in warning
        assert "3" in warning
        assert "p1" not in warning
