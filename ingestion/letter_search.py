"""Finding the dead letters of some persons: each letter is opened and looked through.

A letter is a person's when its position names a fragment of theirs, when its record maps to one of their
identifiers, or when a value anywhere in the record is one of them: as it stands, without outer white
space, or in small letters too. Records that are not JSON are taken apart at everything that separates
values there. What none of this finds: an identifier that a spec builds out of several values, or that
stands encoded within one, in a record that cannot be mapped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ingestion.configuration import SourceConfig
from ingestion.envelope import EnvelopeReader
from ingestion.set_aside import FRAGMENT, read_changes
from model import canonical
from model.dead_letters import DeadLetter, DeadLetterReason
from model.errors import IdgraphError, SealError, StoreError
from model.events import RawRecord
from model.identifiers import HASHED_PREFIX, Identifier
from model.snapshots import MetadataSnapshot
from transforms.blind_index import BlindIndex
from transforms.compiled import CompiledSnapshot

_BETWEEN_VALUES = re.compile(r'["\s,;:{}\[\]|&=<>()]+|\\[nrt"]')


class LetterSearch:
    """Looks through letters with the specs of one snapshot, or without any where there is none."""

    def __init__(
        self,
        sources: Mapping[str, SourceConfig],
        snapshot: MetadataSnapshot | None,
        blind_index: BlindIndex,
        open_payload: Callable[[bytes, str, str], bytes],
    ) -> None:
        self._readers = {name: EnvelopeReader(config) for name, config in sources.items()}
        self._compiled = CompiledSnapshot(snapshot) if snapshot else None
        self._blind_index = blind_index
        self._open_payload = open_payload

    def find(
        self, letters: Iterable[DeadLetter], fragments: Iterable[str], identifiers: Iterable[str]
    ) -> Iterator[str]:
        """Ids of the letters of these fragments and identifiers (`type:value`, also hashed ones). A letter
        that cannot be opened is left: nobody else can open it either."""
        positions = {FRAGMENT + each for each in fragments}
        wanted = _Wanted({*fragments, *identifiers}, self._blind_index)
        for letter in letters:
            if letter.position in positions or self._is_of(letter, wanted):
                yield letter.id

    def _is_of(self, letter: DeadLetter, wanted: _Wanted) -> bool:
        try:
            payload = self._open_payload(letter.payload, letter.id, letter.position)
        except SealError:
            return False
        if letter.reason is DeadLetterReason.DAMAGED_FRAGMENT:
            try:
                return any(map(wanted.holds, read_changes(payload).identifiers))
            except StoreError:
                return False
        return any(map(wanted.is_value, _values(payload))) or any(
            map(wanted.holds, self._mapped(RawRecord(letter.source, letter.position, payload)))
        )

    def _mapped(self, record: RawRecord) -> list[str]:
        """The identifiers that the record maps to; none if it cannot be mapped."""
        if self._compiled is None or record.source not in self._readers:
            return []
        try:
            event = self._readers[record.source].read(record)
            spec = self._compiled.spec_for(event.source, event.type)
            mapped = spec.map(event) if spec else None
        except (IdgraphError, ArithmeticError, LookupError, TypeError, ValueError):
            return []
        return [str(identifier) for identifier in mapped.identifiers] if mapped else []


class _Wanted:
    """Identifiers as they are stored, and what in a record is one of them."""

    def __init__(self, identifiers: set[str], blind_index: BlindIndex) -> None:
        self._identifiers = identifiers
        self._blind_index = blind_index
        parsed = [Identifier.parse(text) for text in identifiers]
        self._hashed_types = {kind for kind, value in parsed if value.startswith(HASHED_PREFIX)}
        self._plain = {value for _, value in parsed}

    def holds(self, identifier: str) -> bool:
        """Whether an identifier is one of them, hashed or not."""
        return (
            identifier in self._identifiers
            or str(self._blind_index.identifier(Identifier.parse(identifier))) in self._identifiers
        )

    def is_value(self, text: str) -> bool:
        """Whether a text is the value of one of them."""
        forms = {text, text.strip(), text.strip().lower()} - {""}
        return not forms.isdisjoint(self._plain) or any(
            self.holds(f"{kind}:{form}") for kind in self._hashed_types for form in forms
        )


def _values(payload: bytes) -> set[str]:
    try:
        return set(_leaves(canonical.decode(payload)))
    except canonical.MalformedJSON:
        text = payload.decode(errors="replace")
        return {*_BETWEEN_VALUES.split(text), *text.split('"')}


def _leaves(value: Any) -> Iterator[str]:
    # Not by recursion: a record may be nested as deeply as its parser lets it.
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            waiting += [*each.keys(), *each.values()]
        elif isinstance(each, list):
            waiting += each
        elif each is not None and not isinstance(each, bool):
            yield str(each)
