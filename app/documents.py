"""Documents that people write: mapping specs and attribute definitions, read from files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from model import canonical
from model.attributes import AttributeDefinition
from model.errors import MetadataError, SpecError
from model.specs import SpecDefinition


def read_operations(file: Path) -> Any:
    """The operations of a spec file, which holds a document (checked whole) or operations only.

    Raises SpecError.
    """
    content = read_json(file)
    if isinstance(content, dict) and "operations" in content:
        return read_definition(content).operations
    return content


def read_definition(content: Any) -> SpecDefinition:
    """A spec document. Raises SpecError with the pointer of the first field that is wrong."""
    try:
        return SpecDefinition.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        pointer = "".join(f"/{part}" for part in first["loc"])
        raise SpecError(first["msg"], pointer) from None


def read_json(file: Path) -> Any:
    """A JSON file. Raises SpecError that names it."""
    try:
        return canonical.decode(file.read_bytes())
    except OSError as error:
        raise SpecError(f"{file}: {error.strerror}") from None
    except canonical.MalformedJSON as error:
        raise SpecError(f"{file} is not JSON: {error}") from None


def read_attributes(file: Path) -> list[AttributeDefinition]:
    """The definitions of a file that holds one or a list. Raises MetadataError with the place."""
    content = read_json(file)
    definitions = []
    for number, item in enumerate(content if isinstance(content, list) else [content]):
        try:
            definitions.append(AttributeDefinition.model_validate(item))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = "/".join(str(part) for part in (number, *first["loc"]))
            raise MetadataError(f"{file}: /{place}: {first['msg']}") from None
    return definitions
