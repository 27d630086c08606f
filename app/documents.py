"""Documents that people write: mapping specs and attribute definitions, read from files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from model import canonical
from model.attributes import AttributeDefinition
from model.errors import ConfigError, IdgraphError, SpecError
from model.specs import SpecDefinition


def read_operations(file: Path) -> Any:
    """The operations of a spec file, which holds a document (checked whole) or operations only.

    Raises SpecError, and ConfigError for a file that cannot be read.
    """
    content = _read(file)
    if isinstance(content, dict) and "operations" in content:
        return _definition(content).operations
    return content


def read_definition(file: Path) -> SpecDefinition:
    """The spec document of a file.

    Raises SpecError with the pointer of the first field that is wrong, and ConfigError for a file that
    cannot be read.
    """
    return _definition(_read(file))


def read_attributes(file: Path) -> list[AttributeDefinition]:
    """The definitions of a file that holds one or a list. Raises IdgraphError with the file and place."""
    try:
        content = _read(file)
    except SpecError as error:
        raise IdgraphError(f"{file}: {error.message}") from None
    definitions = []
    for number, item in enumerate(content if isinstance(content, list) else [content]):
        try:
            definitions.append(AttributeDefinition.model_validate(item))
        except ValidationError as error:
            message, pointer = _first(error)
            raise IdgraphError(f"{file}: /{number}{pointer}: {message}") from None
    return definitions


def _definition(content: Any) -> SpecDefinition:
    try:
        return SpecDefinition.model_validate(content)
    except ValidationError as error:
        raise SpecError(*_first(error)) from None


def _first(error: ValidationError) -> tuple[str, str]:
    first = error.errors(include_url=False, include_input=False)[0]
    return first["msg"], "".join(f"/{part}" for part in first["loc"])


def _read(file: Path) -> Any:
    try:
        return canonical.decode(file.read_bytes())
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None
    except canonical.MalformedJSON as error:
        raise SpecError(f"not JSON: {error}") from None
