"""Documents that people write: mapping specs and attribute definitions, read from files.

All of it raises DocumentError with the places of what is wrong, and ConfigError for a file that cannot be
read.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from idgraph.model.attributes import AttributeDefinition
from idgraph.model.behaviour import DerivedDefinition
from idgraph.model.classification import ClassificationLevels
from idgraph.model.errors import SpecError
from idgraph.model.identity_rules import DEFAULT_RULES
from idgraph.model.paths import join, split
from idgraph.model.snapshots import pattern_matches
from idgraph.model.specs import SpecDefinition
from idgraph.web.refusals import RefusedRequestError
from metadata_service.attributes.rules import check_attribute
from metadata_service.documents.problems import DocumentError, JsonFile, Problem, model_problems
from metadata_service.specs.cases import failing_cases
from metadata_service.specs.rules import check_derived_paths, check_spec


class SpecOperations(NamedTuple):
    """The operations of a spec file, and the pointer at which they stand in it."""

    operations: Any
    place: str
    definition: SpecDefinition | None = None
    """The document, if the file is one: what it maps are events, and those are objects."""
    warnings: tuple[Problem, ...] = ()


def check_document(
    document: JsonFile, sources: frozenset[str] = frozenset(), derived: Iterable[DerivedDefinition] = ()
) -> tuple[Problem, ...]:
    """Read a spec or attribute definitions, whichever the file holds; gives the warnings. Definitions are checked by
    the classification levels that a metadata service begins with: it may have others. A spec is compared with the names
    of `sources`, if there are any, and with the paths of `derived` attributes."""
    if not _holds_attributes(document.content):
        found = _read_operations(document)
        if found.definition is None:
            return found.warnings
        warnings = (*map(document.locate, unknown_source(found.definition.source, sources)), *found.warnings)
        try:
            check_derived_paths(found.definition, derived)
        except SpecError as error:
            raise document.refuse([error], warnings) from None
        if failing := failing_cases(found.definition):
            raise document.refuse(failing, warnings)
        return warnings
    problems: list[SpecError] = []
    levels = ClassificationLevels()
    placed = _read_attributes(document)
    for definition, _, place in placed:
        try:
            unstated = levels.unstated(definition, definition.classification)
            check_attribute(definition.model_copy(update=unstated))
        except RefusedRequestError as error:
            problems.append(SpecError(error.message, f"{place}{error.pointer}", error.hint))
    warnings = tuple(warning for each in placed for warning in each.warnings())
    if problems:
        raise document.refuse(problems, warnings)
    return warnings


def read_operations(file: Path) -> SpecOperations:
    """The operations of a spec file, which holds a document (checked whole) or operations only."""
    return _read_operations(JsonFile(file))


def _read_operations(spec: JsonFile) -> SpecOperations:
    if _is_document(spec.content):
        definition = _definition(spec)
        warnings = tuple(map(spec.locate, likely_mistakes(definition)))
        return SpecOperations(definition.operations, "/operations", definition, warnings)
    place = "/operations" if _holds_operations_only(spec.content) else ""
    return SpecOperations(_operations(spec, place), place)


def read_definition(file: Path) -> SpecDefinition:
    """The spec document of a file."""
    return _definition(JsonFile(file))


def read_definition_text(text: str) -> tuple[SpecDefinition, list[Problem]]:
    """The spec document that a text holds, with warnings. Raises DocumentError."""
    document = JsonFile.of_text(text)
    definition = _definition(document)
    return definition, [document.locate(each) for each in likely_mistakes(definition)]


def unknown_source(source: str, sources: frozenset[str]) -> list[SpecError]:
    """Whether the source that a spec names is none of these: it then maps nothing. Empty where no source is known."""
    from idgraph.model.text import name_hint

    if not sources or any(pattern_matches(source, each) for each in sources):
        return []
    return [SpecError(f"no source is called '{source}'", "/source", name_hint(source, sorted(sources)))]


def locate_in(file: Path, problems: Iterable[SpecError]) -> list[Problem]:
    """The places of these in a file that is known to be JSON."""
    document = JsonFile(file)
    return [document.locate(problem) for problem in problems]


class PlacedAttribute(NamedTuple):
    """A definition, and the pointer at which it stands in its file."""

    definition: AttributeDefinition
    file: JsonFile
    place: str

    def warnings(self) -> list[Problem]:
        """Likely mistakes: a path is the keys of a profile as they are, and no pattern."""
        keys = split(self.definition.path)
        faults: list[tuple[str, str | None]] = []
        if "*" in keys:
            above = join(keys[: keys.index("*")])
            hint = f"protection of '{above}' reaches all below it" if above else None
            faults.append(("'*' stands for a key of this name, not for any", hint))
        if any(key != key.strip() for key in keys):
            faults.append(("a key begins or ends with white space", None))
        if "" in keys and len(keys) > 1:
            faults.append(("a key is empty", "one dot stands between two keys"))
        return [self.file.locate(SpecError(message, f"{self.place}/path", hint)) for message, hint in faults]

    def refused(self, problem: SpecError) -> DocumentError:
        """The service's error in the definition, with its place in the file."""
        return self.file.refuse([problem.under(self.place)])


def read_attributes(file: Path) -> list[PlacedAttribute]:
    """The definitions of a file that holds one or a list."""
    return _read_attributes(JsonFile(file))


def _read_attributes(document: JsonFile) -> list[PlacedAttribute]:
    listed = isinstance(document.content, list)
    definitions: list[PlacedAttribute] = []
    problems: list[SpecError] = []
    first: dict[str, str] = {}
    for number, item in enumerate(document.content if listed else [document.content]):
        place = f"/{number}" if listed else ""
        try:
            definition = AttributeDefinition.model_validate(item)
            definitions.append(PlacedAttribute(definition, document, place))
            if (other := first.setdefault(definition.path, place)) != place:
                problems.append(
                    SpecError(f"{definition.path} is defined at {other} already", f"{place}/path")
                )
        except ValidationError as error:
            found = model_problems(error, item, AttributeDefinition)
            problems += [problem.under(place) for problem in found]
    if problems:
        raise document.refuse(problems)
    return definitions


def refused_by_service(file: Path, error: SpecError) -> DocumentError:
    """The service's error in the document of a file, with its place there."""
    return JsonFile(file).refuse([error])


def likely_mistakes(definition: SpecDefinition) -> list[SpecError]:
    """Paths of a document at which no operation puts a value: an event may bring more than the spec reports. A primary
    identifier by which events of several persons make one fragment, by the rules that an installation begins with."""
    from idgraph.model.text import name_hint
    from transforms.spec.output_tree import can_produce, leaves, output_tree

    tree = output_tree(definition.operations)
    places = [("/id", definition.id), ("/ordinal", definition.ordinal), ("/retracts", definition.retracts)]
    places += [(f"/identifiers/{n}/path", place.path) for n, place in enumerate(definition.identifiers)]
    return [
        SpecError(f"no operation puts a value at '{path}'", place, name_hint(path, leaves(tree)))
        for place, path in places
        if path is not None and not can_produce(tree, path)
    ] + _shared_primary(definition)


def _shared_primary(definition: SpecDefinition) -> list[SpecError]:
    largest = [DEFAULT_RULES.namespace(each.type).largest for each in definition.identifiers]
    number, primary = next((n, each) for n, each in enumerate(definition.identifiers) if each.primary)
    if largest[number] == 1 or 1 not in largest:
        return []
    own = definition.identifiers[largest.index(1)].type
    message = f"several persons with one {primary.type} share a fragment, and see each other's values"
    return [
        SpecError(message, f"/identifiers/{number}", f"make {own} primary, and {primary.type} a fallback")
    ]


def _holds_attributes(content: Any) -> bool:
    """Whether these look like definitions of attributes: a spec is no list of objects with paths, and has operations."""
    items = content if isinstance(content, list) else [content]
    return bool(items) and all(
        isinstance(item, dict) and "path" in item and not {"operation", "operations"} & item.keys()
        for item in items
    )


def _is_document(content: Any) -> bool:
    if not isinstance(content, dict) or "operation" in content:
        return False
    fields = SpecDefinition.model_fields.keys() & content.keys()
    return bool(fields) and not _holds_operations_only(content)


def _holds_operations_only(content: Any) -> bool:
    """Whether it is an example as the documentation has them: operations, and perhaps an input and an output."""
    return (
        isinstance(content, dict)
        and isinstance(content.get("operations"), list | dict)
        and SpecDefinition.model_fields.keys() & content.keys() == {"operations"}
    )


def _operations(spec: JsonFile, place: str) -> Any:
    from transforms.spec.compiler import find_problems

    operations = spec.content["operations"] if place else spec.content
    problems = [problem.under(place) for problem in find_problems(operations)]
    if problems:
        raise spec.refuse(problems)
    return operations


def _definition(spec: JsonFile) -> SpecDefinition:
    from transforms.spec.compiler import find_problems

    content = spec.content
    problems: list[SpecError] = []
    if isinstance(content, list):
        hint = "put it under `operations`, see docs/from-jolt.md"
        raise spec.refuse([SpecError("expected an object, found an array", hint=hint)])
    if isinstance(content, dict) and isinstance(content.get("operations"), list | dict):
        problems = [problem.under("/operations") for problem in find_problems(content["operations"])]
    try:
        definition = SpecDefinition.model_validate(content)
    except ValidationError as error:
        problems += model_problems(error, content, SpecDefinition)
        raise spec.refuse(problems) from None
    if not problems:
        try:
            check_spec(definition, lambda _operations: None)
        except SpecError as error:
            problems.append(error)
    if problems:
        raise spec.refuse(problems, map(spec.locate, _mistakes_beside(definition)))
    return definition


def _mistakes_beside(definition: SpecDefinition) -> list[SpecError]:
    """`likely_mistakes` of a document with mistakes; none where a mistake hides which paths there are."""
    try:
        return likely_mistakes(definition)
    except Exception:  # of whatever kind: the operations are wrong
        return []
