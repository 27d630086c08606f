"""The preview of a mapping spec as a job: draw a sample, map it by both versions, and compare."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import Field

from idgraph.jobs.job import PagedJob, Plan
from idgraph.jobs.kind import JobContext
from idgraph.jobs.spec_preview.effect import MOST_PATHS, Effect, share_error
from idgraph.jobs.spec_preview.persons import EventPair, PersonEffect, compare_persons
from idgraph.jobs.spec_preview.protected import HiddenPlaces, ProtectedValues
from idgraph.jobs.spec_preview.sample import EventSample, files_of
from idgraph.jobs.spec_preview.stand_ins import StandIns
from idgraph.jobs.spec_preview.tried import TriedEvent, TriedSnapshot
from idgraph.model.documents import StrictDocument
from idgraph.model.errors import ConfigError
from idgraph.model.events import RawRecord
from idgraph.model.jobs import JobKind, Point, Progress
from idgraph.model.snapshots import MetadataSnapshot, pattern_matches
from idgraph.model.sources import FileSource
from idgraph.model.specs import SpecDefinition, SpecDocument, SpecStatus
from idgraph.model.tombstones import Tombstone
from ingestion.sources.files.lines import DamagedRecord, FileNames
from ingestion.stages.decrypt import Decryption
from ingestion.stages.map_output import MappedEvent
from merge.identity.rules import Rules
from transforms.privacy.protected_names import StoredNames
from transforms.schema.attribute_nodes import Leaves

PAGE = 200
TARGET = "specs"
"""One preview of a spec runs at a time, beside one of identity rules."""


SAMPLE, MOST_EVENTS = 2000, 20_000


class SpecPreviewParameters(StrictDocument):
    """A mapping spec to compare with the one in force of its name, over so many events, drawn at random. `reveal`: the events
    are mapped as they are, else with stand-ins for protected values."""

    definition: SpecDefinition
    sample: int = Field(default=SAMPLE, ge=1, le=MOST_EVENTS)
    reveal: bool = False


class SpecPreviewJob(PagedJob):
    """Its result is `effect` and `persons`. Nothing of it is kept in the log but counts."""

    kind = JobKind.PREVIEW
    target = TARGET

    def __init__(self, parameters: SpecPreviewParameters, context: JobContext) -> None:
        """Raises SpecError for a spec that would be refused, MetadataError without the places that its
        earlier versions protected, ConfigError where there is nothing to read."""
        definition = parameters.definition
        context.check(definition)
        self._once = context.protected_places(definition)
        """Places of the input that an earlier version protected."""
        resources, snapshot = context.resources(notes=False), context.pinned.snapshot
        now = next((each for each in snapshot.specs if each.name == definition.name), None)
        stated = dict(definition) | {"status": SpecStatus.ACTIVE}
        version = 1 if now is None else now.version + 1
        draft = SpecDocument(**stated, version=version, created=datetime.now(UTC))
        others = tuple(each for each in snapshot.specs if each.name != definition.name)
        copies = {name: each for name, each in snapshot.id_copies.items() if name != definition.name}
        changed = snapshot.model_copy(update={"specs": (*others, draft), "id_copies": copies})
        self.what = {
            "spec": definition.name,
            "definition": definition.digest(),
            "version_in_force": now and now.version,
            "sample": parameters.sample,
            "reveal": parameters.reveal,
        }
        self._context = context
        self._store = resources.store
        self._tombstones = resources.tombstones
        self._size = parameters.sample
        self._sides = self._side(snapshot), self._side(changed)
        before, after = (StoredNames(each, resources.blind_index) for each in (snapshot, changed))
        self._names = before.identifier, after.identifier
        self.sample = EventSample(self._files(draft, now), self._matches, parameters.sample)
        self.effect = Effect(withholds=not parameters.reveal)
        rules = Rules(snapshot.identity_rules)
        hashed = resources.blind_index.hashed
        self._stand_ins = None if parameters.reveal else StandIns(hashed, rules.identifier)
        """None where numbers may say something of protected values."""
        self.persons: PersonEffect | None = None
        """None until the persons were compared."""
        self._routes: dict[tuple[str, str], bool] = {}

    def _side(self, snapshot: MetadataSnapshot) -> TriedSnapshot:
        here, plan = self._context.resources(), self._context.plan
        latest = int((time.time() + plan.flow.max_future_skew_seconds) * 1000)
        tools = here.data_keys, here.blind_index, here.formats
        return TriedSnapshot(snapshot, plan.sources, *tools, latest, plan.flow.earliest_ordinal)

    def _files(self, draft: SpecDocument, now: SpecDocument | None) -> dict[str, FileSource]:
        def is_meant(name: str) -> bool:
            return any(pattern_matches(each.source, name) for each in (now, draft) if each is not None)

        sources = self._context.plan.sources
        files = files_of(sources.values(), is_meant)
        if not files:
            known = ", ".join(sources) or "none"
            raise ConfigError(
                f"no configured source in files has events of {draft.source}, and a preview reads the source's own "
                f"files (configured: {known}); `idgraph map` tries the spec on records of a file"
            )
        return files

    def _matches(self, source: str, event_type: str) -> bool:
        route = source, event_type
        if route not in self._routes:
            found = [each.snapshot.spec_for(*route) for each in self._sides]
            is_ours = any(each is not None and each.name == self.what["spec"] for each in found)
            if len(self._routes) > MOST_PATHS:
                self._routes.clear()
            self._routes[route] = is_ours
        return self._routes[route]

    def _decrypt(self, records: Iterable[RawRecord | DamagedRecord]) -> Iterable[RawRecord | DamagedRecord]:
        return Decryption(self._context.plan.sources, self._context.resources().decryptors).run(records)

    def plan(self, point: Point) -> Plan:  # noqa: ARG002
        return Plan(f"the preview of {self.what['spec']}", self._size, "event")

    def pages(self, progress: Progress, point: Point) -> Iterator[Point]:  # noqa: ARG002
        here, plan = self._context.resources(), self._context.plan
        tools = FileNames(here.blind_index), self._decrypt, here.formats
        for _ in self.sample.read(*tools, plan.flow.max_event_bytes, plan.closed):
            yield {}
        records = self.sample.records()
        progress.total = len(records)
        shown: list[EventPair] = []
        for start in range(0, len(records), PAGE):
            shown += self._page(records[start : start + PAGE])
            progress.done = min(start + PAGE, len(records))
            progress.counts = self.effect.counts.copy()
            self._context.keep(self.document())
            yield {}
        rules = Rules(self._sides[0].snapshot.identity_rules)
        self.persons = compare_persons(self._store, rules, self._names, shown)
        self._context.keep(self.document())

    def _page(self, records: list[RawRecord]) -> Iterator[EventPair]:
        mapped = [(each, *self._outcomes(each)) for each in records]
        fragments = {
            side.event.fragment_id for _, _, *both in mapped for side in both if side.event is not None
        }
        erased = self._tombstones(fragments)
        for record, values, old, new in mapped:
            if any(self._is_refused(record, side.event, erased) for side in (old, new)):
                self.effect.counts["erased"] += 1
                continue
            if self.effect.add(record, old, new, values):
                yield EventPair(*(_without_values(each.event) for each in (old, new)))

    def _outcomes(self, record: RawRecord) -> tuple[ProtectedValues, TriedEvent, TriedEvent]:
        """The outcomes by either version, of the event or of one with stand-ins for values that its reader
        may not see, and the protected values of the payload that was mapped."""
        before, after = self._sides
        (flow, payload), (new_flow, _) = before.payload(record), after.payload(record)
        if self._stand_ins is None:
            old, new = before.outcome(record), after.outcome(record)
        else:
            hidden = HiddenPlaces(flow, new_flow, self._once)
            payload = self._stand_ins.put_into(payload, record.position, hidden.hides, hidden.named)
            name_of = self._stand_ins.name_of
            old, new = before.outcome(record, payload, name_of), after.outcome(record, payload, name_of)
        return ProtectedValues(payload, flow, new_flow, {*old.leaves, *new.leaves}), old, new

    def _is_refused(
        self, record: RawRecord, event: MappedEvent | None, erased: Mapping[str, Tombstone]
    ) -> bool:
        tombstone = None if event is None else erased.get(event.fragment_id)
        if event is None or tombstone is None:
            return False
        return tombstone.refuses_event(
            event.origin.stamp.ordinal if self._sides[0].is_timed(record) else None
        )

    def document(self) -> dict[str, Any]:
        """The result as JSON shows it. Each of `figures` has a number, its share of the sampled events or
        persons, and that share's error with 95 % confidence; 0 where all was read."""
        effect, persons, sample = self.effect, self.persons, self.sample
        changes = [each.document(path) for path, each in effect.attributes.items() if each.counts]
        order = ["exposes", "sensitive", "removed", "retyped", "added", "changed"]
        changes.sort(key=lambda each: (order.index(each["change"]), -each["events"], each["path"]))
        return {
            **{name: self.what[name] for name in ("spec", "definition", "version_in_force")},
            "sources": sorted(sample.sources),
            "files": sample.files,
            "files_read": sample.files_read,
            "events": sample.events,
            "looked_at": effect.counts["events"],
            "is_exact": sample.is_whole,
            "unreadable": sample.unreadable,
            "erased": effect.counts["erased"],
            "withheld": {"events": effect.counts["withheld"], "places": sorted(effect.computed)},
            "figures": self.figures(),
            "attributes": {
                **effect.paths(),
                "changes": changes,
                "is_complete": not effect.counts["unnamed_paths"],
            },
            "identifiers_opened": dict(effect.opened_types),
            "errors": [
                {**error._asdict(), "events": number, "positions": effect.error_positions[error]}
                for error, number in effect.errors.most_common()
            ],
            "persons": None
            if persons is None
            else {"merged": list(persons.merged_examples), "split": list(persons.split_examples)}
            | (
                {}
                if persons.known is None
                else {"of_events": persons.known.persons, "known_by": persons.known.by}
            ),
            "examples": effect.examples,
        }

    def figures(self) -> dict[str, dict[str, Any]]:
        """Each number with its share of the sample, and the error of that share."""
        counts, events = self.effect.counts, self.effect.counts["events"]
        total = events if self.sample.is_whole else None
        figures = {
            name: _figure(counts[key], events, total)
            for name, key in (
                ("events_changed", "changed"),
                ("errors_new", "errors_new"),
                ("errors_gone", "errors_gone"),
                ("errors_before", "errors_before"),
                ("errors_after", "errors_after"),
                ("nothing_before", "nothing_before"),
                ("nothing_after", "nothing_after"),
                ("exposed", "exposed"),
            )
        }
        persons = self.persons
        if persons is not None:
            total = persons.persons if self.sample.is_whole else None
            figures["persons_merged"] = _figure(persons.merged, persons.persons, total)
            figures["persons_split"] = _figure(persons.split, persons.persons, total)
            if persons.known is not None:
                total = persons.known.persons if self.sample.is_whole else None
                figures["persons_known"] = _figure(persons.known.known, persons.known.persons, total)
        return figures


def _without_values(event: MappedEvent | None) -> MappedEvent | None:
    """The event's evidence of persons, without its values."""
    if event is None:
        return None
    return event._replace(record=RawRecord("", "", b""), leaves=Leaves({}, [], []))


def _figure(number: int, drawn: int, whole: int | None) -> dict[str, Any]:
    return {
        "number": number,
        "share": number / drawn if drawn else 0.0,
        "error": round(share_error(number, drawn, whole), 6),
    }
