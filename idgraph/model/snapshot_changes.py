"""Changes from one metadata snapshot to a later one, so that a new version costs by its changes only."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import attrgetter

from pydantic import Field

from idgraph.model.attributes import AttributeMetadata
from idgraph.model.classification import ClassificationLevels
from idgraph.model.documents import FrozenDocument
from idgraph.model.errors import MetadataError
from idgraph.model.identity_rules import IdentityRules
from idgraph.model.snapshots import DiscoveryDefaults, MetadataSnapshot
from idgraph.model.specs import SpecDocument
from idgraph.model.views import SegmentDocument, ViewDocument

_RUN = 512
"""Attributes compared at once: unchanged ones are the same objects in both snapshots."""

_WHOLE = ("identity_rules", "views", "segments")
"""Members that are given whole where they changed."""

_path = attrgetter("path")
_name = attrgetter("name")


class SnapshotChanges(FrozenDocument):
    """From the snapshot with the ETag `since` to the one with the ETag `etag`. Attributes are never deleted, specs are
    retired."""

    since: str
    etag: str
    version: int = Field(ge=0)
    specs: tuple[SpecDocument, ...] = Field(
        default=(), description="Specs that are active in another version, by name."
    )
    retired: tuple[str, ...] = Field(default=(), description="Names of specs that are no longer active.")
    attributes: tuple[AttributeMetadata, ...] = Field(
        default=(), description="New attributes, or with another version, by path."
    )
    defaults: DiscoveryDefaults = DiscoveryDefaults()
    levels: ClassificationLevels = ClassificationLevels()
    identity_rules: IdentityRules | None = Field(
        default=None, exclude_if=lambda rules: rules is None, description="Absent where they are the same."
    )
    identity_rules_version: int = Field(default=0, ge=0)
    views: tuple[ViewDocument, ...] | None = Field(
        default=None,
        exclude_if=lambda views: views is None,
        description="All; absent where they are the same.",
    )
    segments: tuple[SegmentDocument, ...] | None = Field(
        default=None, exclude_if=lambda segments: segments is None, description="As `views`."
    )
    active_specs: int = Field(ge=0, description="Number of active specs afterwards.")
    known_attributes: int = Field(ge=0, description="Number of attributes afterwards.")

    @property
    def has_specs(self) -> bool:
        """Whether any spec changed."""
        return bool(self.specs or self.retired)

    def applied_to(self, snapshot: MetadataSnapshot) -> MetadataSnapshot:
        """The later snapshot; it shares unchanged parts with `snapshot`. Raises MetadataError if these are not changes of
        it; the caller compares the ETag `since`."""
        specs = self._specs_of(snapshot) if self.has_specs else snapshot.specs
        attributes = _merged(snapshot.attributes, self.attributes)
        has_rules = self.identity_rules is not None or (
            snapshot.identity_rules_version == self.identity_rules_version
        )
        if len(specs) != self.active_specs or len(attributes) != self.known_attributes or not has_rules:
            raise MetadataError(f"these are not changes of metadata snapshot {snapshot.version}")
        return snapshot.model_copy(
            update={
                "version": self.version,
                "specs": specs,
                "attributes": attributes,
                "defaults": self.defaults,
                "levels": self.levels,
                "identity_rules_version": self.identity_rules_version,
            }
            | self._whole()
        )

    def _whole(self) -> dict[str, object]:
        return {name: found for name in _WHOLE if (found := getattr(self, name)) is not None}

    def _specs_of(self, snapshot: MetadataSnapshot) -> tuple[SpecDocument, ...]:
        gone = {*self.retired, *map(_name, self.specs)}
        kept = (spec for spec in snapshot.specs if spec.name not in gone)
        return tuple(sorted((*kept, *self.specs), key=_name))


def joined(followed: Sequence[SnapshotChanges]) -> SnapshotChanges:
    """Successive changes as one."""
    specs: dict[str, SpecDocument] = {}
    attributes: dict[str, AttributeMetadata] = {}
    retired: set[str] = set()
    whole: dict[str, object] = {}
    for each in followed:
        whole |= each._whole()
        for name in each.retired:
            specs.pop(name, None)
        specs |= {spec.name: spec for spec in each.specs}
        retired = (retired | {*each.retired}) - specs.keys()
        attributes |= {attribute.path: attribute for attribute in each.attributes}
    return followed[-1].model_copy(
        update={
            "since": followed[0].since,
            "specs": tuple(specs[name] for name in sorted(specs)),
            "retired": tuple(sorted(retired)),
            "attributes": tuple(attributes[path] for path in sorted(attributes)),
        }
        | whole
    )


def changes_between(
    known: MetadataSnapshot, since: str, newer: MetadataSnapshot, etag: str
) -> SnapshotChanges | None:
    """The changes between two snapshots; None if something was deleted, as by a restored database, or the order differs
    from the service's."""
    names = {spec.name: spec for spec in known.specs}
    changes = SnapshotChanges.model_construct(
        since=since,
        etag=etag,
        version=newer.version,
        specs=tuple(spec for spec in newer.specs if names.get(spec.name) != spec),
        retired=tuple(sorted(names.keys() - {spec.name for spec in newer.specs})),
        attributes=tuple(_changed(known.attributes, newer.attributes)),
        defaults=newer.defaults,
        levels=newer.levels,
        identity_rules=None if _has_rules_of(known, newer) else newer.identity_rules,
        identity_rules_version=newer.identity_rules_version,
        views=None if known.views == newer.views else newer.views,
        segments=None if known.segments == newer.segments else newer.segments,
        active_specs=len(newer.specs),
        known_attributes=len(newer.attributes),
    )
    try:
        made = changes.applied_to(known)
    except MetadataError:
        return None
    # Identical objects, nearly all, are not compared.
    return changes if made == newer else None


def _has_rules_of(known: MetadataSnapshot, newer: MetadataSnapshot) -> bool:
    return (known.identity_rules_version, known.identity_rules) == (
        newer.identity_rules_version,
        newer.identity_rules,
    )


def _changed(
    known: tuple[AttributeMetadata, ...], newer: tuple[AttributeMetadata, ...]
) -> Iterator[AttributeMetadata]:
    at = other = 0
    while other < len(newer):
        if known[at : at + _RUN] == newer[other : other + _RUN]:
            at, other = at + _RUN, other + _RUN
            continue
        for _ in range(_RUN):
            if other == len(newer):
                return
            is_there = at < len(known) and known[at].path <= newer[other].path
            if not is_there or (known[at] is not newer[other] and known[at] != newer[other]):
                yield newer[other]
            at, other = at + is_there, other + 1


def _merged(
    known: tuple[AttributeMetadata, ...], changed: tuple[AttributeMetadata, ...]
) -> tuple[AttributeMetadata, ...]:
    if not changed:
        return known
    merged: list[AttributeMetadata] = []
    taken = 0
    for attribute in changed:
        place = bisect_left(known, attribute.path, lo=taken, key=_path)
        merged += known[taken:place]
        merged.append(attribute)
        taken = place + (place < len(known) and known[place].path == attribute.path)
    merged += known[taken:]
    return tuple(merged)
