"""Identity rules, and data to try them on: identity events, pins, or a source's records with their mapping
spec."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from idgraph.app.payload_lines import PayloadLine, read_payloads
from idgraph.model import canonical
from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import EventError, TransformError
from idgraph.model.events import Event, RawRecord
from idgraph.model.identity_events import IdentityEvent, PinDocument, Simulated
from idgraph.model.identity_rules import IdentityRules
from idgraph.model.sources import FileSource
from idgraph.model.specs import SpecDocument
from ingestion.stages.decode import EnvelopeReader
from merge.identity.evidence import SeenEvent
from merge.identity.rules import Rules
from merge.identity.simulation import seen_event, seen_events
from metadata_service.documents.problems import JsonFile, Problem, model_problems
from metadata_service.documents.reading import read_definition
from metadata_service.identity_rules import find_problems
from transforms.spec.mapping import MappedPayload, MappingSpec


class Trial(NamedTuple):
    """The data that rules are tried on. `mistakes` are lines that could not be read, in words."""

    events: list[SeenEvent]
    pins: list[PinDocument]
    mistakes: list[str]


def read_rules(file: Path) -> IdentityRules:
    """The rules of a file (`-`: standard input), checked as the metadata service does. Raises DocumentError, ConfigError."""
    document = JsonFile(file)
    rules = validated(IdentityRules, document)
    problems = find_problems(rules)
    if problems:
        raise document.refuse(problems)
    return rules


def read_case(file: Path) -> tuple[Simulated, list[Problem]]:
    """Rules, events and pins of one document, or rules alone, with what the metadata service would refuse. Raises
    DocumentError, ConfigError."""
    document = JsonFile(file)
    content = document.content
    if isinstance(content, dict) and {"rules", "events"} & content.keys():
        case, place = validated(Simulated, document), "/rules"
    else:
        case, place = Simulated(rules=validated(IdentityRules, document), events=()), ""
    return case, [document.locate(each.under(place)) for each in find_problems(case.rules)]


Model = TypeVar("Model", bound=BaseModel)


def validated(model: type[Model], document: JsonFile) -> Model:
    try:
        return model.model_validate(document.content)
    except ValidationError as error:
        raise document.refuse(model_problems(error, document.content, model)) from None


def read_events(rules: Rules, file: Path | None) -> Trial:
    """Identity events and pins, one a line, of a file or of standard input."""
    events: list[IdentityEvent] = []
    pins: list[PinDocument] = []
    mistakes: list[str] = []
    for line in read_payloads(file, only_objects=True):
        if line.mistake is not None:
            mistakes.append(f"line {line.number}: {line.mistake}")
            continue
        try:
            if "pair" in line.value:
                pins.append(PinDocument.model_validate(line.value))
            else:
                events.append(IdentityEvent.model_validate(line.value))
        except ValidationError as error:
            model: type[BaseModel] = PinDocument if "pair" in line.value else IdentityEvent
            mistakes += [
                f"line {line.number}: {each.pointer}{': ' if each.pointer else ''}{each.message}"
                for each in model_problems(error, line.value, model)
            ]
    return Trial(seen_events(rules, events), pins, mistakes)


def read_records(rules: Rules, file: Path | None, spec: Path, source: FileSource | None) -> Trial:
    """The identity events that a spec makes of a source's records, one a line. Without the source's
    configuration a line is a payload, whose number stands in for an id and an ordinal."""
    definition = read_definition(spec)
    mapper = _RecordMapper(SpecDocument(**dict(definition), version=1, created=datetime.now(UTC)), source)
    found: dict[tuple[str, str], SeenEvent] = {}
    retracted: set[tuple[str, str]] = set()
    mistakes: list[str] = []
    for line in read_payloads(file, only_objects=True):
        try:
            mapped = mapper.mapped(line)
            taken_back = mapper.retracted(mapped)
        except (EventError, TransformError) as error:
            mistakes.append(f"line {line.number}: {error.message}")
            continue
        if mapped is None:
            continue
        if taken_back:
            retracted.add((mapped.stamp.source, taken_back))
        else:
            event = seen_event(rules, mapped.stamp, mapped.identifiers, mapper.document)
            found.setdefault((mapped.stamp.source, mapped.stamp.event_id), event)
    return Trial([event for key, event in found.items() if key not in retracted], [], mistakes)


class _RecordMapper:
    """Maps the records of a source, or payloads without one, by one spec."""

    def __init__(self, document: SpecDocument, source: FileSource | None) -> None:
        self.document = document
        self._spec = MappingSpec(document)
        self._source = document.source if source is None else source.name
        self._reader = None if source is None else EnvelopeReader(source)

    def mapped(self, line: PayloadLine) -> MappedPayload | None:
        """Raises EventError, TransformError."""
        if line.mistake is not None:
            raise EventError(DeadLetterReason.NOT_JSON, line.mistake)
        position = f"line {line.number}"
        if self._reader is None:
            return self._spec.map(
                Event(self._source, "", str(line.number), line.number, position, line.value, b"")
            )
        content = canonical.encode_ordered(line.value)
        return self._spec.map(self._reader.read(RawRecord(self._source, position, content)))

    def retracted(self, mapped: MappedPayload | None) -> str | None:
        """The id of the event that it takes back, if it does. Raises EventError."""
        return None if mapped is None else self._spec.retracted(mapped.output)
