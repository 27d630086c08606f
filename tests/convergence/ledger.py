"""The events that must count, by plain rules, apart from all code under test."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from idgraph.model.events import RawRecord
from idgraph.model.identifiers import Identifier
from tests.convergence.events import FUTURE, is_readable


class Pair(NamedTuple):
    """A record and the version of the snapshot that maps it."""

    record: RawRecord
    version: int


class Ledger:
    """`pairs` count, `dead_letters` lie among the dead ones, by position; the rest was refused because its person was
    erased. Sources in `counting` do not order by time."""

    def __init__(self, counting: Collection[str], forms: Callable[[Identifier], set[Identifier]]) -> None:
        """`forms` of an identifier are equal to it by the identity rules of the moment."""
        self.pairs: dict[Pair, None] = {}
        self.dead_letters: dict[str, RawRecord] = {}
        self.changes: dict[Pair, None] = {}
        """What the store refused, and is kept as changes in dead letters of fragments."""
        self._counting = counting
        self._forms = forms
        self._broken: set[tuple[int, str]] = set()
        self._until: dict[str, int] = {}
        self._unfinished: dict[str, set[Identifier]] = {}

    @property
    def is_anybody_erased(self) -> bool:
        return bool(self._until)

    def breaks(self, version: int, source: str) -> None:
        """Under this version no event of the source can be mapped."""
        self._broken.add((version, source))

    def take(self, pairs: Iterable[Pair], refused: str | None = None) -> None:
        """They are mapped now, and written but for those of a person whom the store refuses."""
        for pair in self.mapped(pairs):
            counts = self.changes if person_of(pair.record) == refused else self.pairs
            counts[pair] = None

    def mapped(self, pairs: Iterable[Pair]) -> list[Pair]:
        """They are mapped now and may be refused yet; gives those that are on their way."""
        return [pair for pair in pairs if self._judge(pair)]

    def take_without_keys(self, pairs: Iterable[Pair], needs_a_key: Callable[[Pair], bool]) -> None:
        """They are mapped now, and what cannot be sealed is set aside."""
        for pair in self.mapped(pairs):
            if needs_a_key(pair):
                self.dead_letters[pair.record.position] = pair.record
            else:
                self.pairs[pair] = None

    def replay(self, version: int, refused: str | None = None) -> None:
        """All dead letters are retried, and what passes counts."""
        dead_letters, self.dead_letters = self.dead_letters, {}
        changes, self.changes = self.changes, {}
        for pair in changes:
            (self.changes if person_of(pair.record) == refused else self.pairs)[pair] = None
        self.take([Pair(record, version) for record in dead_letters.values()], refused)

    def erase(self, person: str, until: int, is_finished: bool, carried: set[Identifier]) -> None:
        """Everything of a person up to now goes, and what comes later of up to `until`; of dead letters, all that have one
        of the identifiers that the person `carried`."""
        self._until[person] = until
        self.pairs = {pair: None for pair in self.pairs if person_of(pair.record) != person}
        self.changes = {pair: None for pair in self.changes if person_of(pair.record) != person}
        self._unfinished.setdefault(person, {Identifier.parse(person)}).update(carried)
        if is_finished:
            self._drop_dead_letters([person])

    def finish(self) -> None:
        """What was interrupted is done; of dead letters it takes those that came meanwhile, too."""
        self._drop_dead_letters([*self._unfinished])

    def _drop_dead_letters(self, persons: Collection[str]) -> None:
        carried = set[Identifier]().union(*(self._unfinished.pop(each) for each in persons))
        wanted = set[Identifier]().union(*map(self._forms, carried))
        self.dead_letters = {
            k: record for k, record in self.dead_letters.items() if wanted.isdisjoint(_forms(record))
        }
        assert not any(
            person_of(pair.record) not in persons and not wanted.isdisjoint(_forms(pair.record))
            for pair in self.changes
        )
        self.changes = {pair: None for pair in self.changes if person_of(pair.record) not in persons}

    @property
    def is_unfinished(self) -> bool:
        """Whether an erasure was interrupted, and nothing has finished it yet."""
        return bool(self._unfinished)

    def cancel(self, person: str) -> None:
        """What comes from now on counts; what was interrupted is done first."""
        self.finish()
        self._until.pop(person, None)

    def _judge(self, pair: Pair) -> bool:
        record = pair.record
        ordinal = json.loads(record.value)["ts"]
        is_timed = record.source not in self._counting
        is_broken = (pair.version, record.source) in self._broken
        # Of a source that counts too: an activity reads it as a time.
        if is_broken or not is_readable(record) or ordinal >= FUTURE:
            self.dead_letters[record.position] = record
            return False
        until = self._until.get(person_of(record))
        return until is None or (is_timed and ordinal > until)


def person_of(record: RawRecord) -> str:
    """Whose record it is: the name of the fragment."""
    payload = json.loads(record.value)
    return f"u:{payload['u']}" if "u" in payload else f"d:{payload['d']}"


def identifiers_of(record: RawRecord) -> list[Identifier]:
    """As the record has them, that of its fragment first."""
    payload = json.loads(record.value)
    return [Identifier(kind, payload[kind]) for kind in ("u", "d", "m") if kind in payload]


def _forms(record: RawRecord) -> set[Identifier]:
    """What a dead letter is found by."""
    found = identifiers_of(record)
    return {*found, *(Identifier(kind, value.lower()) for kind, value in found)}
