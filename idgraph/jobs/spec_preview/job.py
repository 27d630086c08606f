"""The preview of a mapping spec as a job: draw a sample, map it by both versions, and compare."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from idgraph.jobs.job import PagedJob, Plan
from idgraph.jobs.spec_preview.effect import Effect, share_error
from idgraph.jobs.spec_preview.persons import EventPair, PersonEffect, compare_persons
from idgraph.jobs.spec_preview.protected import HiddenPlaces, ProtectedValues
from idgraph.jobs.spec_preview.sample import Decrypt, EventSample
from idgraph.jobs.spec_preview.stand_ins import StandIns
from idgraph.jobs.spec_preview.tried import TriedEvent, TriedSnapshot
from idgraph.model.events import RawRecord
from idgraph.model.jobs import JobKind, Point, Progress
from idgraph.model.tombstones import Tombstone
from ingestion.sources.files.lines import FileNames
from ingestion.sources.payload_formats import PayloadFormats
from ingestion.stages.map_output import MappedEvent
from merge.identity.persons import PersonStore
from merge.identity.rules import Rules
from transforms.schema.attribute_nodes import Leaves
from transforms.spec.operation_moves import Place

PAGE = 200
TARGET = "specs"
"""One preview of a spec runs at a time, beside one of identity rules."""


class Inputs(NamedTuple):
    """What reading the files takes."""

    names: FileNames
    decrypt: Decrypt
    formats: PayloadFormats
    max_event_bytes: int
    closed: tuple[Path, ...]


class SpecPreviewJob(PagedJob):
    """Its result is `effect` and `persons`. Nothing of it is kept in the log but counts."""

    kind = JobKind.PREVIEW
    target = TARGET

    def __init__(
        self,
        what: Mapping[str, Any],
        sample: EventSample,
        inputs: Inputs,
        sides: tuple[TriedSnapshot, TriedSnapshot],
        store: PersonStore,
        names: tuple[Callable[[str], str], Callable[[str], str]],
        tombstones: Callable[[Iterable[str]], Mapping[str, Tombstone]],
        size: int,
        stand_ins: StandIns | None,
        once: Collection[Place] = (),
        keep: Callable[[SpecPreviewJob], None] = lambda _job: None,
    ) -> None:
        """`what` are its parameters, with the name of the `spec`. `sides` are the snapshot in force and the one with the new version.
        With `stand_ins` the events are mapped with these for protected values; None where numbers may say something of them.
        `once` are places of the input that an earlier version protected. `keep` is called after each page."""
        self.what = {**what, "sample": size}
        self.sample = sample
        self.effect = Effect(withholds=stand_ins is not None)
        self._stand_ins = stand_ins
        self._once = once
        self.persons: PersonEffect | None = None
        """None until the persons were compared."""
        self._inputs = inputs
        self._sides = sides
        self._store = store
        self._names = names
        self._tombstones = tombstones
        self._size = size
        self._keep = keep

    def plan(self, point: Point) -> Plan:  # noqa: ARG002
        return Plan(f"the preview of {self.what['spec']}", self._size, "event")

    def pages(self, progress: Progress, point: Point) -> Iterator[Point]:  # noqa: ARG002
        for _ in self.sample.read(*self._inputs):
            yield {}
        records = self.sample.records()
        progress.total = len(records)
        shown: list[EventPair] = []
        for start in range(0, len(records), PAGE):
            shown += self._page(records[start : start + PAGE])
            progress.done = min(start + PAGE, len(records))
            progress.counts = self.effect.counts.copy()
            self._keep(self)
            yield {}
        rules = Rules(self._sides[0].snapshot.identity_rules)
        self.persons = compare_persons(self._store, rules, self._names, shown)
        self._keep(self)

    def _page(self, records: list[RawRecord]) -> Iterator[EventPair]:
        before, after = self._sides
        mapped = [(each, *self._outcomes(each)) for each in records]
        fragments = {side.event.fragment_id for _, *both in mapped for side in both if side.event is not None}
        erased = self._tombstones(fragments)
        for record, old, new in mapped:
            if any(self._is_refused(record, side.event, erased) for side in (old, new)):
                self.effect.counts["erased"] += 1
                continue
            (flow, payload), (new_flow, _) = before.payload(record), after.payload(record)
            values = ProtectedValues(payload, flow, new_flow, {*old.leaves, *new.leaves})
            if self.effect.add(record, old, new, values):
                yield EventPair(*(_without_values(each.event) for each in (old, new)))

    def _outcomes(self, record: RawRecord) -> tuple[TriedEvent, TriedEvent]:
        """By either version, of the event or of one with stand-ins for what its reader may not see."""
        before, after = self._sides
        if self._stand_ins is None:
            return before.outcome(record), after.outcome(record)
        (flow, payload), (new_flow, _) = before.payload(record), after.payload(record)
        hidden = HiddenPlaces(flow, new_flow, self._once)
        made = self._stand_ins.put_into(payload, record.position, hidden.hides, hidden.named)
        name_of = self._stand_ins.name_of
        return before.outcome(record, made, name_of), after.outcome(record, made, name_of)

    def _is_refused(
        self, record: RawRecord, event: MappedEvent | None, erased: Mapping[str, Tombstone]
    ) -> bool:
        tombstone = None if event is None else erased.get(event.fragment_id)
        if event is None or tombstone is None:
            return False
        return tombstone.refuses_event(
            event.origin.stamp.ordinal if self._sides[0].is_timed(record) else None
        )

    def figures(self) -> dict[str, dict[str, Any]]:
        """Each number with its share of the sample, and how far that may be from the share of all events."""
        counts, events = self.effect.counts, self.effect.counts["events"]
        whole = events if self.sample.is_whole else None
        found = {
            name: _figure(counts[key], events, whole)
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
            whole = persons.persons if self.sample.is_whole else None
            found["persons_merged"] = _figure(persons.merged, persons.persons, whole)
            found["persons_split"] = _figure(persons.split, persons.persons, whole)
            if persons.known is not None:
                whole = persons.known.persons if self.sample.is_whole else None
                found["persons_known"] = _figure(persons.known.known, persons.known.persons, whole)
        return found


def _without_values(event: MappedEvent | None) -> MappedEvent | None:
    """What it shows of persons."""
    if event is None:
        return None
    return event._replace(record=RawRecord("", "", b""), leaves=Leaves({}, [], []))


def _figure(number: int, drawn: int, whole: int | None) -> dict[str, Any]:
    return {
        "number": number,
        "share": number / drawn if drawn else 0.0,
        "error": round(share_error(number, drawn, whole), 6),
    }
