"""A compiled mapping spec, which maps an event to the unified schema; and a snapshot with all specs and attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from idgraph import native
from idgraph.model import events as kinds
from idgraph.model import paths
from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import EventError, SpecError, TransformError
from idgraph.model.events import Event
from idgraph.model.identifiers import Identifier
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.specs import SpecDocument
from idgraph.model.stamps import SpecRef, Stamp, read_ordinal
from transforms.privacy.protected_names import ProtectedNames
from transforms.schema.data_types import MAX_INTEGER_BITS, is_text
from transforms.schema.diff import AttributeTree
from transforms.schema.value_keys import ValueKeys
from transforms.spec.chain import Transform
from transforms.spec.compiler import compile_errors, compile_spec
from transforms.spec.input_fields import InputFields

MAX_IDENTIFIER_LENGTH = 1024
MAX_EVENT_ID_LENGTH = 1024
MOST_NATIVE_PLACES = 16


class MappedPayload(NamedTuple):
    """An event in the unified schema. `identifiers` holds the one that names the fragment first."""

    stamp: Stamp
    identifiers: tuple[Identifier, ...]
    output: dict[str, Any]


class MappingSpec:
    """One version of a mapping spec, compiled. Immutable, safe for several threads."""

    def __init__(self, document: SpecDocument, alike: MappingSpec | None = None) -> None:
        """`alike` is one with the same operations, which are not compiled again then. Raises SpecError when they do
        not compile."""
        self.document = document
        self.ref = document.ref
        self.scope = document.scope if document.mode == "snapshot" else None
        self._transform: Transform = alike._transform if alike else compile_spec(document.operations)
        self._errors: Callable[..., list[TransformError]] | None = None
        self._value_keys = ValueKeys(document.operations)
        self._id = paths.split(document.id) if document.id else None
        self._ordinal = paths.split(document.ordinal) if document.ordinal else None
        self._retracts = paths.split(document.retracts) if document.retracts else None
        primary = next(place for place in document.identifiers if place.primary)
        others = [place for place in document.identifiers if not place.primary]
        self.naming = frozenset(
            place.type for place in document.identifiers if place.primary or place.fallback
        )
        """Types of identifiers that can name a fragment."""
        self._places = [
            (
                place.type,
                paths.split(place.path),
                place.primary or place.fallback,
                f"the identifier {place.type}",
            )
            for place in (primary, *others)
        ]
        self.map: Callable[[Event], MappedPayload | None] = self._native_mapper() or self._map
        """None when the spec maps the payload to nothing. Raises TransformError, or EventError with the
        reason when the mapped output has no usable id, ordinal or identifier."""

    def _native_mapper(self) -> Callable[[Event], MappedPayload | None] | None:
        if native.events is None or len(self._places) > MOST_NATIVE_PLACES:
            return None
        return native.events.mapper(
            self._id,
            self._ordinal,
            tuple(place[:3] for place in self._places),
            self._transform,
            self.document.priority,
            MappedPayload,
            Stamp,
            Identifier,
            read_ordinal,
            self._mapped,
        )

    def _map(self, event: Event) -> MappedPayload | None:
        # Reference of `mapper` in native/events.c, which gives `_mapped` what is not of the common form.
        output = self._transform(event.payload, event.context())
        return None if output is None else self._mapped(event, output)

    def _mapped(self, event: Event, output: Any) -> MappedPayload:
        if type(output) is not dict:
            raise EventError(DeadLetterReason.TRANSFORM_FAILED, "the spec's output is not an object")
        stamp = Stamp(
            self.document.priority,
            self._read_ordinal(event, output),
            event.source,
            self._read_id(event, output),
        )
        return MappedPayload(stamp, self._read_identifiers(output), output)

    def transformed(self, payload: Any, context: Mapping[str, Any]) -> Any:
        """The output of the operations for a payload; None for nothing. Raises TransformError."""
        return self._transform(payload, context)

    def refused(self, event: Event, error: TransformError) -> TransformError:
        """The error with which the operations refuse an event, with all others that the event has there."""
        if self._errors is None:
            self._errors = compile_errors(self.document.operations)
        found = [each.message for each in self._errors(event.payload, event.context())]
        return TransformError("; ".join(found), error.pointer) if len(found) > 1 else error

    def is_value_of(self, event: Event) -> Callable[[str], bool]:
        """Whether a key of what an event was mapped to was made of one of its values."""
        return self._value_keys.made_of(event.payload, event.context())

    def is_value_in(self, event: Event) -> Callable[[str], bool]:
        """Whether a key of an event is made of one of its values."""
        return self._value_keys.found_in(event.payload)

    def identifiers_in(self, event: Event) -> list[Identifier]:
        """The identifiers that stand at the spec's places, whatever else of the event cannot be used. Raises
        TransformError."""
        output = self._transform(event.payload, event.context())
        if type(output) is not dict:
            return []
        found: list[Identifier] = []
        for kind, keys, _, what in self._places:
            value = paths.value_at(output, keys)
            for element in value if type(value) is list else (value,):
                with suppress(EventError):
                    found.append(Identifier(kind, _text(element, what, MAX_IDENTIFIER_LENGTH)))
        return found

    def retracted(self, output: dict[str, Any]) -> str | None:
        """The id of the event that an event takes back, by what it was mapped to; empty for none, and None where the spec
        cannot say. Raises EventError."""
        if self._retracts is None:
            return None
        value = paths.value_at(output, self._retracts)
        if value is None or (type(value) is str and (not value or value.isspace())):
            return ""
        return _text(value, "the id of the event to take back", MAX_EVENT_ID_LENGTH)

    def _read_id(self, event: Event, output: dict[str, Any]) -> str:
        value = paths.value_at(output, self._id) if self._id else event.id
        if value is None:
            raise EventError(
                DeadLetterReason.MISSING_ID, "neither the mapped output nor the envelope has an id"
            )
        return _text(value, "the event id", MAX_EVENT_ID_LENGTH)

    def _read_ordinal(self, event: Event, output: dict[str, Any]) -> int:
        value = paths.value_at(output, self._ordinal) if self._ordinal else event.ordinal
        if value is None:
            raise EventError(
                DeadLetterReason.MISSING_ORDINAL, "neither the mapped output nor the envelope has an ordinal"
            )
        return read_ordinal(value)

    def _read_identifiers(self, output: dict[str, Any]) -> tuple[Identifier, ...]:
        name: Identifier | None = None
        found: list[Identifier] = []
        for kind, keys, may_name, what in self._places:
            value = paths.value_at(output, keys)
            for element in value if type(value) is list else (value,):
                # A name of white space is the same for everybody who has none.
                if element is None or (type(element) is str and (not element or element.isspace())):
                    continue
                identifier = Identifier(kind, _text(element, what, MAX_IDENTIFIER_LENGTH))
                if name is None and may_name:
                    name = identifier
                elif identifier not in found:
                    found.append(identifier)
        if name is None:
            wanted = ", ".join(kind for kind, _, may_name, _ in self._places if may_name)
            message = f"the mapped output has none of: {wanted}"
            if self._retracts is not None and paths.value_at(output, self._retracts) is not None:
                message += "; an event that takes another back has the same primary identifier as that one"
            raise EventError(DeadLetterReason.MISSING_IDENTIFIER, message)
        return (name, *[identifier for identifier in found if identifier != name]) if found else (name,)


def _text(value: Any, what: str, limit: int) -> str:
    is_short_integer = type(value) is int and value.bit_length() <= MAX_INTEGER_BITS
    text = value if type(value) is str else str(value) if is_short_integer else None
    if not text:
        actual = "empty text" if text == "" else f"{kinds.kind(value)}, not text or a short integer"
        raise EventError(DeadLetterReason.WRONG_TYPE, f"{what} is {actual}")
    if len(text) > limit or not is_text(text):
        raise EventError(
            DeadLetterReason.WRONG_TYPE, f"{what} is longer than {limit} characters or not valid Unicode"
        )
    return text


MAX_CACHED_ROUTES = 10_000


class CompiledSnapshot:
    """Specs compiled when first needed and kept; attributes as a tree. One per thread.

    Specs that did not change since `previous` keep their compiled form.
    """

    def __init__(self, snapshot: MetadataSnapshot, previous: CompiledSnapshot | None = None) -> None:
        self.snapshot = snapshot
        self.version = snapshot.version
        self.attributes = AttributeTree(snapshot)
        self.protected_names = ProtectedNames(snapshot)
        self._specs: dict[SpecRef, MappingSpec | SpecError] = {}
        self._by_operations: dict[str, MappingSpec] = {}
        self._routes: dict[tuple[str, str], MappingSpec | SpecError | None] = {}
        self.input_fields: WeakKeyDictionary[MappingSpec, InputFields] = WeakKeyDictionary()
        """The fields that each spec reads."""
        if previous is not None:
            self._keep_specs(previous)

    def _keep_specs(self, previous: CompiledSnapshot) -> None:
        current = {spec.ref for spec in self.snapshot.specs}
        # Also of those that are gone: most edits leave the operations as they are.
        made = set(previous._specs.values())
        self._by_operations = {text: spec for text, spec in previous._by_operations.items() if spec in made}
        self._specs = {ref: spec for ref, spec in previous._specs.items() if ref in current}
        self._routes = {}

    def spec_for(self, source: str, event_type: str) -> MappingSpec | None:
        """The spec for events of a source and type, if any. Raises SpecError if it does not compile:
        the service refuses such specs, but one from an older idgraph must hurt only its own events."""
        route = (source, event_type)
        if route in self._routes:
            found = self._routes[route]
        else:
            document = self.snapshot.spec_for(source, event_type)
            found = self._compile(document) if document else None
            if len(self._routes) < MAX_CACHED_ROUTES:
                self._routes[route] = found
        if isinstance(found, SpecError):
            raise found
        return found

    def _compile(self, document: SpecDocument) -> MappingSpec | SpecError:
        known = self._specs.get(document.ref)
        if known is None or (isinstance(known, MappingSpec) and known.document != document):
            operations = _operations(document)
            try:
                known = MappingSpec(document, self._by_operations.get(operations))
                self._by_operations[operations] = known
            except SpecError as error:
                known = error
            self._specs[document.ref] = known
        return known


def _operations(document: SpecDocument) -> str:
    # Unlike equality this reports 1 from True, and the order of keys, by which Jolt works.
    return repr(document.operations)
