"""Which identifiers and event ids are written as keyed hashes: a pure function of snapshot, type and value.

They name fragments and order values, so an answer must never change by a proposal that arrives, only by an
admin's decision: before and after discovery the same type and value give the same answer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from idgraph import native
from idgraph.model import paths
from idgraph.model.identifiers import Identifier
from idgraph.model.proposals import Proposal
from idgraph.model.snapshots import DetectionMode, MetadataSnapshot
from idgraph.model.specs import RESERVED_KEY
from transforms.schema.detection.detection import named, shaped

_SIGNS = ("@", "%40")


class ProtectedNames:
    """Decides by type where policy, or the name of a place, reports; else by the value. Immutable."""

    def __init__(self, snapshot: MetadataSnapshot) -> None:
        found = [(place.type, place.path) for spec in snapshot.specs for place in spec.identifiers]
        places = {path for _, path in found} | {spec.id for spec in snapshot.specs if _is_stored(spec.id)}
        self._levels = snapshot.levels
        self._is_on = snapshot.defaults.detection is DetectionMode.SEAL
        self._undecided = snapshot.undecided_places(filter(None, places)) if self._is_on else frozenset()
        self._sealed = snapshot.sealed_places(filter(None, places)) | {
            path for path in self._undecided if self._seals(named(paths.split(path)).get(str))
        }
        self._sealed_types = frozenset(kind for kind, path in found if path in self._sealed)
        self._undecided_types = frozenset(kind for kind, path in found if path in self._undecided)
        self._places = frozenset(filter(None, places))
        self._above = frozenset(above for place in self._places for above in paths.ancestors(place))

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
        return kind in self._undecided_types and self._seals(shaped(identifier.value))

    def protector(
        self, hashed: Callable[[Identifier], Identifier]
    ) -> Callable[[tuple[Identifier, ...]], tuple[Identifier, ...]]:
        """The function that gives an event's identifiers with those hashed that are matched by keyed hash."""
        if native.leaves is not None:
            return native.leaves.protector(self._sealed_types, self._undecided_types, self.protects, hashed)

        def protect(identifiers: tuple[Identifier, ...]) -> tuple[Identifier, ...]:
            # Reference of `protector` in native/leaves.c.
            return tuple([hashed(each) if self.protects(each) else each for each in identifiers])

        return protect

    def protects_event_id(self, place: str | None, event_id: str) -> bool:
        """Whether an event id that a spec reads at a place, or that comes with the envelope, is stored as a
        keyed hash."""
        if place in self._sealed:
            return True
        if place in self._undecided:
            return self._seals(shaped(event_id))
        # No attribute has it, so nobody decides. Nearly every id is unique: all detectors would cost too much.
        is_judged = self._is_on and not _is_stored(place) and any(sign in event_id for sign in _SIGNS)
        return is_judged and self._seals(shaped(event_id))

    def signs_in_event_ids(self, place: str | None) -> tuple[str, ...] | None:
        """Texts of which an event id at a place has one if `protects_event_id`; None where only that can determine."""
        if place in self._sealed or place in self._undecided:
            return None
        return _SIGNS if self._is_on and not _is_stored(place) else ()

    def _seals(self, proposal: Proposal | None) -> bool:
        return proposal is not None and self._levels.policy(proposal.classification).is_protected


@lru_cache(maxsize=4096)
def _is_stored(place: str | None) -> bool:
    return place is not None and place.split(".", 1)[0] != RESERVED_KEY
