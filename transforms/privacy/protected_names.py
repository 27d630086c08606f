"""Keyed hashes in place of identifiers and event ids: a pure function of snapshot, type and value.

Identifiers name fragments and event ids order values. So an answer changes only by an admin's decision, never by a
proposal: before and after discovery the same type and value give the same answer. `StoredNames` applies today's policy
to identifiers and event ids that are stored already.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Set
from functools import cache, cached_property, lru_cache
from itertools import takewhile
from types import ModuleType

from idgraph import native
from idgraph.model import canonical, paths
from idgraph.model.classification import Proposal
from idgraph.model.fragments import Origin
from idgraph.model.identifiers import Identifier
from idgraph.model.snapshots import DetectionMode, MetadataSnapshot
from idgraph.model.specs import RESERVED_KEY, SpecDefinition
from idgraph.model.stamps import Stamp
from transforms.privacy.blind_index import BlindIndex, is_hashed
from transforms.privacy.keys import KeyProvider, NotPicklable

_SIGNS = ("@", "%40")


class ProtectedNames:
    """Decides by type where policy, or the name of a place, reports; else by the value. Immutable."""

    def __init__(self, snapshot: MetadataSnapshot) -> None:
        found = [(place.type, place.path) for spec in snapshot.specs for place in spec.identifiers]
        places = {path for _, path in found} | {spec.id for spec in snapshot.specs if _is_stored(spec.id)}
        self._snapshot = snapshot
        self._levels = snapshot.levels
        self._is_on = snapshot.defaults.detection is DetectionMode.SEAL
        self._undecided = snapshot.undecided_places(filter(None, places)) if self._is_on else frozenset()
        self._sealed = snapshot.sealed_places(filter(None, places)) | {
            path for path in self._undecided if self._seals(_detection().named(paths.split(path)).get(str))
        }
        self._sealed_types = frozenset(kind for kind, path in found if path in self._sealed)
        self._undecided_types = frozenset(kind for kind, path in found if path in self._undecided)
        self._own_places = frozenset(filter(None, places))

    @cached_property
    def _beside(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """By spec and place of an id of its events, the attributes that may have the same value. The metadata service says it;
        where it does not, to follow the values of a spec needs all operations, and only the ids of events need it."""
        stated = self._snapshot.id_copies
        return {
            (spec.name, own): found
            for spec in self._snapshot.specs
            for own, found in (stated.get(spec.name) or id_copies(spec)).items()
        }

    @cached_property
    def _id_places(self) -> dict[tuple[str, str], str]:
        declared = self._snapshot.sealed_places({path for each in self._beside.values() for path in each})
        return {
            own: path for own, each in self._beside.items() for path in reversed(each) if path in declared
        }

    @cached_property
    def _sealed_ids(self) -> Set[str | None]:
        return self._sealed.union(self._id_places.values())

    @cached_property
    def _places(self) -> frozenset[str]:
        return self._own_places.union(*self._beside.values())

    @cached_property
    def _above(self) -> frozenset[str]:
        return frozenset(above for place in self._places for above in paths.ancestors(place))

    def depend_on(self, path: str) -> bool:
        """Whether an attribute of this path plays a part: it is a place of a name, or above or below one."""
        return (
            path in self._places or path in self._above or not self._places.isdisjoint(paths.ancestors(path))
        )

    def protects(self, identifier: Identifier) -> bool:
        """Whether an identifier is matched by keyed hash."""
        kind = identifier.type
        if kind in self._sealed_types:
            return True
        return kind in self._undecided_types and self._seals(_detection().shaped(identifier.value))

    def protector(
        self,
        normal: Callable[[Identifier], Identifier | None],
        hashed: Callable[[Identifier], Identifier],
    ) -> Callable[[tuple[Identifier, ...]], tuple[Identifier, ...]]:
        """The function that gives an event's identifiers as they are stored: normalised, without those of which `normal` is
        None, and those hashed that are matched by keyed hash. Nothing if the first one has no normal form."""
        if native.leaves is not None:
            return native.leaves.protector(
                self._sealed_types, self._undecided_types, self.protects, normal, hashed
            )

        def protect(identifiers: tuple[Identifier, ...]) -> tuple[Identifier, ...]:
            # Reference of `protector` in native/leaves.c.
            found = [normal(each) for each in identifiers]
            if found and found[0] is None:
                return ()
            return tuple(
                [hashed(each) if self.protects(each) else each for each in found if each is not None]
            )

        return protect

    def place_of(self, spec: SpecDefinition, path: str | None) -> str | None:
        """The place by which an id that a spec reads at a path is protected: that of a sealed attribute, if it puts the same value
        there."""
        return self._id_places.get((spec.name, path), path) if path is not None else None

    def protects_event_id(self, place: str | None, event_id: str) -> bool:
        """Whether an event id that a spec reads at a place, or that comes with the envelope, is stored as a
        keyed hash."""
        if place in self._sealed_ids:
            return True
        if place in self._undecided:
            return self._seals(_detection().shaped(event_id))
        # No attribute has it, so nobody decides. Nearly every id is unique: all detectors would cost too much.
        is_examined = self._is_on and not _is_stored(place) and any(sign in event_id for sign in _SIGNS)
        return is_examined and self._seals(_detection().shaped(event_id))

    def signs_in_event_ids(self, place: str | None) -> tuple[str, ...] | None:
        """Texts of which an event id at a place has one if `protects_event_id`; None where only that can determine."""
        if place in self._sealed_ids or place in self._undecided:
            return None
        return _SIGNS if self._is_on and not _is_stored(place) else ()

    def _seals(self, proposal: Proposal | None) -> bool:
        return proposal is not None and self._levels.policy(proposal.classification).is_protected


def id_copies(spec: SpecDefinition) -> dict[str, tuple[str, ...]]:
    """By path of an id that a spec reads, the attributes that may have its value, too. At a key that is not known, the
    attribute above."""
    operations = canonical.encode(spec.operations)
    return {own: _stored_beside(operations, paths.split(own)) for own in (spec.id, spec.retracts) if own}


@lru_cache(maxsize=1024)
def _stored_beside(operations: bytes, keys: tuple[str, ...]) -> tuple[str, ...]:
    # Late: the operations are large, and few processes map events.
    from transforms.spec.value_flow import ValueFlow

    try:
        found = ValueFlow(canonical.decode(operations)).beside(keys)
    except Exception:
        # One that does not compile hurts its own events alone, and they are none.
        return ()
    known = {
        paths.join([key or "" for key in takewhile(lambda key: key is not None, each)]) for each in found
    }
    return tuple(sorted(each for each in known if each and _is_stored(each)))


@cache
def _detection() -> ModuleType:
    # Late: under most policies no name is looked at.
    from transforms.schema import detection

    return detection


@lru_cache(maxsize=4096)
def _is_stored(place: str | None) -> bool:
    return place is not None and place.split(".", 1)[0] != RESERVED_KEY


TOMBSTONE_PURPOSE = "tombstones"
NAME_BYTES = 16


class TombstoneNames(NotPicklable):
    """HMAC-SHA-256 of a fragment's id under the purpose key `tombstones`, cut to 128 bits.

    Without the key nobody can test whether a person was erased; with it one can test a guess, which is
    what a tombstone is for. Safe for several threads.
    """

    __slots__ = ("_start",)

    def __init__(self, provider: KeyProvider) -> None:
        """Raises KeyProviderError."""
        self._start = hmac.new(provider.purpose_key(TOMBSTONE_PURPOSE), digestmod="sha256")

    def __call__(self, fragment_id: str) -> bytes:
        # Copied: to begin again with the key costs twice as much.
        keyed = self._start.copy()
        keyed.update(fragment_id.encode("utf-8", "surrogatepass"))
        return keyed.digest()[:NAME_BYTES]


MOST_NAMES = 10_000
"""Identifiers whose stored form is remembered."""

EVENT = "event"
"""Stands for ids of events in lists of identifier types."""


class StoredNames(NotPicklable):
    """Names under one snapshot. Names that are hashed already stay so, whatever policy says by now."""

    def __init__(
        self, snapshot: MetadataSnapshot, blind_index: BlindIndex, protected: ProtectedNames | None = None
    ) -> None:
        self._protected = protected or ProtectedNames(snapshot)
        self._specs = snapshot.specs
        self._blind_index = blind_index
        self.identifier = lru_cache(maxsize=MOST_NAMES)(self._identifier)
        """An identifier, or a fragment's id, as it is written today."""

    @cached_property
    def _event_id_places(self) -> dict[str, str | None]:
        return {spec.name: self._protected.place_of(spec, spec.id) for spec in self._specs}

    @cached_property
    def _scopes(self) -> dict[str, set[str | None]]:
        found: dict[str, set[str | None]] = {}
        for spec in (each for each in self._specs if each.mode == "snapshot"):
            found.setdefault(spec.scope, set()).add(self._event_id_places[spec.name])
        return found

    def _identifier(self, text: str) -> str:
        name = Identifier.parse(text)
        if is_hashed(name.value) or not self._protected.protects(name):
            return text
        return str(self._blind_index.identifier(name))

    def origin(self, origin: Origin) -> Origin:
        """An origin with the event's id as it is written today; the same object where nothing changes."""
        stamp = origin.stamp
        if not self._protects_event_id(self._event_id_places.get(origin.spec.name), stamp.event_id):
            return origin
        return origin._replace(stamp=self._hashed(stamp))

    def marker(self, scope: str, stamp: Stamp) -> Stamp:
        """The stamp of a snapshot event that covered a scope; which spec mapped it is not stored."""
        places = self._scopes.get(scope, {None})
        is_protected = any(self._protects_event_id(place, stamp.event_id) for place in places)
        return self._hashed(stamp) if is_protected else stamp

    def readable(self, identifiers: Iterable[str], origins: Iterable[Origin]) -> set[str]:
        """The types of those identifiers that are written otherwise today, with `EVENT` for ids of events."""
        found = {Identifier.parse(text).type for text in identifiers if self.identifier(text) != text}
        if any(self.origin(origin) is not origin for origin in origins):
            found.add(EVENT)
        return found

    def _protects_event_id(self, place: str | None, event_id: str) -> bool:
        return not is_hashed(event_id) and self._protected.protects_event_id(place, event_id)

    def _hashed(self, stamp: Stamp) -> Stamp:
        hashed = self._blind_index.identifier(Identifier(EVENT, stamp.event_id))
        return stamp._replace(event_id=hashed.value)
