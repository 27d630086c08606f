"""Households: who may see what, against a model that knows no log, with persons that merge and split; and what is left of
somebody who was erased."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from idgraph.model.errors import MetadataError
from idgraph.model.households import HouseholdEntry, HouseholdLog
from idgraph.web.refusals import ClashError, RefusedRequestError, UnknownSubjectError
from profile_service.api.households import (
    INVITATION_HOURS,
    MOST_HOUSEHOLDS,
    Acting,
    Household,
    Households,
    Share,
)
from sinks.sqlite.households import SqliteHouseholdLog
from tests.canaries import places
from tests.contracts.implementations import HOUSEHOLD_LOGS, Implementation
from tests.lanes import examples
from tests.servers.dynamodb import stored

PERSONS = ("ann", "bea", "cid", "dan")
"""Each is a fragment: some of them are one person for a time."""
HOUR = 3600.0
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
ATTRIBUTES = ("score", "address")

Seen = set[tuple[str, str, str]]
"""Giver, attribute and purpose."""


def acting(person: str, *others: str) -> Acting:
    """By a token of one fragment, whose profile has these others."""
    keys = frozenset(f"~{each}" for each in (person, *others))
    return Acting(person, keys, lambda one, key: {f"~{one}", key} <= keys)


@dataclass
class Group:
    """A household of the model. `members` are in the order of joining. Codes are with who asked for them, the member for whom,
    and until when; by member, `shared` is who gave it, and what to whom."""

    members: list[str] = field(default_factory=list)
    codes: dict[str, tuple[str, str, float]] = field(default_factory=dict)
    shared: dict[str, tuple[str, list[tuple[str, set[str], str, float]]]] = field(default_factory=dict)


class Told:
    """The system and the model, told the same. `one` are the fragments of each fragment's person."""

    def __init__(self, log: HouseholdLog) -> None:
        self.now = 1_000.0
        self.log = log
        self.real = Households(log, lambda person: f"~{person}", lambda: self.now)
        self.model: dict[str, Group] = {}
        self.one = {each: {each} for each in PERSONS}

    def acting(self, person: str) -> Acting:
        keys = frozenset(f"~{each}" for each in self.one[person])
        return Acting(person, keys, lambda one, key: key in {f"~{each}" for each in self.one[one]})

    def merge(self, person: str, number: int) -> None:
        other = PERSONS[number % len(PERSONS)]
        both = self.one[person] | self.one[other]
        self.one |= dict.fromkeys(both, both)

    def split(self, person: str, _: int) -> None:
        left = self.one[person] - {person}
        self.one |= dict.fromkeys(left, left) | {person: {person}}

    def mine(self, known: Group, person: str) -> list[str]:
        """The memberships of a person, the own first."""
        found = [each for each in known.members if each in self.one[person]]
        return sorted(found, key=lambda each: each != person)

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
        # In the order of founding: ids are random.
        return list(self.model)[number % len(self.model)] if self.model else "none"

    def found(self, person: str, _: int) -> None:
        household = self.refused(lambda: self.real.found(self.acting(person), person))
        is_of = [each for each in self.model.values() if self.mine(each, person)]
        assert (household is None) == (len(is_of) >= MOST_HOUSEHOLDS)
        if household:
            self.model[household] = Group([person])

    def invite(self, person: str, number: int) -> None:
        household = self.group(number)
        made = self.refused(lambda: self.real.invite(self.acting(person), household))
        known = self.model.get(household, Group())
        mine = self.mine(known, person)
        assert (made is not None) == bool(mine)
        if made:
            known.codes[made[0]] = person, mine[0], self.now + INVITATION_HOURS * HOUR

    def _code(self, number: int) -> tuple[str, Group, bool]:
        codes = [(code, known) for known in self.model.values() for code in known.codes]
        if not codes:
            return "none.none", Group(), False
        code, known = codes[number % len(codes)]
        by, inviter, until = known.codes[code]
        works = inviter in known.members and by in self.one[inviter] and self.now < until
        return code, known, works

    def accept(self, person: str, number: int) -> None:
        code, known, works = self._code(number)
        is_full = len([each for each in self.model.values() if self.mine(each, person)]) >= MOST_HOUSEHOLDS
        joined = self.refused(lambda: self.real.accept(self.acting(person), code, person))
        assert (joined is not None) == (works and not is_full and not self.mine(known, person))
        if joined:
            known.members.append(person)
            del known.codes[code]

    def decline(self, person: str, number: int) -> None:
        code, known, works = self._code(number)
        self.refused(lambda: self.real.decline(self.acting(person), code))
        if works:
            del known.codes[code]

    def leave(self, person: str, number: int) -> None:
        household = self.group(number)
        known = self.model.get(household, Group())
        self.refused(lambda: self.real.leave(self.acting(person), household))
        for each in self.mine(known, person):
            self._gone(known, each)

    def share(
        self, person: str, number: int, attribute: str, others: set[str], hours: float, is_fit: bool = False
    ) -> None:
        """`is_fit`: with those alone to whom something can be shared."""
        household = self.group(number)
        known = self.model.get(household, Group())
        mine = self.mine(known, person)
        others = others & {*known.members} - {*mine} if is_fit else others
        state = Household.of(household, self.log.read(household))
        numbers = {entry.person: member for member, entry in state.members.items()}
        to = [numbers.get(each, "nobody") for each in sorted(others)]
        until = self.now + hours * HOUR
        ends = datetime.fromtimestamp(until, UTC)
        made = {"attribute": attribute, "to": to, "purpose": f"for {attribute}", "until": ends}
        shares = [Share.model_validate(made)] if others else []
        self.refused(lambda: self.real.share(self.acting(person), household, shares))
        if others <= {*known.members} - {*mine}:
            for each in mine:
                given = [(attribute, set(others), f"for {attribute}", until)] if others else []
                known.shared[each] = person, given

    def wait(self, _person: str, number: int) -> None:
        self.now += number * 20 * HOUR

    def erase(self, person: str, _: int) -> None:
        self.log.erase([f"~{person}"])
        for known in self.model.values():
            self._gone(known, person)
            # What they did for other members of what was their profile goes too, and brings nothing back.
            known.shared = {each: given for each, given in known.shared.items() if given[0] != person}
            known.codes = {code: asked for code, asked in known.codes.items() if asked[0] != person}

    def _gone(self, known: Group, person: str) -> None:
        if person in known.members:
            known.members.remove(person)
        known.shared.pop(person, None)
        known.codes = {code: asked for code, asked in known.codes.items() if asked[1] != person}
        # Who comes back is another member: nothing that was shared with the former one is.
        for _, shares in known.shared.values():
            for _, others, _, _ in shares:
                others.discard(person)

    def expected(self, person: str) -> Seen:
        return {
            (giver, attribute, purpose)
            for known in self.model.values()
            for giver, (by, shares) in known.shared.items()
            if by in self.one[giver] and giver not in self.one[person]
            for attribute, others, purpose, until in shares
            if not others.isdisjoint(self.mine(known, person)) and self.now < until
        }

    def gives(self, person: str) -> list[tuple[str, str]]:
        """The attributes that a person shares, by the model."""
        return [
            (household, share[0])
            for household, known in self.model.items()
            for each in self.mine(known, person)
            for by, shares in [known.shared.get(each, (each, []))]
            for share in shares
            if by in self.one[person]
        ]

    def shown(self, person: str) -> list[tuple[str, str]]:
        """The same by the system, which sorts by id."""
        me = self.acting(person)
        by_id = {known.id: known.shares_of(me) for known in self.real.of(me)}
        return [(each, share.attribute) for each in self.model for share in by_id.pop(each, ())]

    def seen(self, person: str) -> Seen:
        me = self.acting(person)
        return {
            (giver.person, share.attribute, share.purpose)
            for known in self.real.of(me)
            for giver, share in known.shared_with(me, self.real.now_ms())
        }


NUMBER = st.sampled_from([0, 0, 0, 1, 2])
WHO = st.sampled_from(PERSONS)
SHARE = st.tuples(
    st.just("share"),
    WHO,
    NUMBER,
    st.sampled_from(ATTRIBUTES),
    st.sets(WHO, max_size=3),
    st.sampled_from([30, 900, 900]),
    st.booleans(),
)
ACTS = st.one_of(
    SHARE,
    SHARE,
    st.tuples(st.sampled_from(["invite", "accept", "accept", "decline", "found"]), WHO, NUMBER),
    st.tuples(st.sampled_from(["leave", "erase", "wait"]), WHO, NUMBER),
    st.tuples(st.sampled_from(["merge", "split"]), WHO, st.integers(0, 3)),
    st.tuples(st.sampled_from(["merge", "split"]), WHO, st.integers(0, 3)),
)
BEGIN = [
    ("found", "ann", 0),
    ("invite", "ann", 0),
    ("accept", "bea", 0),
    ("invite", "bea", 0),
    ("accept", "cid", 0),
]
CID_SHARES, BOTH = ("share", "cid", 0, "score", {"bea"}, 900, True), ("merge", "ann", 2)
ANN_IS_ERASED = [("split", "ann", 0), ("erase", "ann", 0)]
"""What Ann ended as the same person as Cid stays ended."""


@example([CID_SHARES, BOTH, ("leave", "ann", 0), *ANN_IS_ERASED])
@example([CID_SHARES, BOTH, ("share", "ann", 0, "score", set(), 900), *ANN_IS_ERASED])
@example([BOTH, ("share", "ann", 0, "score", {"bea"}, 900), *ANN_IS_ERASED])
@example([("merge", "dan", 0), ("invite", "dan", 0), ("split", "dan", 0), ("accept", "dan", 0)])
@example([BOTH, ("invite", "cid", 0), ("split", "cid", 0), ("accept", "dan", 0)])
@settings(max_examples=examples(2000, short=100))
@given(st.lists(ACTS, min_size=6, max_size=20))
def test_each_sees_what_others_share_with_them_and_no_more(acts: list[tuple[Any, ...]]) -> None:
    # In memory where there is such a folder: each act is a commit.
    with TemporaryDirectory(dir=MEMORY) as folder, closing(SqliteHouseholdLog(Path(folder) / "h.db")) as log:
        told = Told(log)
        for act in [*BEGIN, *acts]:
            told.do(act)
            for each in PERSONS:
                assert (told.seen(each), told.shown(each)) == (told.expected(each), told.gives(each))


@pytest.fixture(params=HOUSEHOLD_LOGS, ids=str)
def kept(request: pytest.FixtureRequest) -> Implementation[HouseholdLog]:
    implementation: Implementation[HouseholdLog] = request.param
    return implementation


@pytest.fixture
def told(kept: Implementation[HouseholdLog], tmp_path: Path) -> Iterator[Told]:
    with kept.opened(tmp_path) as log:
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
    both = acting("ann", "bea")
    (known,) = told.real.of(both)
    assert len(known.mine(both)) == 2
    assert list(known.shared_with(both, told.real.now_ms())) == []
    told.real.leave(both, household)
    assert Household.of(household, told.log.read(household)).members == {}


IN_FILES = pytest.mark.parametrize("kept", [each for each in HOUSEHOLD_LOGS if each.in_files], indirect=True)


@IN_FILES
def test_a_code_works_once_and_is_not_in_the_file(told: Told, tmp_path: Path) -> None:
    told.found("ann", 0)
    code, _ = told.real.invite(acting("ann"), told.group(0))
    assert places(tmp_path, (code.partition(".")[2],)) == []
    told.real.accept(acting("bea"), code, "Bea")
    for person in ("bea", "cid"):
        with pytest.raises(MetadataError):
            told.real.accept(acting(person), code, person)


@IN_FILES
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


@pytest.mark.parametrize("kept", [each for each in HOUSEHOLD_LOGS if not each.in_files], indirect=True)
def test_nothing_is_left_of_an_erased_member_in_tables(told: Told, tmp_path: Path) -> None:
    canary = "canary-member-4711"
    pair(told)
    code, _ = told.real.invite(acting("ann"), told.group(0))
    told.real.accept(acting(canary), code, canary)
    assert canary in repr(stored(tmp_path))
    told.log.erase([f"~{canary}"])
    assert canary not in repr(stored(tmp_path))


def test_an_erasure_takes_all_entries_of_a_person_and_no_other(told: Told) -> None:
    household = pair(told)
    told.found("bea", 0)
    before = told.log.read(household)
    gone = sum(each.key == "~bea" for each in [*before, *told.log.read(told.group(1))])
    assert len(told.log.of(["~bea"])) == 2
    assert told.log.erase(["~bea", "~nobody"]) == gone > 0
    assert told.log.of(["~bea"]) == []
    assert told.log.read(household) == [each for each in before if each.key != "~bea"]
    assert told.log.erase(["~bea"]) == 0


def test_no_two_decide_on_the_same_entries(kept: Implementation[HouseholdLog], tmp_path: Path) -> None:
    def append(log: HouseholdLog, writer: int) -> None:
        def decide(known: Sequence[HouseholdEntry]) -> list[HouseholdEntry]:
            return [HouseholdEntry("h", str(len(known)), "ann", f"~{writer}", 1, "joined", {"n": len(known)})]

        for _ in range(5):
            log.append("h", decide)

    with kept.opened(tmp_path) as one, kept.opened(tmp_path) as two:
        threads = [threading.Thread(target=append, args=each) for each in ((one, 1), (two, 2))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [each.body["n"] for each in one.read("h")] == list(range(10))
        assert [each.member for each in two.read("h")] == [str(each) for each in range(10)]
