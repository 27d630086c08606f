"""Discovery: findings of events become attribute metadata."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import ValidationError
from sqlalchemy import or_, update
from sqlalchemy.orm import Session

from idgraph.model import paths
from idgraph.model.attributes import (
    AttributeDefinition,
    AttributeMetadata,
    AttributeStatus,
    DataType,
    TypeConflict,
)
from idgraph.model.classification import Classification, ClassificationLevels, EncryptionLevel, Proposal
from idgraph.model.records import RefusedChangeRecord, SchemaRecord
from idgraph.model.schema_changes import SchemaChange
from idgraph.model.snapshots import DetectionMode
from idgraph.web.refusals import ClashError
from metadata_service.attributes.catalogue import (
    find_attributes,
    first_below,
    get_attribute,
    last_versions,
    write_versions,
)
from metadata_service.attributes.rules import classification_levels, discovery_defaults, path_problem
from metadata_service.attributes.undecided import Room
from metadata_service.storage.database import revision_in
from metadata_service.storage.edits import Action, Edit
from metadata_service.storage.tables import AttributeRow
from transforms.schema.attribute_nodes import policy_of

Verdict = Literal["confirm", "refuse"]


def with_proposal(
    attribute: AttributeMetadata, proposal: Proposal, levels: ClassificationLevels | None
) -> AttributeMetadata:
    """The attribute with a stronger proposal, treated as its level says if there are `levels`; the same
    object if an admin decided already or a proposal at least as strong is known.

    Nothing that held becomes weaker. The version is the caller's.
    """
    if attribute.status is not AttributeStatus.DISCOVERED or not proposal.is_stronger(attribute.proposal):
        return attribute
    update: dict[str, object] = {"proposal": proposal}
    if levels is not None:
        policy = policy_of(attribute).stricter(policy_of(levels.policy(proposal.classification)))
        opened = not attribute.is_protected or attribute.sealed_for_review
        update |= policy._asdict()
        update["sealed_for_review"] = opened and policy.is_protected
        update["classification"] = _more_sensitive(attribute.classification, proposal.classification)
    return attribute.model_copy(update=update)


def decided(session: Session, path: str, verdict: Verdict) -> AttributeDefinition:
    """The definition that an admin's decision on a proposal makes: as strict as the attribute is and its proposal's
    level says, or open. Raises UnknownSubjectError, ClashError where no proposal waits."""
    attribute = AttributeMetadata.model_validate_json(get_attribute(session, path))
    proposal = attribute.proposal
    if attribute.status is not AttributeStatus.DISCOVERED or proposal is None:
        raise ClashError("no proposal waits for a decision on this attribute")
    stated = {field: getattr(attribute, field) for field in AttributeDefinition.model_fields}
    stated["status"] = AttributeStatus.ACTIVE
    if verdict == "refuse":
        level = discovery_defaults(session).authorization_level
        return AttributeDefinition(**stated | _OPEN | {"authorization_level": level})
    meaning = classification_levels(session).policy(proposal.classification)
    stated |= policy_of(attribute).stricter(policy_of(meaning))._asdict()
    stated["classification"] = _more_sensitive(attribute.classification, proposal.classification)
    return AttributeDefinition(**stated)


def _more_sensitive(one: Classification, other: Classification) -> Classification:
    return max(one, other, key=lambda level: level.sensitivity)


_OPEN = {
    "classification": Classification.INTERNAL,
    "encryption": EncryptionLevel.NONE,
    "indexable": True,
}


MAX_CHANGES = 5000


def apply_schema_changes(edit: Edit, entries: Sequence[Any]) -> SchemaRecord:
    """Take the changes that can be taken, refuse the others one by one. Taking a change again has no
    effect."""
    changes, problems = _readable(entries)
    wanted = {change.path for change in changes}
    known = {attribute.path: attribute for attribute in find_attributes(edit.session, wanted)}
    new = wanted - known.keys()
    above = {place for path in new for place in paths.ancestors(path)} - wanted
    known |= {attribute.path: attribute for attribute in find_attributes(edit.session, above)}
    below = first_below(edit.session, new)
    known |= {attribute.path: attribute for attribute in find_attributes(edit.session, below.values())}
    seen = _Discovery(edit, known, below, last_versions(edit.session, new))
    for change in changes:
        seen.take(change)
    seen.write()
    today = edit.at.date()
    is_older = or_(AttributeRow.last_seen.is_(None), AttributeRow.last_seen < today)
    edit.session.execute(
        update(AttributeRow).where(AttributeRow.path.in_(wanted), is_older).values(last_seen=today)
    )
    return SchemaRecord(
        created=seen.created,
        conflicted=seen.conflicted,
        proposed=seen.proposed,
        unchanged=seen.unchanged,
        waiting=seen.waiting,
        refused=len(problems),
        problems=problems,
        snapshot_version=edit.version if edit.changed else revision_in(edit.session).version,
    )


class _Discovery:
    """The attributes that one request touches, as they become."""

    def __init__(
        self,
        edit: Edit,
        known: dict[str, AttributeMetadata],
        below: dict[str, str],
        purged: dict[str, int],
    ) -> None:
        """`known` also has the attributes above new paths, and `below` the first one under each new path. `purged` has the
        last versions of those that were known once."""
        self._purged = purged
        self.created = self.conflicted = self.proposed = self.unchanged = self.waiting = 0
        self._edit = edit
        self._stored = dict(known)
        self._now = known
        self._below = below
        self._defaults = discovery_defaults(edit.session)
        self._levels = classification_levels(edit.session)
        self._room = Room(edit, self._defaults)

    def take(self, change: SchemaChange) -> None:
        if change.seen:
            # Its path may be gone by now, redacted: it must not come back.
            self.unchanged += 1
            return
        attribute = self._now.get(change.path)
        if attribute is None and not self._room.take(change.source):
            self.waiting += 1
            return
        if attribute is None:
            self.created += 1
            self._now[change.path] = self._proposed(self._discovered(change), change)
            self._take_shape(change)
            return
        changed = attribute
        if not attribute.accepts(change.data_type):
            self.conflicted += 1
            changed = self._with_conflict(attribute, change.data_type, change.source, change.first_event)
        changed = self._proposed(changed, change)
        if changed is attribute:
            self.unchanged += 1
        elif attribute.accepts(change.data_type):
            self.proposed += 1
        if changed is not attribute:
            self._set(changed)

    def _set(self, changed: AttributeMetadata) -> None:
        # All that one request adds to an attribute is one version of it, the first if it is new.
        stored = self._stored.get(changed.path)
        version = changed.version if stored is None else stored.version + 1
        self._now[changed.path] = changed.model_copy(update={"version": version})

    def _take_shape(self, change: SchemaChange) -> None:
        """A new path makes an object of each attribute above it, and is one itself where attributes lie below it."""
        for place in paths.ancestors(change.path):
            above = self._now.get(place)
            if above is None:
                self._below.setdefault(place, change.path)
            elif not above.accepts("object"):
                self._set(self._with_conflict(above, "object", change.source, change.first_event))
        below = self._now.get(self._below.get(change.path, ""))
        if below is not None:
            source, first_event = below.source or change.source, below.first_event or change.first_event
            self._set(self._with_conflict(self._now[change.path], "object", source, first_event))

    def _proposed(self, attribute: AttributeMetadata, change: SchemaChange) -> AttributeMetadata:
        mode = self._defaults.detection
        if change.proposal is None or mode is DetectionMode.OFF:
            return attribute
        return with_proposal(attribute, change.proposal, self._levels if mode is DetectionMode.SEAL else None)

    def write(self) -> None:
        created = [attribute for path, attribute in self._now.items() if path not in self._stored]
        changed = [
            attribute
            for path, attribute in self._now.items()
            if attribute is not self._stored.get(path, attribute)
        ]
        if created or changed:
            write_versions(self._edit, created, changed)
        for attribute in created:
            self._edit.record("attribute", attribute.path, attribute.version, "discovered")
        for attribute in changed:
            before = self._stored[attribute.path]
            action: Action = "conflicted" if attribute.conflicts != before.conflicts else "proposed"
            self._edit.record("attribute", attribute.path, attribute.version, action)

    def _discovered(self, change: SchemaChange) -> AttributeMetadata:
        return AttributeMetadata(
            path=change.path,
            data_type=change.data_type,
            source=change.source,
            first_event=change.first_event,
            status=AttributeStatus.DISCOVERED,
            version=self._purged.get(change.path, 0) + 1,
            created=self._edit.at,
            **self._defaults.model_dump(
                include={"classification", "encryption", "authorization_level", "indexable"}
            ),
        )

    def _with_conflict(
        self, attribute: AttributeMetadata, seen: DataType | Literal["object"], source: str, first_event: str
    ) -> AttributeMetadata:
        conflict = TypeConflict(
            data_type=seen, source=source, first_event=first_event, first_seen=self._edit.at
        )
        return attribute.model_copy(update={"conflicts": (*attribute.conflicts, conflict)})


def _readable(entries: Sequence[Any]) -> tuple[list[SchemaChange], list[RefusedChangeRecord]]:
    changes: list[SchemaChange] = []
    problems: list[RefusedChangeRecord] = []
    for index, entry in enumerate(entries):
        try:
            change = SchemaChange.model_validate(entry)
        except ValidationError as error:
            wrong = error.errors(include_input=False, include_context=False, include_url=False)[0]
            place = ".".join(map(str, wrong["loc"]))
            problems.append(
                RefusedChangeRecord(index=index, reason=f"{place}: {wrong['msg']}" if place else wrong["msg"])
            )
            continue
        reason = path_problem(change.path) or (
            "source: holds a NUL character" if "\x00" in change.source else None
        )
        if reason:
            problems.append(RefusedChangeRecord(index=index, reason=reason))
        else:
            changes.append(change)
    return changes, problems
