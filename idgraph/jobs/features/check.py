"""Whether look-ups served what a model is trained on: features as of the moments of noted look-ups, beside these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from idgraph.jobs.features.served import ServedHashes, ServedNote, stated
from idgraph.model.errors import DamagedStateError
from idgraph.model.jobs import moment_text
from idgraph.model.tombstones import NO_EPOCH

if TYPE_CHECKING:
    from idgraph.model.store import ProfileStore
    from merge.identity.components import Person
    from profile_service.reader import ProfileReader

SHOWN = 5
PROFILE = attrgetter("profile")


class CheckedLookups(NamedTuple):
    """The outcome for each note: `same`, `differs`; `late` where entries with an earlier time came, or went, after the look-up,
    or fragments joined or left the profile, and a value differs; `redefined` under other definitions or rights; `gone`
    without the profile."""

    outcomes: Counter[str]
    attributes: Counter[str]
    """By path the number of values that differ, without the late ones."""
    examples: list[dict[str, Any]]

    @property
    def share(self) -> float:
        """That differs, of those that can be compared."""
        return self.outcomes["differs"] / max(1, self.outcomes["same"] + self.outcomes["differs"])

    def document(self) -> dict[str, Any]:
        """As JSON data."""
        names = ("same", "differs", "late", "redefined", "gone")
        return {
            "looked_at": self.outcomes.total(),
            **{name: self.outcomes[name] for name in names},
            "share_that_differs": self.share,
            "attributes": dict(sorted(self.attributes.items())),
            "examples": self.examples,
        }


class FeatureCheck:
    """Compares notes with features, by a reader that sees everything. `scans` where the store knows the names of some fragments
    only, as an embedded one does: then the ids of all are read."""

    def __init__(
        self, reader: ProfileReader, store: ProfileStore, hashes: ServedHashes, rules: str, scans: bool
    ) -> None:
        self._reader, self._store, self._hashes, self._rules = reader, store, hashes, rules
        self._scans = scans
        self._behaviour = reader.behaviour_reader.of_timelines

    def of(self, notes: Sequence[ServedNote]) -> CheckedLookups:
        """Raises StoreError."""
        found = CheckedLookups(Counter(), Counter(), [])
        for note, person in self._persons(notes):
            outcome, differing = self._outcome(note, person)
            found.outcomes[outcome] += 1
            if outcome == "differs" and person is not None:
                found.attributes.update(differing)
                if len(found.examples) < SHOWN:
                    at, name = moment_text(note.from_ms, "milliseconds"), self._reader.shown_name(person.id)
                    found.examples.append({"profile": name, "at": at, "attributes": differing})
        return found

    def _persons(self, notes: Sequence[ServedNote]) -> Iterator[tuple[ServedNote, Person | None]]:
        ids = self._ids({each.profile for each in notes})
        tombstones = self._store.tombstones(ids.values())
        for profile, some in groupby(sorted(notes, key=PROFILE), PROFILE):
            name = ids.get(profile)
            person = None if name is None else self._reader.owner_of_fragment(name)
            # A person who came back after an erasure is another one than before.
            since = tombstones[name].until if name in tombstones else NO_EPOCH
            yield from ((note, person if note.from_ms > since else None) for note in some)

    def _ids(self, names: Collection[str]) -> dict[str, str]:
        """The ids of fragments by their names."""
        named = self._store.fragments_named([bytes.fromhex(each) for each in names])
        found = {name.hex(): each for name, each in named.items()}
        if self._scans and len(found) < len(names):
            for each in self._store.ids():
                if (name := self._hashes.profile(each)) in names:
                    found[name] = each
        return found

    def _outcome(self, note: ServedNote, person: Person | None) -> tuple[str, list[str]]:
        if person is None:
            return "gone", []
        if note.rules != self._rules:
            return "redefined", []
        moments = {note.from_ms, note.to_ms}
        as_of = dict(self._behaviour.as_of([person], {person.id: moments})).get(person.id, {})
        # The answer is of a moment between the two.
        hashes = [self._hashes_of(note, each.values) for each in as_of.values()]
        differing = [path for path in note.values if all(each[path] != note.values[path] for each in hashes)]
        if not differing:
            return "same", []
        return ("differs" if self._is_known(note, person) else "late"), differing

    def _hashes_of(self, note: ServedNote, values: Mapping[str, Any]) -> dict[str, str]:
        reader = self._reader.with_clearance(note.clearance)
        seen = {
            path: value
            for path, value in values.items()
            if reader.sees(path) and not reader.policy(path).is_protected
        }
        return {
            path: self._hashes.of(note.profile, note.from_ms, each)
            for path, each in stated(self._behaviour, seen).items()
        }

    def _is_known(self, note: ServedNote, person: Person) -> bool:
        """Whether all that the features are derived from was known before the answer."""
        try:
            known = self._behaviour.known(person, note.from_ms)
        except DamagedStateError:
            return True
        return self._hashes.of(note.profile, note.from_ms, known) == note.known
