"""Usage: how many events each spec maps, and which fields of their input no spec reads, by a sample of each chunk.

It adds nothing to the way of an event: the sample is read once more beside it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from idgraph.model.errors import EventError, SpecError
from idgraph.model.events import Event, RawRecord
from idgraph.model.sources import SourceConfig
from idgraph.model.spec_use import joined_fields
from ingestion.sources.files.lines import DamagedRecord
from ingestion.sources.payload_formats import NOT_OF_THE_EVENT
from ingestion.stages.map_output import MapOutput, Record
from transforms.spec.input_fields import InputFields
from transforms.spec.mapping import CompiledSnapshot, MappingSpec

SAMPLE = 64
"""Events of a chunk that are looked at; with fewer, the numbers are exact."""
FIELD_EVENTS = 2
"""Events of a chunk, per spec, whose fields are tried."""
MOST_BYTES = 16 << 10
"""Largest event whose fields are tried."""


class UsageCounter:
    """Counts for one task."""

    def __init__(
        self,
        snapshot: CompiledSnapshot,
        sources: Mapping[str, SourceConfig],
        read: Callable[[RawRecord], Event],
    ) -> None:
        """`read` raises EventError."""
        self._snapshot = snapshot
        self._read = read
        places = {
            name: (each.source, each.type, each.id, each.ordinal) if not each.payload else ()
            for name, each in sources.items()
        }
        self._envelopes = {
            name: {"/" + place.path.replace(".", "/") for place in some if place is not None and place.path}
            for name, some in places.items()
        }

    def look_at(self, chunk: Sequence[Record], output: MapOutput) -> None:
        """Count a chunk in `output`, which has the numbers of its sources already."""
        step = -(-len(chunk) // SAMPLE)
        sampled = chunk[random.randrange(step) :: step] if chunk else ()  # noqa: S311 - no secret
        records = [each for each in sampled if not isinstance(each, DamagedRecord)]
        drawn = Counter(each.source for each in records)
        tried: Counter[MappingSpec] = Counter()
        for record in records:
            spec = event = None
            with suppress(EventError, SpecError, *NOT_OF_THE_EVENT):
                event = self._read(record)
                spec = self._snapshot.spec_for(event.source, event.type)
            if spec is None or event is None:
                continue
            use = output.uses.of(spec.ref.name, spec.ref.version, record.source)
            # Exact where one spec maps all events of a source.
            use.events += output.sources[record.source] / drawn[record.source]
            tried[spec] += 1
            if tried[spec] <= FIELD_EVENTS:
                self._try_fields(spec, event)
                known = self._snapshot.input_fields[spec].known()
                own = {path: known[path] for path in known.keys() - self._envelopes[record.source]}
                use.fields = joined_fields(use.fields, own)

    def _try_fields(self, spec: MappingSpec, event: Event) -> None:
        fields = self._snapshot.input_fields.setdefault(spec, InputFields())
        if len(event.raw) <= MOST_BYTES:
            context = event.context()
            # The map stage reports any fault of the event.
            with suppress(Exception):
                fields.look_at(
                    event.payload, lambda payload: spec.transformed(payload, context), spec.is_value_in(event)
                )
