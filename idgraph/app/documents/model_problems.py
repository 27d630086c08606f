"""What pydantic finds wrong in a document that a person wrote, in that person's words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from idgraph.model.errors import SpecError
from idgraph.model.specs import IDENTIFIER_TYPE_PATTERN, NAME_PATTERN
from transforms.spec.pointers import found, nearest, pointer

_PATTERNS = {
    NAME_PATTERN: "1 to 100 letters, digits, '_', '.' or '-', the first a letter or digit",
    IDENTIFIER_TYPE_PATTERN: "1 to 64 letters, digits or '_', the first a letter",
}
_EXPECTED = {
    "string_type": "text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_parsing_size": "an integer of fewer digits",
    "int_from_float": "an integer",
    "list_type": "an array",
    "tuple_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "string_too_short": "text that is not empty",
    "string_too_long": "at most {max_length} characters",
    "enum": "{expected}",
    "literal_error": "{expected}",
}


def model_problems(error: ValidationError, content: Any, model: type[BaseModel]) -> Iterator[SpecError]:
    """One SpecError for each place that is wrong, its pointer seen from `content`."""
    reported: set[tuple[str, str]] = set()
    for wrong in error.errors(include_url=False):
        problem = _problem(wrong, content, model)
        # A union complains once for each of its members.
        if problem is not None and (problem.pointer, problem.message) not in reported:
            reported.add((problem.pointer, problem.message))
            yield problem


def _problem(wrong: Mapping[str, Any], content: Any, model: type[BaseModel]) -> SpecError | None:
    keys, context = _keys(wrong["loc"], content), wrong.get("ctx", {})
    place = pointer(*keys)
    kind = wrong["type"]
    if kind == "missing":
        return SpecError(f"the key '{wrong['loc'][-1]}' is missing", place)
    if kind == "extra_forbidden":
        absent = [field for field in _fields(model, keys) if field not in _value_at(content, keys[:-1])]
        return SpecError(f"there is no key '{keys[-1]}' here", place, nearest(str(keys[-1]), absent))
    if kind == "value_error":
        message = str(wrong["msg"]).removeprefix("Value error, ")
        return SpecError(message, place or _rule_place(message, content))
    if kind == "too_short":
        if len(wrong["input"]) >= context["min_length"]:
            return None  # The elements are wrong, which is reported by itself.
        return SpecError(f"expected at least {context['min_length']}, found {found(wrong['input'])}", place)
    return SpecError(f"expected {_expected(wrong, keys)}, found {found(wrong['input'])}", place, _near(wrong))


def _rule_place(message: str, content: Any) -> str:
    """Where a rule of the whole document was broken."""
    for word, key in (("identifier", "identifiers"), ("scope", "scope")):
        if word in message and _value_at(content, [key]) is not None:
            return pointer(key)
    return ""


def _expected(wrong: Mapping[str, Any], keys: list[str | int]) -> str:
    if keys == ["operations"]:
        return "an array of operations, or one operation"
    context = wrong.get("ctx", {})
    if wrong["type"] == "string_pattern_mismatch":
        return _PATTERNS.get(context["pattern"], f"text that matches {context['pattern']}")
    if wrong["type"] in _EXPECTED:
        return _EXPECTED[wrong["type"]].format(**context)
    return re.sub(r"^.* should (be |have )?", "", str(wrong["msg"]))


def _near(wrong: Mapping[str, Any]) -> str | None:
    if wrong["type"] not in ("enum", "literal_error") or not isinstance(wrong["input"], str):
        return None
    return nearest(wrong["input"], re.findall(r"'([^']*)'", wrong["ctx"]["expected"]))


def _fields(model: type[BaseModel], keys: list[str | int]) -> Iterator[str]:
    """The fields of the (one level of) model that holds the last of `keys`."""
    if len(keys) == 1:
        yield from model.model_fields
        return
    for argument in getattr(model.model_fields[str(keys[0])].annotation, "__args__", ()):
        if isinstance(argument, type) and issubclass(argument, BaseModel):
            yield from argument.model_fields


def _keys(location: tuple[str | int, ...], content: Any) -> list[str | int]:
    """A location without the names of union members and of what is missing: those are not in the content."""
    keys: list[str | int] = []
    for key in location:
        below = _value_at(content, [key])
        if below is not None or (isinstance(content, dict) and key in content):
            keys.append(key)
            content = below
    return keys


def _value_at(content: Any, keys: list[str | int]) -> Any:
    for key in keys:
        if isinstance(content, dict):
            content = content.get(key)
        elif isinstance(content, list) and isinstance(key, int) and key < len(content):
            content = content[key]
        else:
            return None
    return content
