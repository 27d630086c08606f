"""Finding the dead letters of some persons: each dead letter is opened and looked through.

A dead letter is a person's when its position names a fragment of theirs, or its spec reads one of their
identifiers in it. So it is when a value anywhere in the record is one: as it stands, in small letters, or in
its namespace's normal form. A value that others may have by chance (`_is_distinctive`) is proof only under a
key that names the identifier's type. Elsewhere it is a guess, as an identifier within a text is, and the dead
letter may be somebody else's. In a record that cannot be mapped, the search misses identifiers that a spec
builds out of several values, or that stand encoded within one.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from idgraph.model import canonical
from idgraph.model.dead_letters import FRAGMENT, DeadLetter
from idgraph.model.errors import IdgraphError, SealError, StoreError
from idgraph.model.events import Event, RawRecord
from idgraph.model.identifiers import HASHED_PREFIX, Identifier
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.sources import SourceConfig
from ingestion.sources.kafka.envelope import envelope_reader
from ingestion.sources.payload_formats import NOT_OF_THE_EVENT, PayloadFormats
from ingestion.stages.dead_letters import read_changes
from ingestion.stages.decrypt import Decryption, Decryptors
from merge.identity.normal_forms import normalise
from merge.identity.rules import Rules
from transforms.privacy.blind_index import BlindIndex
from transforms.spec.mapping import CompiledSnapshot

_BETWEEN_VALUES = re.compile(r'((?:["\s,;:{}\[\]|&=<>()]|\\[nrt"])+)')
_NOT_A_LETTER = re.compile(r"[\W_]+")
_WITHIN_TEXT = re.compile(r"""\+?\(?[0-9](?:[0-9./()\-]|[^\S\r\n]){6,30}[0-9]|[^\s<>()\[\]{}"',;:|&=]+""")
"""Patterns of numbers as people write them, and of words."""

Places = tuple[str, str]
"""The key that a value stands under and the key around it; empty where there is none."""


def values(payload: bytes) -> dict[str, set[Places]]:
    """Every value and every key of a record as text, with the keys around it. A record that is not JSON is
    split at everything that separates values."""
    try:
        found = _leaves(canonical.decode(payload))
    except canonical.MalformedJSON:
        found = _pieces(payload.decode(errors="replace"))
    places: dict[str, set[Places]] = defaultdict(set)
    for text, place in found:
        places[text].add(place)
    return places


def names(place: Places, kind: str) -> bool:
    """Whether a value stands under a key that names a type of identifiers: `user_id` is named by `userId`,
    by `user`, and by `id` within `user`."""
    key, around = place
    word = _word(kind)
    wanted = {word, word.removesuffix("id") or word, word.removesuffix("id") + "id"}
    return _word(key) in wanted or (_word(key) == "id" and _word(around + key) in wanted)


def _word(text: str) -> str:
    return _NOT_A_LETTER.sub("", text).lower()


def _leaves(value: Any) -> Iterator[tuple[str, Places]]:
    # Not by recursion: a record may be nested as deeply as its parser lets it.
    waiting: list[tuple[Any, Places]] = [(value, ("", ""))]
    while waiting:
        each, place = waiting.pop()
        if isinstance(each, dict):
            waiting += [(key, place) for key in each]
            waiting += [(below, (key, place[0])) for key, below in each.items()]
        elif isinstance(each, list):
            waiting += [(element, place) for element in each]
        elif each is not None and not isinstance(each, bool):
            yield str(each), place


def _pieces(text: str) -> Iterator[tuple[str, Places]]:
    before, key, around = "", "", ""
    for number, piece in enumerate(_BETWEEN_VALUES.split(text)):
        if number % 2:
            is_below = not {",", ";", "&"} & set(piece) and bool({":", "="} & set(piece))
            key, around = (before, key) if is_below else ("", "")
        else:
            yield piece, (key, around)
            before = piece
    for piece in text.split('"'):
        yield piece, ("", "")


_NO_SOURCE = ""
_DISTINCTIVE_DIGITS = 10
_DISTINCTIVE_CHARACTERS = 8
_LONG = 20


class FoundDeadLetter(NamedTuple):
    """A dead letter of somebody. `why` names types of identifiers and no value; one that is not `certain` may as
    well be another person's."""

    id: str
    position: str
    why: str
    certain: bool


class DeadLetterSearch:
    """Looks through dead letters with the specs of one snapshot, or without any where there is none."""

    def __init__(
        self,
        sources: Mapping[str, SourceConfig],
        snapshot: MetadataSnapshot | None,
        blind_index: BlindIndex,
        open_payload: Callable[[bytes, str, str], bytes],
        formats: PayloadFormats | None = None,
        decryptors: Decryptors | None = None,
    ) -> None:
        readable = formats or PayloadFormats()
        self._readers = {name: envelope_reader(config, readable) for name, config in sources.items()}
        self._compiled = CompiledSnapshot(snapshot) if snapshot else None
        self._rules = Rules(snapshot.identity_rules if snapshot else None)
        self._blind_index = blind_index
        self._open_payload = open_payload
        stopping = {name: _stopping(config) for name, config in sources.items()}
        self._decryption = Decryption(stopping, decryptors or Decryptors())

    def find(
        self, dead_letters: Iterable[DeadLetter], fragments: Iterable[str], identifiers: Iterable[str]
    ) -> Iterator[FoundDeadLetter]:
        """The dead letters of these fragments and identifiers (`type:value`, also hashed ones). A dead letter
        that cannot be opened is skipped: nobody else can open it either. One that the decryption service
        refuses for good is searched as it is. Raises DecryptionError, which names the source, where the
        service fails otherwise."""
        positions = {FRAGMENT + each for each in fragments}
        wanted = _Wanted({*fragments, *identifiers}, self._blind_index, self._rules)
        for dead_letter, record in self._opened(dead_letters, positions):
            if record is None:
                yield FoundDeadLetter(
                    dead_letter.id, dead_letter.position, "its position names the fragment", True
                )
            elif found := self._match(dead_letter, record, wanted):
                yield FoundDeadLetter(dead_letter.id, dead_letter.position, *found)

    def _opened(
        self, dead_letters: Iterable[DeadLetter], positions: set[str]
    ) -> Iterator[tuple[DeadLetter, RawRecord | None]]:
        """Dead letters in their order, each with its record, decrypted if it arrived encrypted. As many requests are in
        progress as the service's `capacity`. Those at `positions` are not opened."""
        in_progress: deque[tuple[DeadLetter, RawRecord | None]] = deque()

        def arrived() -> Iterator[RawRecord]:
            for dead_letter in dead_letters:
                record = None if dead_letter.position in positions else self._open(dead_letter)
                if record is None and dead_letter.position not in positions:
                    continue
                in_progress.append((dead_letter, record))
                yield record or RawRecord(_NO_SOURCE, dead_letter.position, b"")

        for done in self._decryption.run(arrived()):
            dead_letter, record = in_progress.popleft()
            yield dead_letter, done if record and isinstance(done, RawRecord) else record

    def _open(self, dead_letter: DeadLetter) -> RawRecord | None:
        try:
            payload = self._open_payload(dead_letter.payload, dead_letter.id, dead_letter.position)
        except SealError:
            return None
        # Changes never arrived from a source: nobody decrypts them.
        source = _NO_SOURCE if dead_letter.holds_changes() else dead_letter.source
        return RawRecord(source, dead_letter.position, payload)

    def _match(self, dead_letter: DeadLetter, record: RawRecord, wanted: _Wanted) -> tuple[str, bool] | None:
        """The reason why a dead letter is somebody's, and whether that is certain."""
        if dead_letter.holds_changes():
            try:
                carried = any(map(wanted.holds, read_changes(record.value).carried()))
            except StoreError:
                return None
            return ("it holds a change with one of the identifiers", True) if carried else None
        event = self._event(record)
        for identifier in self._read(event) if event else ():
            if wanted.holds(str(identifier)):
                return f"its spec reads the {identifier.type} in it", True
        found = wanted.match(record.value)
        if event is None or event.raw in record.value or (found and found[1]):
            return found
        # A payload that is no JSON says more when it is decoded.
        return wanted.match(event.raw) or found

    def _event(self, record: RawRecord) -> Event | None:
        """The record as an event, if it can be read as one."""
        reader = self._readers.get(record.source)
        try:
            return reader.read(record) if reader else None
        except NOT_OF_THE_EVENT:
            # The owner of the dead letter could not be determined.
            raise
        except (IdgraphError, ArithmeticError, LookupError, TypeError, ValueError):
            return None

    def _read(self, event: Event) -> list[Identifier]:
        """The identifiers that today's spec reads in the event; none if it cannot be mapped."""
        if self._compiled is None:
            return []
        try:
            spec = self._compiled.spec_for(event.source, event.type)
            found = spec.identifiers_in(event) if spec else []
            return [self._rules.identifier(*each) or each for each in found]
        except (IdgraphError, ArithmeticError, LookupError, TypeError, ValueError):
            return []


def _stopping(source: SourceConfig) -> SourceConfig:
    """The source with decryption that stops at an outage, whatever a flow does: meanwhile, a dead letter's
    owner cannot be determined."""
    if source.decryptor is None:
        return source
    return source.model_copy(update={"decryptor": source.decryptor.model_copy(update={"on_failure": "stop"})})


class _Wanted:
    """Identifiers as they are stored or asked for, and the search for them in a record."""

    def __init__(self, identifiers: set[str], blind_index: BlindIndex, rules: Rules) -> None:
        self._blind_index = blind_index
        parsed = {form for text in identifiers for form in rules.forms(Identifier.parse(text))}
        # Changes that were set aside have the names that policy gave them then, maybe hashed where today's
        # are plain.
        self._identifiers = {str(each) for each in parsed} | {
            str(blind_index.identifier(each)) for each in parsed
        }
        self._kinds = {kind: rules.document.namespace(kind) for kind, _ in parsed}
        self._hashed_types = {kind for kind, value in parsed if value.startswith(HASHED_PREFIX)}
        self._plain: dict[str, set[str]] = defaultdict(set)
        for kind, value in parsed:
            self._plain[value].add(kind)

    def holds(self, identifier: str) -> bool:
        """Whether an identifier is one of them, hashed or not."""
        return (
            identifier in self._identifiers
            or str(self._blind_index.identifier(Identifier.parse(identifier))) in self._identifiers
        )

    def match(self, payload: bytes) -> tuple[str, bool] | None:
        """The reason why a record is theirs by a value in it, and whether that is certain."""
        guess = None
        for text, places in values(payload).items():
            for kind in sorted(self._types(text)):
                if _is_distinctive(text):
                    return f"a value is the {kind}", True
                if any(names(place, kind) for place in places):
                    return f"a value under a key that names it is the {kind}", True
                guess = f"a value that others may have is equal to the {kind}", False
            if guess is None and (within := self._within(text)):
                guess = f"a text has the {within} in it", False
        return guess

    def _types(self, text: str) -> set[str]:
        """The types of those that have this text as their value."""
        forms = {text, text.strip(), text.strip().lower()} - {""}
        found = {kind for form in forms for kind in self._plain.get(form, ())}
        for kind, rules in self._kinds.items():
            normal = normalise(text, rules)
            hashed = {*forms, normal} - {""} if kind in self._hashed_types else ()
            if kind in self._plain.get(normal, ()) or any(self.holds(f"{kind}:{form}") for form in hashed):
                found.add(kind)
        return found

    def _within(self, text: str) -> str | None:
        """The type of an identifier within a text that hardly any other value looks like."""
        parts = _WITHIN_TEXT.findall(text) if _is_distinctive(text) else ()
        for part in {each.strip(".?!") for each in parts} - {text}:
            if _is_distinctive(part) and (found := self._types(part)):
                return min(found)
        return None


def _is_distinctive(text: str) -> bool:
    """Whether hardly anything but an identifier has this value. Short numbers, short texts, dates and words
    stand in the records of anybody."""
    text = text.strip()
    digits = sum(map(str.isdigit, text))
    is_mixed = digits > 0 and any(map(str.isalpha, text)) and len(text) >= _DISTINCTIVE_CHARACTERS
    return "@" in text or digits >= _DISTINCTIVE_DIGITS or is_mixed or len(text) >= _LONG
