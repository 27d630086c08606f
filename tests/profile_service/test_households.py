"""Households: who may see what, against a model that knows no log; and what is left of somebody who was erased."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idgraph.model.errors import MetadataError
from idgraph.web.refusals import ClashError, RefusedRequestError, UnknownSubjectError
from profile_service.api.households import INVITATION_HOURS, Acting, Household, Households, Share
from sinks.sqlite.households import SqliteHouseholdLog
from tests.canaries import places

PERSONS = ("ann", "bea", "cid")
HOUR = 3600.0
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
ATTRIBUTES = ("score", "address")

Seen = set[tuple[str, str, str]]
"""Giver, attribute and purpose."""


def acting(person: str) -> Acting:
    return Acting(person, frozenset({f"~{person}"}))


@dataclass
class Group:
    """A household of the model: codes, with who invited and until when; and by giver what is shared with whom."""

    members: set[str] = field(default_factory=set)
    codes: dict[str, tuple[str, float]] = field(default_factory=dict)
    shared: dict[str, list[tuple[str, set[str], str, float]]] = field(default_factory=dict)


class Told:
    """The system and the model, told the same."""

    def __init__(self, log: SqliteHouseholdLog) -> None:
        self.now = 1_000.0
        self.log = log
        self.real = Households(log, lambda person: f"~{person}", lambda: self.now)
        self.model: dict[str, Group] = {}

    def do(self, act: tuple[Any, ...]) -> None:
        kind, person, *rest = act
        getattr(self, kind)(person, *rest)

    def refused(self, work: Any) -> Any:
        """What the system gives; None if it refuses."""
        try:
            return work()
        except (UnknownSubjectError, ClashError, RefusedRequestError):
            return None

    def group(self, number: int) -> str:
        return sorted(self.model)[number % len(self.model)] if self.model else "none"

    def found(self, person: str, _: int) -> None:
        household = self.real.found(acting(person), person)
        self.model[household] = Group({person})

    def invite(self, person: str, number: int) -> None:
        household = self.group(number)
        made = self.refused(lambda: self.real.invite(acting(person), household))
        known = self.model.get(household, Group())
        assert (made is not None) == (person in known.members)
        if made:
            known.codes[made[0]] = person, self.now + INVITATION_HOURS * HOUR

    def _code(self, number: int) -> tuple[str, Group, bool]:
        codes = [(code, known) for _, known in sorted(self.model.items()) for code in known.codes]
        if not codes:
            return "none.none", Group(), False
        code, known = codes[number % len(codes)]
        inviter, until = known.codes[code]
        return code, known, inviter in known.members and self.now < until

    def accept(self, person: str, number: int) -> None:
        code, known, works = self._code(number)
        joined = self.refused(lambda: self.real.accept(acting(person), code, person))
        assert (joined is not None) == (works and person not in known.members)
        if joined:
            known.members.add(person)
            known.codes[code] = known.codes[code][0], 0.0

    def decline(self, person: str, number: int) -> None:
        code, known, works = self._code(number)
        self.refused(lambda: self.real.decline(acting(person), code))
        if works:
            known.codes[code] = known.codes[code][0], 0.0

    def leave(self, person: str, number: int) -> None:
        household = self.group(number)
        known = self.model.get(household, Group())
        self.refused(lambda: self.real.leave(acting(person), household))
        if person in known.members:
            self._gone(known, person)

    def share(self, person: str, number: int, attribute: str, others: set[str], hours: float) -> None:
        household = self.group(number)
        known = self.model.get(household, Group())
        state = Household.of(household, self.log.read(household))
        numbers = {entry.person: member for member, entry in state.members.items()}
        to = [numbers.get(each, "nobody") for each in sorted(others)]
        until = self.now + hours * HOUR
        ends = datetime.fromtimestamp(until, UTC)
        made = {"attribute": attribute, "to": to, "purpose": f"for {attribute}", "until": ends}
        shares = [Share.model_validate(made)] if others else []
        self.refused(lambda: self.real.share(acting(person), household, shares))
        if person in known.members and others <= known.members - {person}:
            known.shared[person] = [(attribute, set(others), f"for {attribute}", until)] if others else []

    def wait(self, _person: str, number: int) -> None:
        self.now += number * 20 * HOUR

    def erase(self, person: str, _: int) -> None:
        self.log.erase([f"~{person}"])
        for known in self.model.values():
            self._gone(known, person)

    def _gone(self, known: Group, person: str) -> None:
        known.members.discard(person)
        known.shared.pop(person, None)
        # Who comes back is another member: nothing that was shared with the former one is.
        for shares in known.shared.values():
            for _, others, _, _ in shares:
                others.discard(person)

    def expected(self, person: str) -> Seen:
        return {
            (giver, attribute, purpose)
            for known in self.model.values()
            if person in known.members
            for giver, shares in known.shared.items()
            for attribute, others, purpose, until in shares
            if person in others and self.now < until
        }

    def seen(self, person: str) -> Seen:
        me = acting(person)
        return {
            (giver.person, share.attribute, share.purpose)
            for known in self.real.of(me)
            for giver, share in known.shared_with(me, self.real.now_ms())
        }


NUMBER = st.integers(0, 5)
WHO = st.sampled_from(PERSONS)
ACTS = st.one_of(
    st.tuples(
        st.sampled_from(
            ["found", "invite", "invite", "accept", "accept", "decline", "leave", "wait", "erase"]
        ),
        WHO,
        NUMBER,
    ),
    st.tuples(
        st.just("share"),
        WHO,
        NUMBER,
        st.sampled_from(ATTRIBUTES),
        st.sets(WHO, max_size=2),
        st.sampled_from([1, 30, 900]),
    ),
)


@pytest.mark.property
@given(st.lists(ACTS, max_size=20))
def test_each_sees_what_others_share_with_them_and_no_more(acts: list[tuple[Any, ...]]) -> None:
    # In memory where there is such a folder: each act is a commit.
    with TemporaryDirectory(dir=MEMORY) as folder, closing(SqliteHouseholdLog(Path(folder) / "h.db")) as log:
        told = Told(log)
        for act in [("found", "ann", 0), ("invite", "ann", 0), ("accept", "bea", 0), *acts]:
            told.do(act)
            assert {each: told.seen(each) for each in PERSONS} == {
                each: told.expected(each) for each in PERSONS
            }


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    with closing(SqliteHouseholdLog(tmp_path / "households.db")) as log:
        yield Told(log)


def pair(told: Told) -> str:
    """A household of Ann and Bea, where Ann shares her score one way."""
    told.found("ann", 0)
    told.invite("ann", 0)
    told.accept("bea", 0)
    told.share("ann", 0, "score", {"bea"}, 900)
    return told.group(0)


def test_one_way_is_one_way_and_the_end_is_the_end(told: Told) -> None:
    pair(told)
    assert (told.seen("ann"), told.seen("bea")) == (set(), {("ann", "score", "for score")})
    told.now += 900 * HOUR
    assert told.seen("bea") == set()


def test_two_members_whose_profiles_became_one(told: Told) -> None:
    household = pair(told)
    both = Acting("ann", frozenset({"~ann", "~bea"}))
    (known,) = told.real.of(both)
    assert len(known.mine(both)) == 2
    assert list(known.shared_with(both, told.real.now_ms())) == []
    told.real.leave(both, household)
    assert Household.of(household, told.log.read(household)).members == {}


def test_a_code_works_once_and_is_not_in_the_file(told: Told, tmp_path: Path) -> None:
    told.found("ann", 0)
    code, _ = told.real.invite(acting("ann"), told.group(0))
    assert places(tmp_path, (code.partition(".")[2],)) == []
    told.real.accept(acting("bea"), code, "Bea")
    for person in ("bea", "cid"):
        with pytest.raises(MetadataError):
            told.real.accept(acting(person), code, person)


def test_nothing_is_left_of_an_erased_member(told: Told, tmp_path: Path) -> None:
    canary = "canary-member-4711"
    pair(told)
    code, _ = told.real.invite(acting("ann"), told.group(0))
    told.real.accept(acting(canary), code, canary)
    assert places(tmp_path, (canary,)) != []
    assert told.log.erase([f"~{canary}"]) == 1
    assert places(tmp_path, (canary,)) == []
    assert told.log.erase([f"~{canary}"]) == 0
    assert told.seen("bea") == {("ann", "score", "for score")}
    with pytest.raises(UnknownSubjectError):
        told.real.accept(acting("cid"), code, "Cid")
