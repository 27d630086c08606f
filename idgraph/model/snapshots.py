"""The metadata snapshot: specs, attributes and identity rules of a pipeline at one version number."""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from operator import attrgetter
from typing import NamedTuple, Self

from pydantic import Base64Bytes, Field

from idgraph.model import paths
from idgraph.model.attributes import AttributeMetadata, AttributeStatus, Catalogue, ReconciliationPolicy
from idgraph.model.behaviour import ActivityDocument, DerivedDocument
from idgraph.model.classification import Classification, ClassificationLevels, EncryptionLevel
from idgraph.model.documents import FrozenDocument
from idgraph.model.identity_rules import DEFAULT_RULES, IdentityRules
from idgraph.model.specs import SpecDefinition, SpecDocument
from idgraph.model.triggers import TriggerDocument
from idgraph.model.views import SegmentDocument, ViewDocument


class DetectionMode(StrEnum):
    """For attributes that no admin decided on: `seal` sensitive values and propose a classification, `propose` only, or
    `off`."""

    SEAL = "seal"
    PROPOSE = "propose"
    OFF = "off"


class DiscoveryDefaults(FrozenDocument):
    """Defaults of an undeclared attribute."""

    classification: Classification = Classification.INTERNAL
    encryption: EncryptionLevel = EncryptionLevel.NONE
    authorization_level: int = Field(default=0, ge=0, le=100)
    indexable: bool = True
    detection: DetectionMode = DetectionMode.SEAL
    value_keys: tuple[str, ...] = Field(
        default=(),
        max_length=100,
        description="Paths below which specs may make keys of values. Elsewhere such an event becomes a dead letter.",
    )
    most_new_per_source_and_day: int = Field(
        default=10_000,
        ge=0,
        description="New attributes that one source may add on one day in UTC. Beyond it values are stored, and not discovered.",
    )
    most_attributes: int = Field(
        default=250_000, ge=0, description="Size of the catalogue at which nothing is discovered any more."
    )

    def are_followed_by(self, attribute: AttributeMetadata) -> bool:
        """Whether a discovered attribute is handled as a path that nobody declared, and says nothing of paths above and below
        it: then no snapshot has it. One that is protected, or hidden from any clearance, does say something of them."""
        return (
            attribute.status is AttributeStatus.DISCOVERED
            and attribute.policy is ReconciliationPolicy.LATEST
            and attribute.time is None
            and attribute.indexable is self.indexable
            and self.encryption is attribute.encryption is EncryptionLevel.NONE
            and self.authorization_level == attribute.authorization_level == 0
        )


class MetadataSnapshot(FrozenDocument):
    """All active specs, views and segments, the identity rules, and the attributes that somebody or a detector decided on, at
    one version. A discovered attribute that follows the defaults is not in it."""

    version: int = Field(ge=0)
    specs: tuple[SpecDocument, ...] = ()
    attributes: tuple[AttributeMetadata, ...] = ()
    defaults: DiscoveryDefaults = DiscoveryDefaults()
    levels: ClassificationLevels = ClassificationLevels()
    identity_rules: IdentityRules = Field(
        default_factory=lambda: DEFAULT_RULES,
        exclude_if=lambda rules: bool(rules == DEFAULT_RULES),
        description="Left out where nobody changed the default rules.",
    )
    identity_rules_version: int = Field(default=0, ge=0, description="0: nobody changed the default rules.")
    id_copies: dict[str, dict[str, tuple[str, ...]]] = Field(
        default={},
        exclude_if=lambda copies: not copies,
        description="By name of a spec and path of an id that it reads, the attributes that may have the id's value too. A spec "
        "that is not named is followed by whoever needs to know.",
    )
    views: tuple[ViewDocument, ...] = Field(default=(), exclude_if=lambda views: not views)
    segments: tuple[SegmentDocument, ...] = Field(default=(), exclude_if=lambda segments: not segments)
    activities: tuple[ActivityDocument, ...] = Field(
        default=(),
        exclude_if=lambda activities: not activities,
        description="Retired ones too: entries of an activity that is not here were made under a later snapshot.",
    )
    derived_attributes: tuple[DerivedDocument, ...] = Field(
        default=(), exclude_if=lambda derived: not derived
    )
    triggers: tuple[TriggerDocument, ...] = Field(default=(), exclude_if=lambda triggers: not triggers)
    models: dict[str, Base64Bytes] = Field(
        default={},
        exclude_if=lambda models: not models,
        description="By digest the models of derived attributes. Left out by the service: its clients get each by its digest.",
    )
    behaviour_version: int = Field(
        default=0,
        ge=0,
        exclude_if=lambda version: not version,
        description="The number of versions of activities, derived attributes, segments and triggers that were ever saved.",
    )

    def with_models(self, model: Callable[[str], bytes | None]) -> Self:
        """With the models that its derived attributes name; `model` gives None for one that is not there. One of another
        digest is left out."""
        used = {each.model.digest for each in self.derived_attributes if each.model is not None}
        contents = ((digest, model(digest)) for digest in sorted(used))
        found = {
            digest: content
            for digest, content in contents
            if content is not None and hashlib.sha256(content).hexdigest() == digest
        }
        return self.model_copy(update={"models": found}) if found else self

    def spec_for(self, source: str, event_type: str) -> SpecDocument | None:
        """The active spec that maps events of this source and type.

        The matching spec with the more exact source wins, then the one with the more exact event type. A name without
        `*` is more exact than any pattern; of two patterns, the one with more literal characters. Then the lower name
        wins, so the answer does not depend on the order of the list.
        """
        matching = [
            spec
            for spec in self.specs
            if pattern_matches(spec.source, source) and pattern_matches(spec.event_type, event_type)
        ]
        return min(matching, key=precedence, default=None)

    def attribute(self, path: str) -> AttributeMetadata | None:
        """The attribute at this path, or None. The attributes must be ordered by path."""
        place = bisect_left(self.attributes, path, key=attrgetter("path"))
        found = self.attributes[place] if place < len(self.attributes) else None
        return found if found is not None and found.path == path else None

    def sealed_places(self, places: Iterable[str]) -> frozenset[str]:
        """The paths that an admin or the discovery defaults protect.

        Paths that only a proposal protects are excluded: a name must not change without a decision.
        """
        known = {attribute.path: attribute for attribute in self.attributes}
        above = {ancestor for path in self._sealed_paths(known) for ancestor in paths.ancestors(path)}
        return frozenset(path for path in places if path in above or self._is_sealed(path, known))

    def undecided_places(self, places: Iterable[str]) -> frozenset[str]:
        """The paths without a decision of an admin."""
        decided = {a.path for a in self.attributes if a.status is not AttributeStatus.DISCOVERED}
        return frozenset(places) - decided

    def _sealed_paths(self, known: Mapping[str, AttributeMetadata]) -> Iterator[str]:
        # They also protect paths above them, since a value there can contain their values.
        for attribute in self.attributes:
            if _is_decided_sealed(attribute):
                yield attribute.path
            if self._seals_by_default:
                yield from (path for path in paths.ancestors(attribute.path) if path not in known)

    def _is_sealed(self, path: str, known: Mapping[str, AttributeMetadata]) -> bool:
        # An undeclared attribute inherits from the nearest declared one above it.
        for place in (path, *paths.ancestors(path)):
            attribute = known.get(place)
            if attribute is not None and _is_decided_sealed(attribute):
                return True
            if attribute is not None and attribute.status is not AttributeStatus.DISCOVERED:
                break
        return path not in known and self._seals_by_default

    @property
    def _seals_by_default(self) -> bool:
        return self.defaults.encryption is not EncryptionLevel.NONE


class PinnedSnapshot(NamedTuple):
    """A snapshot with the ETag that distinguishes it from all others; and for readers where the catalogue and the models
    that no definition in force names are."""

    etag: str
    snapshot: MetadataSnapshot
    catalogue: Callable[[], Catalogue] | None = None
    model: Callable[[str], bytes | None] | None = None

    def known(self) -> Catalogue:
        """The catalogue; without one, of the attributes in the snapshot."""
        return Catalogue.of(self.snapshot.attributes) if self.catalogue is None else self.catalogue()


def _is_decided_sealed(attribute: AttributeMetadata) -> bool:
    return attribute.is_protected and not attribute.sealed_for_review


def pattern_matches(pattern: str, name: str) -> bool:
    """Whether a source or event-type pattern (`*` for any run of characters) matches a name."""
    if "*" not in pattern:
        return pattern == name
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None


def patterns_overlap(one: str, other: str) -> bool:
    """Whether some name matches both source or event-type patterns."""
    if "*" not in one or "*" not in other:
        return pattern_matches(one, other) or pattern_matches(other, one)
    # By character of `one`: how many characters of `other` a common name may have used up.
    reached = set(_past_stars(other, {0}))
    for key in one:
        if key == "*":
            reached = set(range(min(reached, default=0), len(other) + 1)) if reached else set()
        else:
            steps = {
                at if other[at] == "*" else at + 1
                for at in reached
                if at < len(other) and other[at] in (key, "*")
            }
            reached = set(_past_stars(other, steps))
    return len(other) in reached


def _past_stars(pattern: str, places: Iterable[int]) -> Iterator[int]:
    for start in places:
        stars = len(pattern) - start - len(pattern[start:].lstrip("*"))
        yield from range(start, start + stars + 1)


def precedence(spec: SpecDefinition) -> tuple[bool, int, bool, int, str]:
    """Lower for a spec that goes before another one, of the events that both match."""

    def literal(pattern: str) -> tuple[bool, int]:
        return "*" in pattern, -len(pattern.replace("*", ""))

    return (*literal(spec.source), *literal(spec.event_type), spec.name)
