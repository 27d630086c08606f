"""Households: persons who linked themselves, and what each shares with whom, for which purpose and until
when.

All of it is a log that is only appended to; a household is the sum of its entries. Nobody is asked for by
name: who invites gets a code to hand on. A person is known by the id of a fragment, which resolves to the
profile that the fragment is part of.

Persons merge and split. While they are one, each acts for the memberships of all. A share or an invitation
counts as long as the giver and the member are one profile; an ended one stays ended.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

from pydantic import AwareDatetime, Field

from idgraph.model.documents import StrictDocument
from idgraph.model.households import HouseholdEntry, HouseholdLog
from idgraph.web.refusals import ClashError, RefusedRequestError, UnknownSubjectError

INVITATION_HOURS = 7 * 24
MOST_MEMBERS = 20
MOST_HOUSEHOLDS = 20
"""The most households of one person."""
NO_HOUSEHOLD = "this person has no such household or invitation"


class Acting(NamedTuple):
    """The person who calls: the fragment that the token is bound to, and the keyed hashes of all fragments of the profile.
    `are_one` returns whether a fragment is part of the profile that has the fragment of this keyed hash."""

    person: str
    keys: frozenset[str]
    are_one: Callable[[str, str], bool]


class Share(StrictDocument):
    """An attribute, and those below it, for some other members."""

    attribute: str = Field(min_length=1, max_length=1024)
    to: list[Annotated[str, Field(max_length=40)]] = Field(min_length=1, max_length=100)
    purpose: str = Field(min_length=1, max_length=200)
    until: AwareDatetime | None = None

    def reaches(self, members: Collection[str], now_ms: int) -> bool:
        """Whether one of these members may see it now."""
        return not set(members).isdisjoint(self.to) and (
            self.until is None or now_ms < self.until.timestamp() * 1000
        )


@dataclass
class Household:
    """The sum of the entries of a household. `members` and `shares` are by member; shares with the entry that
    gave them."""

    id: str
    members: dict[str, HouseholdEntry] = field(default_factory=dict)
    shares: dict[str, list[tuple[HouseholdEntry, Share]]] = field(default_factory=dict)
    invitations: dict[str, HouseholdEntry] = field(default_factory=dict)
    """By the hash of a code that was not used."""

    @classmethod
    def of(cls, household: str, entries: Sequence[HouseholdEntry]) -> Household:
        made = cls(household)
        for each in entries:
            if each.kind == "joined":
                made.members[each.member] = each
            elif each.kind == "invited":
                made.invitations[each.body["code"]] = each
            elif each.kind == "closed":
                made.invitations.pop(each.body["code"], None)
            elif each.kind == "left":
                made.members.pop(each.member, None)
                made.shares.pop(each.member, None)
            elif each.kind == "shared":
                shares = map(Share.model_validate, each.body["shares"])
                made.shares[each.member] = [(each, share) for share in shares]
        return made

    def mine(self, who: Acting) -> list[str]:
        """The memberships of a person, the own first: several where profiles that were both members became one."""
        found = [member for member, entry in self.members.items() if entry.key in who.keys]
        return sorted(found, key=lambda member: self.members[member].person != who.person)

    def counts(self, given: HouseholdEntry, who: Acting) -> bool:
        """Whether a member gives this, by any fragment that is part of the member's profile now."""
        member = self.members.get(given.member)
        return member is not None and (member.key == given.key or who.are_one(given.person, member.key))

    def shares_of(self, who: Acting) -> list[Share]:
        """The shares of a person."""
        found = [each for member in self.mine(who) for each in self.shares.get(member, ())]
        return [share for given, share in found if self.counts(given, who)]

    def shared_with(self, who: Acting, now_ms: int) -> Iterator[tuple[HouseholdEntry, Share]]:
        """The shares of others with a person now."""
        mine = self.mine(who)
        for member, shares in self.shares.items():
            for given, share in shares if member not in mine else ():
                if share.reaches(mine, now_ms) and self.counts(given, who):
                    yield self.members[member], share


class Households:
    """The acts of persons in households; each act is a person's own. Every method raises StoreError, and
    UnknownSubjectError for a household that the person is no member of."""

    def __init__(
        self, log: HouseholdLog, key: Callable[[str], str], clock: Callable[[], float] = time.time
    ) -> None:
        """`key` hashes the id of a person."""
        self._log = log
        self._key = key
        self._clock = clock

    def now_ms(self) -> int:
        return int(self._clock() * 1000)

    def of(self, who: Acting) -> list[Household]:
        """The households that a person is a member of."""
        found = (Household.of(each, self._log.read(each)) for each in self._log.of(who.keys))
        return [each for each in found if each.mine(who)]

    def found(self, who: Acting, name: str) -> str:
        """A new household with one member; returns its id. `name` is how others know the person."""
        household = secrets.token_urlsafe(12)
        self._join(who, household, name, lambda _: [])
        return household

    def invite(self, who: Acting, household: str) -> tuple[str, int]:
        """A code with which one person may join, and its end in epoch milliseconds."""
        code, until_ms = secrets.token_urlsafe(24), self.now_ms() + INVITATION_HOURS * 3_600_000
        body = {"code": _digest(code), "until_ms": until_ms}
        self._act(who, household, lambda _, mine: [self._entry(who, household, mine[0], "invited", body)])
        return f"{household}.{code}", until_ms

    def accept(self, who: Acting, code: str, name: str) -> str:
        """Join by a code; returns the household. Raises UnknownSubjectError for a code that is used, declined, over or none."""
        household, digest = _parts(code)
        self._join(who, household, name, lambda known: [self._closed(who, known, digest)])
        return household

    def decline(self, who: Acting, code: str) -> None:
        """Make a code useless. Raises as `accept` does."""
        household, digest = _parts(code)

        def decide(entries: Sequence[HouseholdEntry]) -> list[HouseholdEntry]:
            closed = self._closed(who, Household.of(household, entries), digest)
            return [closed, self._entry(who, household, "", "declined")]

        self._log.append(household, decide)

    def share(self, who: Acting, household: str, shares: Sequence[Share]) -> None:
        """Share this, and nothing else from now on. Raises RefusedRequestError for one who is no other member."""

        def shared(known: Household, mine: Sequence[str]) -> list[HouseholdEntry]:
            others = known.members.keys() - set(mine)
            if not all(others.issuperset(each.to) for each in shares):
                raise RefusedRequestError("shares are with other members of the household", "/shares")
            body = {"shares": [each.model_dump(mode="json") for each in shares]}
            given = [self._entry(who, household, member, "shared", body) for member in mine]
            # The end of what was shared before stays if whoever acts is erased.
            ended = [self._ended(known.members[member], "shared", {"shares": []}) for member in mine]
            return [each for each in ended if each.key != given[0].key] + given

        self._act(who, household, shared)

    def leave(self, who: Acting, household: str) -> None:
        """End the membership, and all that is shared by and with it."""

        def left(known: Household, mine: Sequence[str]) -> list[HouseholdEntry]:
            return [self._ended(known.members[member], "left") for member in mine]

        self._act(who, household, left)

    def _act(
        self, who: Acting, household: str, act: Callable[[Household, Sequence[str]], list[HouseholdEntry]]
    ) -> None:
        """Append entries for the memberships of the person."""

        def decide(entries: Sequence[HouseholdEntry]) -> list[HouseholdEntry]:
            known = Household.of(household, entries)
            mine = known.mine(who)
            if not mine:
                raise UnknownSubjectError(NO_HOUSEHOLD)
            return act(known, mine)

        self._log.append(household, decide)

    def _join(
        self, who: Acting, household: str, name: str, by: Callable[[Household], list[HouseholdEntry]]
    ) -> None:
        if len(self.of(who)) >= MOST_HOUSEHOLDS:
            raise ClashError(f"a person is in at most {MOST_HOUSEHOLDS} households")

        def decide(entries: Sequence[HouseholdEntry]) -> list[HouseholdEntry]:
            known = Household.of(household, entries)
            closed = by(known)
            if known.mine(who):
                raise ClashError("this person is a member already")
            if len(known.members) >= MOST_MEMBERS:
                raise ClashError(f"a household has at most {MOST_MEMBERS} members")
            member = secrets.token_urlsafe(9)
            return [*closed, self._entry(who, household, member, "joined", {"name": name})]

        self._log.append(household, decide)

    def _closed(self, who: Acting, known: Household, digest: str) -> HouseholdEntry:
        """The end of a code."""
        invited = known.invitations.get(digest)
        if invited is None or self.now_ms() >= invited.body["until_ms"] or not known.counts(invited, who):
            raise UnknownSubjectError(NO_HOUSEHOLD)
        return self._ended(known.members[invited.member], "closed", {"code": digest})

    def _ended(
        self, member: HouseholdEntry, kind: str, body: Mapping[str, Any] | None = None
    ) -> HouseholdEntry:
        """The end of something, as an entry of the member: it stays if whoever ended it is erased."""
        return member._replace(at_ms=self.now_ms(), kind=kind, body=body or {})

    def _entry(
        self, who: Acting, household: str, member: str, kind: str, body: Mapping[str, Any] | None = None
    ) -> HouseholdEntry:
        key = self._key(who.person)
        return HouseholdEntry(household, member, who.person, key, self.now_ms(), kind, body or {})


def _parts(code: str) -> tuple[str, str]:
    household, _, secret = code.partition(".")
    return household, _digest(secret)


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()
