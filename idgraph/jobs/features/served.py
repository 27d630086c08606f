"""Notes of served look-ups, to be compared with features later: hashes of what was served and of what it was derived from.

A note has no value and no id: the name of the profile and all else are keyed hashes, of which no two notes show that they are
of equal values. `known` is read before the answer. So where it is the same later, all entries that count had been committed
when the answer was made, and the features as of that moment must be those that were served.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from idgraph.model import canonical, paths
from idgraph.model.errors import DamagedStateError
from idgraph.model.timelines import DAY_MS
from idgraph.projection.behaviour import BehaviourReader
from profile_service.reader import MASK
from profile_service.visibility import restrictions

if TYPE_CHECKING:
    from idgraph.model.callers import Caller
    from idgraph.model.identifiers import Identifier
    from idgraph.model.shared_documents import SharedDocuments
    from idgraph.model.snapshots import MetadataSnapshot
    from profile_service.reader import ProfileReader

PURPOSE = "served look-ups"
ROOT = "served"
NOTES_AT_ONCE = 500
"""Notes of one document: each is written again for the next one."""
MOST_DOCUMENTS = 200
KEPT_MS = 7 * DAY_MS
PAUSE_SECONDS = 5.0
MOST_WAITING = 5_000
"""Notes until the next write; of a look-up more nothing is noted."""
_DIGEST_BYTES = 8


class ServedNote(NamedTuple):
    """A look-up that was served, whole, to a caller of this clearance: at a moment from `from_ms` to `to_ms`."""

    from_ms: int
    to_ms: int
    profile: str
    """The name of its fragment (`TombstoneNames`), in hexadecimal."""
    rules: str
    clearance: int
    known: str
    values: Mapping[str, str]
    """By path of a derived attribute."""


class ServedHashes:
    """The hashes in notes. Safe for several threads."""

    def __init__(self, key: bytes, name: Callable[[str], bytes]) -> None:
        """`name` as of `TombstoneNames`."""
        self._key, self._name = key, name

    def profile(self, fragment_id: str) -> str:
        """The name of a profile."""
        return self._name(fragment_id).hex()

    def of(self, profile: str, from_ms: int, content: Any) -> str:
        """The hash of JSON data in the note of this profile and moment."""
        body = canonical.encode([profile, from_ms, content])
        return hmac.digest(self._key, body, "sha256")[:_DIGEST_BYTES].hex()


def rules_of(snapshot: MetadataSnapshot) -> str:
    """Notes are compared where this is the same: what is derived, and what is hidden."""
    return hashlib.sha256(f"{snapshot.behaviour_version} {restrictions(snapshot)}".encode()).hexdigest()[
        : 2 * _DIGEST_BYTES
    ]


def stated(behaviour: BehaviourReader, values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """By path of each attribute that `behaviour` derives, its values by their whole paths."""
    found: dict[str, dict[str, Any]] = {path: {} for path in behaviour.paths()}
    for path, value in values.items():
        for own in (path, *paths.ancestors(path)):
            if own in found:
                found[own][path] = value
    return found


class _Begun(NamedTuple):
    note: ServedNote
    behaviour: BehaviourReader


class ServedLookups:
    """Notes a share of the look-ups of one process. Safe for several threads."""

    def __init__(self, documents: SharedDocuments, hashes: ServedHashes, share: float) -> None:
        self._documents, self._hashes, self._share = documents, hashes, share
        self._lock = threading.Lock()
        self._waiting: list[ServedNote] = []
        self._growing: list[ServedNote] = []
        self._name, self._begun_ms = "", 0
        self._rules: tuple[MetadataSnapshot, str] | None = None

    def begin(
        self, reader: ProfileReader, caller: Caller, identifier: Identifier, snapshot: MetadataSnapshot
    ) -> _Begun | None:
        """The begin of a note, before the answer is made; None for a look-up of which none is made. Raises StoreError."""
        # Chance hides nothing here.
        if random.random() >= self._share or caller.grants or len(self._waiting) >= MOST_WAITING:  # noqa: S311
            return None
        now = reader.now_ms()
        behaviour = reader.behaviour_reader.of_timelines
        persons = reader.owners(identifier).persons
        if len(persons) != 1 or behaviour.is_empty:
            return None
        profile = self._hashes.profile(persons[0].id)
        try:
            known = self._hashes.of(profile, now, behaviour.known(persons[0], now))
        except DamagedStateError:
            return None
        if self._rules is None or self._rules[0] is not snapshot:
            self._rules = snapshot, rules_of(snapshot)
        return _Begun(ServedNote(now, now, profile, self._rules[1], caller.clearance, known, {}), behaviour)

    def end(self, begun: _Begun, attributes: Mapping[str, Any]) -> None:
        """Note the answer with these attributes, as nested objects."""
        note = begun.note
        served = stated(begun.behaviour, dict(_leaves(attributes)))
        values = {path: self._hashes.of(note.profile, note.from_ms, each) for path, each in served.items()}
        with self._lock:
            self._waiting.append(note._replace(to_ms=_now_ms(), values=values))

    def flush(self) -> None:
        """Write what waits. Raises StoreError."""
        with self._lock:
            taken, self._waiting = self._waiting, []
        for start in range(0, len(taken), NOTES_AT_ONCE):
            # One that grew for long would keep its first notes for as long.
            if len(self._growing) >= NOTES_AT_ONCE or _now_ms() - self._begun_ms > DAY_MS:
                self._begin_document()
            self._growing += taken[start : start + NOTES_AT_ONCE]
            self._documents.write(self._name, canonical.encode(self._growing), durable=False)

    def _begin_document(self) -> None:
        self._begun_ms = _now_ms()
        self._name, self._growing = f"{ROOT}/{self._begun_ms:015d}-{secrets.token_hex(4)}.json", []
        sweep(self._documents)


def sweep(documents: SharedDocuments) -> None:
    """Remove notes that are old, or too many. Raises StoreError."""
    names = documents.names(f"{ROOT}/*")
    oldest = f"{ROOT}/{_now_ms() - KEPT_MS:015d}"
    for place, name in enumerate(names):
        if place < len(names) - MOST_DOCUMENTS or name < oldest:
            documents.remove(name)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def notes(documents: SharedDocuments) -> Iterator[ServedNote]:
    """All notes. Raises StoreError."""
    for name in documents.names(f"{ROOT}/*"):
        if (content := documents.read(name)) is not None:
            yield from (ServedNote(*each) for each in json.loads(content))


def _leaves(tree: Mapping[str, Any], *above: str) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if type(value) is not dict:
            yield paths.join((*above, key)), value
        elif value != MASK:
            yield from _leaves(value, *above, key)
