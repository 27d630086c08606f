"""Mistakes in the configuration, reported with their place and the nearest right key."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_origin

from pydantic import BaseModel, ValidationError

from idgraph.model.errors import ConfigError

_TABLE = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]")
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")


def line_of(text: str, keys: Sequence[str]) -> int | None:
    """The line, from 1, that sets the key or else opens the innermost table of its path; in a path the tables of an
    array are counted from 0, as in `sources.1.name`. None if not even its outermost table is there."""
    nearest, line = 0, None
    for number, path in _paths(text):
        common = _common(path, keys)
        # What continues otherwise than the path is another key; a table below it is as good as its own line.
        if common > nearest and common in (len(path), len(keys)):
            nearest, line = common, number
    return line


def _paths(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The lines that open a table or set a key, each with its whole path."""
    table: tuple[str, ...] = ()
    counted: Counter[tuple[str, ...]] = Counter()
    for number, content in enumerate(text.split("\n"), 1):
        if header := _TABLE.match(content):
            name = _parts(header[2])
            if header[1] == "[[":
                counted[name] += 1
            table = _numbered(name, counted)
            yield number, table
        elif key := _KEY.match(content):
            yield number, table + _parts(key[1])


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))


def _numbered(name: tuple[str, ...], counted: Counter[tuple[str, ...]]) -> tuple[str, ...]:
    """With the number of the last table of each array that it is in."""
    path: list[str] = []
    for end in range(1, len(name) + 1):
        path.append(name[end - 1])
        if count := counted[name[:end]]:
            path.append(str(count - 1))
    return tuple(path)


def _common(path: Sequence[str], keys: Sequence[str]) -> int:
    common = 0
    for one, other in zip(path, keys, strict=False):
        if one != other:
            break
        common += 1
    return common


PREFIX = "IDGRAPH_"

_OF_SERVICES = re.compile(r"(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_(TCP|UDP)(_\w+)?)?)$")
"""Ends of the variables that Kubernetes and Docker make of a service's name."""

KINDS = {"files": "FileSource", "kafka": "KafkaSource"}
"""Kinds of sources, and the models of their keys."""


class _Reported(NamedTuple):
    taken: tuple[type, ...]
    named: str


_REPORTED_AS = {
    bool: _Reported((bool,), "true or false"),
    int: _Reported((int,), "an integer"),
    float: _Reported((int, float), "a number"),
}


def variables(settings: type[BaseModel]) -> dict[str, Any]:
    """The settings of the environment, as the tables of a file: `IDGRAPH_METADATA__URL` is `url` of `metadata`. A table, a list or
    a map is JSON; a variable of its own for a key comes before the JSON of its table. Raises ConfigError for other text."""
    found: dict[str, Any] = {}
    # Shorter names first: tables before their keys.
    for name in sorted((each for each in os.environ if each.upper().startswith(PREFIX)), key=len):
        keys = name[len(PREFIX) :].lower().split("__")
        if keys[0] not in settings.model_fields:
            continue
        table = found
        for key in keys[:-1]:
            if not isinstance(inner := table.get(key), dict):
                inner = table[key] = {}
            table = inner
        table[keys[-1]] = _value(settings, keys, os.environ[name])
    return found


def _value(settings: type[BaseModel], keys: Sequence[str], text: str) -> Any:
    model: Any = settings
    for key in keys[:-1]:
        field = model.model_fields.get(key) if hasattr(model, "model_fields") else None
        model = field.annotation if field is not None else None
    field = model.model_fields.get(keys[-1]) if hasattr(model, "model_fields") else None
    kind = field.annotation if field is not None else None
    if not (hasattr(kind, "model_fields") or get_origin(kind) in (tuple, dict, list)):
        return text
    try:
        return json.loads(text)
    except ValueError:
        variable = PREFIX + "__".join(keys).upper()
        raise ConfigError(f"the environment, {variable}: {'.'.join(keys)}: not JSON") from None


def misspelt_variables(settings: type[BaseModel]) -> Iterator[str]:
    """Environment variables that look meant for us and set nothing. Others that begin like ours are left
    alone: container platforms make some of the names of services."""
    known = [PREFIX + name.upper() for name in _variables(settings)]
    for name in os.environ:
        if not name.upper().startswith(PREFIX) or name == "IDGRAPH_CONFIG":
            continue
        if "__" not in name and _OF_SERVICES.search(name):
            continue
        if name.upper().removeprefix(PREFIX).partition("__")[0].lower() in settings.model_fields:
            continue
        if near := difflib.get_close_matches(name.upper(), known, n=1, cutoff=0.8):
            yield f"the environment: {name} sets nothing; did you mean {near[0]}?"


def _variables(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield name
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from (f"{name}__{inner}" for inner in _variables(kind))


def explain(error: ValidationError, settings: type[BaseModel], file: Path, text: str) -> str:
    """Every problem on a line: the file and line, or the environment; the key; what is wrong. Never a value."""
    lines = []
    for problem in error.errors(include_url=False, include_input=False):
        keys = [str(key) for key in problem["loc"]]
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            near = difflib.get_close_matches(keys[-1], _keys_at(settings, keys[:-1]), n=1)
            message = "unknown key" + (f"; did you mean {near[0]!r}?" if near else "")
        keys = _as_written(keys)
        lines.append(": ".join(filter(None, (place(file, text, keys), ".".join(keys), message))))
    return "\n".join(lines)


def mistyped(
    content: Mapping[str, Any], settings: BaseModel, keys: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Values of a wrong type in the file: pydantic takes "3" and true for numbers, as it must of
    variables, which are text. Gives keys and what was expected."""
    for key, reported in content.items():
        value = getattr(settings, key, None)
        inner = (*keys, key)
        if isinstance(value, BaseModel) and isinstance(reported, Mapping):
            yield from mistyped(reported, value, inner)
        elif isinstance(value, tuple) and isinstance(reported, list) and len(reported) == len(value):
            for number, (part, made) in enumerate(zip(reported, value, strict=True)):
                if isinstance(made, BaseModel) and isinstance(part, Mapping):
                    yield from mistyped(part, made, (*inner, str(number)))
        elif (kinds := _REPORTED_AS.get(type(value))) and type(reported) not in kinds.taken:
            yield inner, kinds.named


def wrong_kind(file: Path, text: str, keys: Sequence[str], expected: str) -> str:
    """The message for a finding of `mistyped`, which is always in the file."""
    line = line_of(text, keys)
    return f"{file}{f', line {line}' if line else ''}: {'.'.join(keys)}: expected {expected}"


def place(file: Path, text: str, keys: Sequence[str]) -> str:
    """Where a key is set, if known: a variable comes before the file."""
    for end in range(len(keys), 0, -1):
        name = PREFIX + "__".join(keys[:end]).upper()
        if any(each.upper() == name and _sets(value, keys[end:]) for each, value in os.environ.items()):
            return f"the environment, {name}"
    line = line_of(text, keys)
    return f"{file}, line {line}" if line else f"{file} or the environment"


def _sets(value: str, keys: Sequence[str]) -> bool:
    """Whether a variable says something of a key within it. Of what its tables leave out the file does; lists and what is
    no JSON are the variable's alone."""
    try:
        inner = json.loads(value) if keys else None
    except ValueError:
        return True
    for key in keys:
        if not isinstance(inner, dict):
            return True
        if key not in inner:
            return False
        inner = inner[key]
    return True


def _as_written(keys: list[str]) -> list[str]:
    """Without the kind of a source, which pydantic puts after its number."""
    return [
        key for number, key in enumerate(keys) if not (key in KINDS and number and keys[number - 1].isdigit())
    ]


def _keys_at(settings: type[BaseModel], keys: list[str]) -> list[str]:
    models: list[Any] = [settings]
    for key in keys:
        if key.isdigit():
            continue
        if of_kind := [model for model in models if model.__name__ == KINDS.get(key)]:
            models = of_kind
            continue
        fields = [model.model_fields[key] for model in models if key in model.model_fields]
        models = [inner for field in fields for inner in _models_in(field.annotation)]
    return [name for model in models for name in model.model_fields]


def _models_in(annotation: Any) -> Iterator[Any]:
    if hasattr(annotation, "model_fields"):
        yield annotation
    for part in getattr(annotation, "__args__", ()):
        yield from _models_in(part)
