"""What events showed about the schema becomes attribute metadata."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from idgraph.model.attributes import AttributeMetadata, AttributeStatus, TypeConflict
from idgraph.model.schema_changes import SchemaChange
from idgraph.model.snapshots import DetectionMode
from metadata_service.api.records import RefusedChange, SchemaAnswer
from metadata_service.attributes.catalogue import find_attributes, write_versions
from metadata_service.attributes.defaults import discovery_defaults
from metadata_service.attributes.levels import classification_levels
from metadata_service.attributes.proposals import with_proposal
from metadata_service.attributes.rules import path_problem
from metadata_service.storage.database import revision_in
from metadata_service.storage.edits import Action, Edit

MAX_CHANGES = 5000


def apply_schema_changes(edit: Edit, entries: Sequence[Any]) -> SchemaAnswer:
    """Take the changes that can be taken, refuse the others one by one. Taking a change again has no
    effect."""
    changes, problems = _readable(entries)
    known = {
        attribute.path: attribute
        for attribute in find_attributes(edit.session, {change.path for change in changes})
    }
    seen = _Discovery(edit, known)
    for change in changes:
        seen.take(change)
    seen.write()
    return SchemaAnswer(
        created=seen.created,
        conflicted=seen.conflicted,
        proposed=seen.proposed,
        unchanged=seen.unchanged,
        refused=len(problems),
        problems=problems,
        snapshot_version=edit.version if edit.changed else revision_in(edit.session).version,
    )


class _Discovery:
    """The attributes that one request touches, as they become."""

    def __init__(self, edit: Edit, known: dict[str, AttributeMetadata]) -> None:
        self.created = self.conflicted = self.proposed = self.unchanged = 0
        self._edit = edit
        self._stored = dict(known)
        self._now = known
        self._defaults = discovery_defaults(edit.session)
        self._levels = classification_levels(edit.session)

    def take(self, change: SchemaChange) -> None:
        attribute = self._now.get(change.path)
        if attribute is None:
            self.created += 1
            self._now[change.path] = self._proposed(self._discovered(change), change)
            return
        changed = attribute
        if not attribute.accepts(change.data_type):
            self.conflicted += 1
            changed = self._with_conflict(attribute, change)
        changed = self._proposed(changed, change)
        if changed is attribute:
            self.unchanged += 1
        elif attribute.accepts(change.data_type):
            self.proposed += 1
        # All that one request adds to an attribute is one version of it, the first if it is new.
        stored = self._stored.get(change.path)
        version = stored.version + 1 if stored and changed is not stored else changed.version
        self._now[change.path] = (
            changed if changed is attribute else changed.model_copy(update={"version": version})
        )

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
            version=1,
            created=self._edit.at,
            **self._defaults.model_dump(exclude={"detection"}),
        )

    def _with_conflict(self, attribute: AttributeMetadata, change: SchemaChange) -> AttributeMetadata:
        conflict = TypeConflict(
            data_type=change.data_type,
            source=change.source,
            first_event=change.first_event,
            first_seen=self._edit.at,
        )
        return attribute.model_copy(update={"conflicts": (*attribute.conflicts, conflict)})


def _readable(entries: Sequence[Any]) -> tuple[list[SchemaChange], list[RefusedChange]]:
    changes: list[SchemaChange] = []
    problems: list[RefusedChange] = []
    for index, entry in enumerate(entries):
        try:
            change = SchemaChange.model_validate(entry)
        except ValidationError as error:
            wrong = error.errors(include_input=False, include_context=False, include_url=False)[0]
            place = ".".join(map(str, wrong["loc"]))
            problems.append(
                RefusedChange(index=index, reason=f"{place}: {wrong['msg']}" if place else wrong["msg"])
            )
            continue
        reason = path_problem(change.path) or (
            "source: holds a NUL character" if "\x00" in change.source else None
        )
        if reason:
            problems.append(RefusedChange(index=index, reason=reason))
        else:
            changes.append(change)
    return changes, problems
