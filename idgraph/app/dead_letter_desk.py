"""Dead letters and the newest events as the profile service shows them: a record as policy lets it be seen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Any

from idgraph.app import wiring
from idgraph.app.adapters.inputs import formats_config, open_formats
from idgraph.app.adapters.key_providers import provider_of
from idgraph.app.adapters.stores import open_dead_letters, worker_config
from idgraph.app.newest_records import newest_records
from idgraph.app.settings.document import Settings
from idgraph.model import canonical, paths
from idgraph.model.dead_letters import DeadLetter, DeadLetterReason, DeadLetters
from idgraph.model.errors import IdgraphError, SealError, SpecError, TransformError
from idgraph.model.events import Event, RawRecord
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.sources import EventSources, SourceConfig
from idgraph.model.specs import SpecDocument
from ingestion.sources.kafka.envelope import envelope_reader
from ingestion.sources.payload_formats import PayloadFormats
from profile_service.api.dead_letters import ShownEvent, ShownRecord
from transforms.privacy.record_sealing import DeadLetterSealer
from transforms.spec.mapping import CompiledSnapshot, MappingSpec
from transforms.spec.masking import mask
from transforms.spec.pointers import pointer

MOST_BYTES = 64 << 10
"""A larger record is not shown."""
MOST_SET_ASIDE = 200
"""The newest dead letters, among which those of the newest events are looked for."""

_ORDINALS = {
    DeadLetterReason.BAD_ORDINAL,
    DeadLetterReason.FUTURE_ORDINAL,
    DeadLetterReason.PAST_ORDINAL,
}
_NAMES = {DeadLetterReason.WRONG_TYPE, DeadLetterReason.LONG_IDENTIFIER}


@contextmanager
def dead_letter_desk(settings: Settings) -> Iterator[LocalDeadLetterDesk]:
    """The dead letters of this folder, while the block runs."""
    formats = open_formats(formats_config(settings))
    provider = provider_of(settings)
    with closing(open_dead_letters(worker_config(settings), provider)) as store, closing(formats):
        sealer = DeadLetterSealer(provider)
        newest = partial(newest_records, settings)
        drop = partial(_drop, settings)
        yield LocalDeadLetterDesk(store, sealer, settings.sources_by_name(), formats, newest, drop)


def _drop(settings: Settings, ids: Sequence[str]) -> int:
    with wiring.opened(settings) as resources:
        return resources.orphaned_keys().drop_dead_letters(ids)


class LocalDeadLetterDesk:
    """Shows the dead letters of one store. Safe for several threads."""

    def __init__(
        self,
        store: DeadLetters,
        sealer: DeadLetterSealer,
        sources: dict[str, Any],
        formats: PayloadFormats,
        newest: Callable[[SourceConfig, int], list[RawRecord]],
        drop: Callable[[Sequence[str]], int],
    ) -> None:
        """`newest` reads records of a source again, as `newest_records`; `drop` is that of `OrphanedKeys`."""
        self._newest_records = newest
        self.newest = store.newest
        self.get = store.get
        self.drop = drop
        self._sealer = sealer
        self._sources: dict[str, SourceConfig] = sources
        self.event_sources = EventSources.of(sources.values())
        self._readers = {name: envelope_reader(config, formats) for name, config in sources.items()}
        # The tree of attributes belongs to one thread.
        self._lock = threading.Lock()
        self._compiled: tuple[str, CompiledSnapshot] | None = None

    def record(
        self, dead_letter: DeadLetter, snapshot: MetadataSnapshot, etag: str, sees: Callable[[str], bool]
    ) -> ShownRecord:
        """The record by the policies of this snapshot, and by what its reader `sees`."""
        if dead_letter.holds_changes():
            return _nothing("it holds changes of a fragment, which are sealed as the fragment is")
        config = self._sources.get(dead_letter.source)
        try:
            value = self._sealer.open(dead_letter.payload, dead_letter.id, dead_letter.position)
        except SealError:
            return _nothing("it cannot be opened by this keyring")
        record = RawRecord(dead_letter.source, dead_letter.position, value)
        event, spec, shown = self._shown(record, snapshot, etag, sees)
        wrong = _wrong_paths(dead_letter.reason, spec.document if spec else None)
        cause = shown.cause + [
            place for place, becomes in shown.becomes.items() if wrong.intersection(becomes)
        ]
        is_unread = event is None and shown.payload is not None and dead_letter.reason in _ORDINALS
        if is_unread and config is not None and config.ordinal:
            cause += [pointer(*paths.split(config.ordinal.path))] if config.ordinal.path else []
        return shown._replace(cause=cause)

    def newest_events(
        self, source: str, most: int, snapshot: MetadataSnapshot, etag: str, sees: Callable[[str], bool]
    ) -> list[ShownEvent] | None:
        """Records read from the source again, the newest first, as `record` shows them; None for a source that is not
        configured. Raises ConfigError, SourceUnavailableError."""
        config = self._sources.get(source)
        if config is None:
            return None
        found = []
        aside = self._set_aside(source)
        for record in self._newest_records(config, most):
            event, spec, shown = self._shown(record, snapshot, etag, sees)
            name = f"{spec.document.name}@{spec.document.version}" if spec else None
            identifiers = []
            if event is not None and spec is not None:
                with self._lock, suppress(TransformError):
                    identifiers = spec.identifiers_in(event)
            letter = aside.get(record.as_arrived())
            found.append(
                ShownEvent(
                    event.type if event else None,
                    name,
                    *shown[:3],
                    letter.id if letter else None,
                    str(letter.reason) if letter else None,
                    identifiers,
                )
            )
        return found

    def _set_aside(self, source: str) -> dict[bytes, DeadLetter]:
        """Dead letters of a source among the newest, by their records. A record that is read from the end of
        a file has no position of its own."""
        found: dict[bytes, DeadLetter] = {}
        for each in self.newest(MOST_SET_ASIDE):
            letter = self.get(each.id) if each.source == source else None
            if letter is not None:
                with suppress(SealError):
                    found.setdefault(self._sealer.open(letter.payload, letter.id, letter.position), letter)
        return found

    def _shown(
        self, record: RawRecord, snapshot: MetadataSnapshot, etag: str, sees: Callable[[str], bool]
    ) -> tuple[Event | None, MappingSpec | None, ShownRecord]:
        size = len(record.value)
        if size > MOST_BYTES:
            problem = f"it has {size:,} bytes, and records of up to {MOST_BYTES:,} are shown"
            return None, None, _nothing(problem)
        event = self._event(record)
        payload = _body(record.value) if event is None else event.payload
        if not isinstance(payload, dict | list):
            return event, None, _nothing(f"it has {size:,} bytes, which cannot be read as an event")
        with self._lock:
            if self._compiled is None or self._compiled[0] != etag:
                known = None if self._compiled is None else self._compiled[1]
                self._compiled = etag, CompiledSnapshot(snapshot, known)
            compiled = self._compiled[1]
            spec = None if event is None else _spec(compiled, event)
            context = {} if event is None else event.context()
            masked = mask(payload, spec, context, compiled.attributes, sees)
        becomes = {place: sorted(found) for place, found in masked.becomes.items()}
        shown = ShownRecord(masked.document, None, becomes, masked.culprits)
        return event, spec, shown

    def _event(self, record: RawRecord) -> Event | None:
        reader = self._readers.get(record.source)
        try:
            return reader.read(record) if reader else None
        except (IdgraphError, ArithmeticError, LookupError, TypeError, ValueError):
            return None


def _nothing(problem: str) -> ShownRecord:
    return ShownRecord(None, problem, {}, [])


def _body(value: bytes) -> Any:
    try:
        return canonical.decode(value)
    except (*canonical.MalformedJSON, RecursionError):
        return None


def _spec(compiled: CompiledSnapshot, event: Event) -> MappingSpec | None:
    try:
        return compiled.spec_for(event.source, event.type)
    except SpecError:
        return None


def _wrong_paths(reason: DeadLetterReason, spec: SpecDocument | None) -> set[str]:
    """The attributes to which a reason points."""
    if spec is None:
        return set()
    ordinal = {spec.ordinal} if spec.ordinal and reason in _ORDINALS else set()
    return ordinal | ({each.path for each in spec.identifiers} if reason in _NAMES else set())
