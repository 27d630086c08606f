"""The projection: the one way from committed fragments to documents of the index, and the only writer of the
index.

A commit leaves an entry in the outbox in its own transaction; so does an erasure. The projection reads these
fragments, puts their documents, erases the documents of fragments that are gone, and then settles the
entries. A crash in between leaves the entries, and projecting again changes nothing.

It reads the store within `index.writing()`: nobody can erase or replace a fragment's document between the
read and the commit of the put. If an index lets several write at once, versions decide. One commit has many
slices, since a commit costs as much for ten documents as for a thousand; entries are settled behind it.

A sweep of an index that several can write to may leave its work to the tasks of an engine (`Tasks`). Then it
only decides what waits and what new rules and segments ask for.
"""

from __future__ import annotations

import hashlib
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager
from itertools import count, islice, starmap, takewhile

from idgraph.model.backoff import Backoff
from idgraph.model.batch_size import BatchSize
from idgraph.model.behaviour import BehaviourRules
from idgraph.model.identity_rules import IdentityRules
from idgraph.model.index import IndexRules, ProfileIndex
from idgraph.model.store import (
    WHOLE,
    Assignment,
    OutboxEntry,
    OutboxShare,
    ProfileStore,
    StoredFragment,
    document_version,
)
from idgraph.projection.behaviour import Deriving
from idgraph.projection.documents import behaviour_hash, documents_of, put
from idgraph.projection.parts import Pass, Projected, Tasks, Work
from idgraph.projection.segments import Segments, follows_clock
from merge.identity.components import Member, Person
from merge.identity.persons import Persons
from merge.identity.rules import Rules

log = logging.getLogger(__name__)

AT_ONCE = 5_000
"""Light fragments that are in memory at once; of heavy ones fewer, see `BatchSize`."""

DUE_AT_ONCE = 2_000
"""Due entries, and fragments that new definitions may change, that are taken before fresh ones are looked for again: at
midnight in UTC many persons change at once."""

COMMITTED_AT_ONCE = 100_000
COMMIT_SECONDS = 5.0
"""After so many fragments, or so long, what was put is committed: other writers wait for it."""

RETRY = Backoff(base=1.0, cap=60.0, least=1.0)
"""Pauses until a refused document is put again."""

SHOWN = 5
"""The most refused documents that one message names."""

FOLLOW_SECONDS = 0.5
"""After new identity rules, so long of each pass is for finding fragments whose profile changes: commits wait meanwhile."""

MOST_REMEMBERED = 10_000
"""Refused documents that wait for their retry. Beyond that number, each sweep puts the others again."""


_NOT_ANY_MORE = "hub no more"
"""The mark that takes the place of one that does not hold any more, as a hub's does once fewer fragments
carry it."""


IDENTITY_RULES = "identity rules"
BEHAVIOUR = "definitions of behaviour"


def overtaken_mark(version: int, kind: str = IDENTITY_RULES) -> str:
    """The mark of the store that says that its profiles follow newer rules of a kind than these."""
    return f"{kind} newer than {version}"


def begun_mark(version: int) -> str:
    """The mark of the store that says that profiles may have been projected by definitions of this version."""
    return f"{BEHAVIOUR} begun {version}"


def rules_mark(rules: IndexRules) -> str:
    """The mark of the store that says that all fragments were looked through after these identity rules came."""
    content = rules.identity.model_dump_json(exclude_defaults=True)
    return f"identity rules {rules.identity_version} {hashlib.sha256(content.encode()).hexdigest()}"


def behaviour_mark(rules: BehaviourRules, version: int) -> str:
    """The mark of the store that says that all fragments were looked through after these definitions came, in this version."""
    return f"{BEHAVIOUR} {version} {behaviour_hash(rules.activities, rules.derived, rules.models)}"


class Projection:
    """Projects fragments of one store into one index. One per thread; any number may run at once."""

    def __init__(
        self,
        store: ProfileStore,
        index: ProfileIndex,
        rules: Callable[[], IndexRules],
        at_once: int = AT_ONCE,
        tasks: Tasks | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """`rules` returns those of the newest snapshot. With `tasks` a sweep leaves its work to these. `now_ms` is the moment
        as of which attributes are derived and profiles are in segments."""
        self._store = store
        self._index = index
        self._newest = rules
        self._tasks = tasks
        self._size = BatchSize(at_once)
        self._ahead = AT_ONCE
        self._identity: tuple[IdentityRules, Persons] | None = None
        self._refused: dict[str, int] = {}
        self._hubs: set[str] = set()
        self._has_split = False
        self._followed: IdentityRules | None = None
        self._following: tuple[str, Pass] | None = None
        self._is_late = False
        self._deriving = Deriving(store)
        self._segments = Segments(store, index, self._deriving, now_ms)
        self._retried = 0
        self._retry_at = math.inf
        self._now_ms = now_ms
        self._begun = 0
        self._derived = 0
        self._same_as = 0
        self._enqueuing: tuple[str, Pass] | None = None

    def project(self, ids: Iterable[str], has_lost: bool = False) -> Projected:
        """Bring the documents of these fragments up to date, and settle their outbox entries. With `has_lost` fragments of
        their profiles are gone, whose versions count no more.

        Raises ProfileIndexError when the index is away, StoreError when the store is: safe to repeat.
        """
        total = Projected()
        remaining = iter(dict.fromkeys(ids))
        while batch := list(islice(remaining, self._size.present)):
            with self._committed() as settled:
                total.add(self._project_slice(batch, settled, set(batch), has_lost))
        total.has_split, self._has_split = self._has_split, False
        return total

    def share(self, share: OutboxShare, waiting: Mapping[str, int], seconds: float) -> Projected:
        """Project once all that has an entry in a share of the outbox, or what so many `seconds` are enough for, without
        what is `waiting` for its retry, by version. Raises as `project` does."""
        total, after, ends = Projected(is_whole=False), "", time.monotonic() + seconds
        while not total.is_whole and time.monotonic() < ends:
            reached = self._project_page(share, after, waiting, total)
            total.is_whole, after = reached is None, reached or ""
        total.has_split, self._has_split = self._has_split, False
        total.versions = {each: self._refused[each] for each in total.refused if each in self._refused}
        return total

    def follow(self, work: Work, ids: Sequence[str]) -> Projected:
        """Do what new rules or segments ask for. Raises as `project` does."""
        rules = self._rules()
        persons = self._persons(rules)
        if work is Work.FOLLOW_SEGMENTS:
            self._segments.enter(ids, rules, persons)
            if self._is_overtaken(rules):
                # What was planned is by older definitions.
                self._store.enqueue(ids)
            return Projected()
        if work is Work.FOLLOW_BEHAVIOUR:
            self._store.enqueue(ids)
            return Projected(has_split=True)
        return Projected(has_split=self._enqueue_moved(persons, ids))

    def many(self) -> AbstractContextManager[Callable[[], bool]]:
        """Several calls, each of which commits. Nobody else writes to the index meanwhile; the function that
        it yields returns whether another waits. Raises as `project` does."""
        return self._index.writing(stays_open=True)

    def sweep(self, seconds: float = math.inf) -> Projected:
        """Project once all that has an entry in the outbox, or what so many `seconds` are enough for. A document that
        the index refused waits for its retry, unless its fragment was written since.

        Raises as `project` does.
        """
        started = time.monotonic()
        # Documents that `project` was refused have no time of retry yet.
        waiting = self._refused if started < self._retry_at < math.inf else {}
        total, ends = Projected(is_whole=False), started + seconds
        while not total.is_whole and time.monotonic() < ends:
            has_due = self._take_due()
            done = self._swept(waiting, ends - time.monotonic())
            total.add(done)
            total.is_whole = done.is_whole and not has_due
            # All that is stored, once identity rules or segments are new; in this pass and those before.
            is_followed = (
                not total.is_whole
                or self._is_late
                or (self._follow_rules() and self._follow_behaviour() and self._follow_segments())
            )
            if total.is_whole and (done.has_split or self._has_split or not is_followed):
                # Entries that the sweep has passed by.
                total.is_whole, self._has_split = False, False
                total.postponed = 0
        self._plan_retry(waiting is not self._refused)
        return total

    def _swept(self, waiting: Mapping[str, int], seconds: float) -> Projected:
        if self._tasks is None:
            return self.share(WHOLE, waiting, seconds)
        self._look_for_newer_rules()
        entries = self._store.outbox(len(waiting) + 1)
        if all(waiting.get(name) == version for name, version in entries):
            return Projected(postponed=len(entries))
        done = self._tasks.sweep(waiting)
        self._remember(done.versions, done.refused)
        if not waiting:
            # Others were taken, or are written again.
            self._refused = {each: self._refused[each] for each in done.versions if each in self._refused}
        return done

    def _project_page(
        self, share: OutboxShare, after: str, waiting: Mapping[str, int], total: Projected
    ) -> str | None:
        """Project entries of a share of the outbox behind `after` in one commit, and add the result to `total`. Returns the last one, None
        where that was all."""
        with self._committed() as settled:
            # Read inside: another process has projected what it could. All at once: a person whose fragments come over
            # many pages is projected with the first.
            entries, ahead = self._store.outbox(self._ahead, after, share), self._ahead
            due, names = self._due(entries, settled, waiting, total), {name for name, _ in entries}
            ends = time.monotonic() + COMMIT_SECONDS
            while batch := list(islice(due, self._size.present)):
                total.add(self._project_slice(batch, settled, names))
                after = batch[-1]
                if time.monotonic() >= ends:
                    # Some stores read far more than they return.
                    self._ahead = max(AT_ONCE, min(2 * len(settled), ahead))
                    return after
            if len(entries) < ahead:
                return None
            self._ahead = min(4 * ahead, COMMITTED_AT_ONCE)
            return entries[-1].fragment_id

    @staticmethod
    def _due(
        entries: Iterable[OutboxEntry],
        settled: Mapping[str, int],
        waiting: Mapping[str, int],
        total: Projected,
    ) -> Iterator[str]:
        """The fragments that neither wait for their retry nor were projected meanwhile, with a person of earlier ones."""
        for name, version in entries:
            if settled.get(name, -1) < version:
                if waiting.get(name) == version:
                    total.postponed += 1
                else:
                    yield name

    def waiting(self, limit: int) -> int:
        """Entries in the outbox, counted up to a limit. Raises StoreError."""
        return len(self._store.outbox(limit))

    def _plan_retry(self, was_retry: bool) -> None:
        if not self._refused:
            self._retry_at, self._retried = math.inf, 0
        elif was_retry or self._retry_at == math.inf:
            self._retry_at = time.monotonic() + RETRY.pause(self._retried)
            self._retried += 1

    @contextmanager
    def _committed(self) -> Iterator[dict[str, int]]:
        """One commit of the index. The block adds versions by id, which are settled behind it. An entry of a
        later version stays, and all do where others follow newer identity rules."""
        settled: dict[str, int] = {}
        self._hubs.clear()
        self._segments.clear()
        with self._index.writing():
            rules = self._rules()
            self._look_for_newer_rules()
            yield settled
        if self._is_overtaken(rules):
            # A process that has the newer rules may have settled the same versions before these documents came. It says who is
            # in which segment, too.
            self._store.enqueue(list(settled))
            return
        self._segments.cross()
        remaining = starmap(OutboxEntry, settled.items())
        while batch := list(islice(remaining, AT_ONCE)):
            self._store.settle(batch)
        for name in settled if self._refused else ():
            self._refused.pop(name, None)

    def _look_for_newer_rules(self) -> None:
        """Look whether profiles follow newer rules than these."""
        rules, was_late = self._rules(), self._is_late
        self._is_late = self._is_overtaken(rules)
        if self._is_late and not was_late:
            log.warning(
                "profiles follow identity rules newer than %d, or definitions of behaviour newer than %d: commits wait "
                "in the outbox for a process that has these",
                rules.identity_version,
                rules.behaviour.version,
            )

    def _is_overtaken(self, rules: IndexRules) -> bool:
        marks = overtaken_mark(rules.identity_version), overtaken_mark(rules.behaviour.version, BEHAVIOUR)
        return any(map(self._store.remembers, marks))

    def _overtake(self, version: int, kind: str) -> list[int]:
        """Say that versions before this one are overtaken, the oldest first: an interruption leaves none between. Returns
        those that were not, the newest first."""
        ahead = range(version - 1, -1, -1)
        older = list(takewhile(lambda each: not self._store.remembers(overtaken_mark(each, kind)), ahead))
        for each in reversed(older):
            self._store.remember(overtaken_mark(each, kind))
        return older

    def _rules(self) -> IndexRules:
        """The newest rules. The store is told before the first document by them. A process of a version in between says that it
        begins before it looks whether it is overtaken, and this one the other way round: one of both sees the other."""
        rules = self._newest()
        if (version := rules.behaviour.version) != self._begun:
            older = self._overtake(version, BEHAVIOUR)
            self._store.remember(begun_mark(version))
            is_next = older and not any(map(self._store.remembers, map(begun_mark, older[:-1])))
            self._begun, self._same_as = version, older[-1] if is_next else version
        return rules

    def _project_slice(
        self, ids: Sequence[str], projected: dict[str, int], asked: Set[str], has_lost: bool = False
    ) -> Projected:
        """Put the documents of the persons of these fragments; adds the versions that were projected to `projected`. `asked`
        are these fragments, and others that will be."""
        rules = self._rules()
        around = self._persons(rules).around(ids, resolves_all=False)
        all_persons = around.persons()
        members = {each.stored.id: each.stored for person in all_persons for each in person.members}
        self._size.weighed(len(ids), sum(len(each.state) for each in members.values()))
        result = Projected()
        missing = [each for each in ids if each not in members and each not in around.unreadable]
        if self._is_late and not has_lost:
            result.postponed, members = len(members.keys() & ids), {}
        else:
            self._split(around.hubs, rules.identity_version)
            self._unsplit(around.not_hubs)
        if members:
            read = dict(members)
            persons, waiting = self._assigned(all_persons, members, asked, has_lost)
            due = {
                name
                for name, each in members.items()
                if each is not read[name] or (name in asked and projected.get(name, -1) < each.version)
            }
            for person in persons:
                # Others whom the rules compared with hers are as they were.
                if due.isdisjoint(names := [each.stored.id for each in person.members]):
                    waiting.update(names)
            persons = [each for each in persons if each.id not in waiting]
            now_ms = self._now_ms()
            behaviour = self._deriving.of(persons, rules, now_ms)
            documents, refused = documents_of(persons, rules, behaviour)
            known = self._segments.known(persons, rules)
            refused |= put(self._index, documents)
            changes: Mapping[str, int] = {}
            if rules.segments:
                accepted = (each for each in documents if each.id not in refused)
                changes = self._segments.evaluate(persons, accepted, rules, now_ms, known)
                stored = (each.stored for person in persons for each in person.members[1:])
                self._segments.leave({each.id: document_version(each.generation) for each in stored})
            self._segments.plan(persons, behaviour, changes, rules)
            for person in persons if refused else ():
                if (reason := refused.get(person.id)) is not None:
                    result.refused |= dict.fromkeys((each.stored.id for each in person.members), reason)
            for name in waiting:
                del members[name]
        settled = {name: each.version for name, each in members.items()}
        unsettled = {name: settled.pop(name) for name in result.refused if name in settled}
        if around.unreadable:
            result.refused |= around.unreadable
            damaged = self._store.read(list(around.unreadable))
            unsettled |= {name: each.version for name, each in damaged.items()}
        self._remember(unsettled, result.refused)
        if missing:
            gone = self._gone(missing)
            self._segments.leave(dict.fromkeys(missing, 0) | gone)
            # By version: a fragment that comes back has a later one.
            result.erased = self._index.erase(gone)
            settled |= gone
        projected |= settled
        result.projected = len(settled)
        return result

    def _take_due(self) -> bool:
        """Move some due entries into the outbox, beside what is fresh. Returns whether there may be more."""
        if not follows_clock(self._rules()):
            return False
        limit = DUE_AT_ONCE if self._tasks is None else self._tasks.at_once
        return self._store.take_due(self._now_ms(), limit) >= limit

    def _follow_behaviour(self) -> bool:
        """Put all fragments into the outbox once the definitions of derived attributes have changed."""
        rules = self._rules().behaviour
        if rules.version == self._derived:
            return True
        mark = behaviour_mark(rules, rules.version)
        if self._follows_same(rules):
            self._store.remember(mark)
        elif not self._store.remembers(mark):
            if self._enqueuing is None or self._enqueuing[0] != mark:
                self._enqueuing = mark, self._pass(Work.FOLLOW_BEHAVIOUR)
            # One step, so that fresh entries do not wait for all that is stored.
            if not self._enqueuing[1].has_ended(time.monotonic()):
                return False
            self._store.remember(mark)
        self._derived, self._enqueuing = rules.version, None
        return True

    def _follows_same(self, rules: BehaviourRules) -> bool:
        """Whether profiles follow another version that derives the same values. Before the first one nothing was derived."""
        if self._same_as == 0:
            return not rules.derived
        return self._same_as < rules.version and self._store.remembers(behaviour_mark(rules, self._same_as))

    def _follow_segments(self) -> bool:
        ends = time.monotonic() + FOLLOW_SECONDS
        return self._segments.follow(self._rules(), lambda: self._pass(Work.FOLLOW_SEGMENTS), ends)

    def _follow_rules(self) -> bool:
        """Put fragments into the outbox that new identity rules give to another profile."""
        rules = self._rules()
        if rules.identity is self._followed:
            return True
        mark = rules_mark(rules)
        if rules.identity_version and not self._store.remembers(mark):
            if self._following is None or self._following[0] != mark:
                self._overtake(rules.identity_version, IDENTITY_RULES)
                self._following = mark, self._pass(Work.FOLLOW_RULES)
            if not self._following[1].has_ended(time.monotonic() + FOLLOW_SECONDS):
                return False
            self._store.remember(mark)
        self._followed, self._following = rules.identity, None
        return True

    def _pass(self, work: Work) -> Pass:
        """The work for all fragments."""
        tasks = self._tasks

        def run(ids: Sequence[str]) -> None:
            done = self.follow(work, ids) if tasks is None else tasks.follow(work, ids)
            self._has_split |= done.has_split

        return Pass(
            self._store.ids,
            run,
            lambda: min(self._size.present, DUE_AT_ONCE) if tasks is None else tasks.at_once,
        )

    def count_as_newest(self) -> None:
        """Let these rules count though others were newer: those were lost with a metadata database."""
        rules = self._rules()
        for kind, version in ((IDENTITY_RULES, rules.identity_version), (BEHAVIOUR, rules.behaviour.version)):
            for each in count(version):
                if not self._store.remembers(mark := overtaken_mark(each, kind)):
                    break
                self._store.remember(_NOT_ANY_MORE, instead_of=mark)

    def _enqueue_moved(self, persons: Persons, ids: Sequence[str]) -> bool:
        """Returns whether any moved."""
        moved = [
            member.stored.id
            for person in persons.named(ids, resolves_all=False).persons
            for member in person.members
            if member.stored.projected_into != person.id
        ]
        if moved:
            self._store.enqueue(moved)
        return bool(moved)

    def _split(self, hubs: Iterable[str], version: int) -> None:
        """Put all that an identifier joined into the outbox, once it is a hub and joins nothing."""
        for identifier in hubs:
            mark = self._hub_mark(identifier, version)
            if mark not in self._hubs:
                if not self._store.remembers(mark):
                    self._store.enqueue(self._store.find(identifier))
                    self._store.remember(mark)
                    self._has_split = True
                self._hubs.add(mark)

    def _unsplit(self, not_hubs: Iterable[str]) -> None:
        """Forget that an identifier was a hub, so that all its fragments are projected once it is one again.
        Project them once more, should it be one by now."""
        for identifier in not_hubs:
            if self.forget_hub(identifier):
                self._store.enqueue(self._store.find(identifier))
                self._has_split = True

    def forget_hub(self, identifier: str) -> bool:
        """Forget that an identifier was a hub, since fewer may carry it now. Returns whether it was one. Raises
        StoreError."""
        mark = self._hub_mark(identifier, self._rules().identity_version)
        if not self._store.remembers(mark):
            return False
        self._hubs.discard(mark)
        self._store.remember(_NOT_ANY_MORE, instead_of=mark)
        return True

    def _hub_mark(self, identifier: str, version: int) -> str:
        """The mark that an identifier is a hub by the rules of this version: by others it may have joined
        since."""
        return f"hub {version} {self._store.name(identifier).hex()}"

    def _persons(self, rules: IndexRules) -> Persons:
        if self._identity is None or self._identity[0] is not rules.identity:
            self._identity = rules.identity, Persons(self._store, Rules(rules.identity))
        return self._identity[1]

    def _assigned(
        self, persons: Sequence[Person], members: dict[str, StoredFragment], asked: Set[str], has_lost: bool
    ) -> tuple[list[Person], set[str]]:
        """Record which fragments belong to which profile now, and erase documents of profiles that are part
        of another one. Returns the persons in their new epochs, without those that another projection
        assigned first. Also returns the fragments that stay in the outbox: those of these persons, and those
        whose own document nobody has looked for here.

        An assignment leaves an entry in the outbox, so that a crash before the index's commit leaves no
        document behind."""
        # A fragment that is alone, and in its own profile, neither moves nor is absorbed.
        joined = [
            each for each in persons if has_lost or len(each.members) > 1 or each.members[0].stored.profile_id
        ]
        profile_of = {each.stored.id: person.id for person in joined for each in person.members}
        moved = {name for name, profile in profile_of.items() if members[name].projected_into != profile}
        overtaken: set[str] = set()
        if moved or has_lost:
            profiles = {person.id for person in persons} if has_lost else set[str]()
            profiles |= {profile_of[name] for name in moved} | {
                members[name].projected_into for name in moved
            }
            now, assignments = time.time_ns() // 1_000_000, []
            for name in sorted(moved | (profiles & members.keys())):
                _, version, state, previous, epoch = members[name]
                profile = "" if (profile := profile_of.get(name, name)) == name else profile
                assignments.append(Assignment(name, epoch, profile, previous, now))
                members[name] = StoredFragment(name, version + 1, state, previous, epoch + 1)
            if refused := self._store.assign(assignments):
                overtaken = {
                    each.stored.id
                    for person in persons
                    if any(each.stored.id in refused for each in person.members)
                    for each in person.members
                }
            left = {each.fragment_id for each in assignments} - profile_of.keys()
            assigned = {
                each.id: Person(
                    each.id,
                    tuple([Member(members[part.id], state) for part, state in each.members]),
                    each.identifiers,
                )
                for each in (*joined, *(each for each in persons if each.id in left))
            }
            persons = [assigned.get(each.id, each) for each in persons if each.id not in overtaken]
        absorbed = {name for name, profile in profile_of.items() if profile != name} - overtaken
        erased = {name for name in absorbed if name in moved or name in asked}
        if erased:
            self._index.erase({name: document_version(members[name].generation) for name in sorted(erased)})
        return list(persons), overtaken | (absorbed - erased)

    def _remember(self, refused: Mapping[str, int], reasons: Mapping[str, str]) -> None:
        """Log refused documents once, and let them wait."""
        new = [name for name, version in refused.items() if self._refused.get(name) != version]
        if new:
            named = "; ".join(f"{name}: {reasons[name]}" for name in new[:SHOWN])
            log.warning("the index refused %d profile(s), which stay in the outbox (%s)", len(new), named)
        self._refused.update(islice(refused.items(), max(0, MOST_REMEMBERED - len(self._refused))))

    def _gone(self, ids: Sequence[str]) -> dict[str, int]:
        """The version up to which the documents of fragments that are gone must go. It is the tombstone's,
        else, as after the loss of the store, the index's."""
        versions = {name: each.version for name, each in self._store.tombstones(ids).items()}
        if without := [each for each in ids if each not in versions]:
            present = self._index.versions(without)
            # A fragment that came meanwhile may have been projected by another process.
            there = self._store.read(list(present))
            versions |= {name: each for name, each in present.items() if name not in there}
        return versions
