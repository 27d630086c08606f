"""Mistakes in the configuration, reported with their place and the nearest right key."""

from __future__ import annotations

import json
import os
import re
import tomllib
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError

from idgraph.model.errors import ConfigError
from idgraph.model.text import nearest


def depth(content: Any, keys: Sequence[str]) -> int:
    """The number of keys of a path that are there; elements of arrays are counted from 0, as in
    `sources.1.name`."""
    for number, key in enumerate(keys):
        if isinstance(content, list) and key.isdigit() and int(key) < len(content):
            content = content[int(key)]
        elif isinstance(content, dict) and key in content:
            content = content[key]
        else:
            return number
    return len(keys)


def line_of(text: str, keys: Sequence[str]) -> int | None:
    """The line, from 1, with which a file has as much of a path as it ever has. None if it has not even its outermost
    table."""
    lines = text.split("\n")
    wanted = depth(tomllib.loads(text), keys)
    if not wanted:
        return None

    def begun(least: int) -> tuple[int, int]:
        """The first line from `least` on that ends no part of a value of several lines, and the depth up to it."""
        for end in range(least, len(lines)):
            with suppress(tomllib.TOMLDecodeError):
                return end, depth(tomllib.loads("\n".join(lines[:end])), keys)
        return len(lines), wanted

    first = bisect_left(range(1, len(lines)), wanted, key=lambda end: begun(end)[1]) + 1
    return begun(first)[0]


PREFIX = "IDGRAPH_"

_OF_SERVICES = re.compile(r"(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_(TCP|UDP)(_\w+)?)?)$")
"""Ends of the variables that Kubernetes and Docker make of a service's name."""

KINDS = {"files": "FileSource", "kafka": "KafkaSource", "pulsar": "PulsarSource"}
"""Kinds of sources, and the models of their keys."""


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
        try:
            os.environ[name].encode()
        except UnicodeEncodeError:
            raise ConfigError(f"the environment, {name}: {'.'.join(keys)}: not UTF-8") from None
        table[keys[-1]] = _value(settings, keys, os.environ[name])
    return found


def _value(settings: type[BaseModel], keys: Sequence[str], text: str) -> Any:
    model: Any = settings
    for key in keys[:-1]:
        field = model.model_fields.get(key) if hasattr(model, "model_fields") else None
        model = field.annotation if field is not None else None
    field = model.model_fields.get(keys[-1]) if hasattr(model, "model_fields") else None
    kinds = set() if field is None else {field.annotation, *get_args(field.annotation)}
    if kinds & {bool, int, float}:
        # Any other text is refused with its place.
        with suppress(ValueError):
            return json.loads(text.lower())
        return text
    if not any(hasattr(each, "model_fields") or get_origin(each) in (tuple, dict, list) for each in kinds):
        return text
    try:
        return json.loads(text)
    except ValueError:
        if any(get_origin(each) is Literal for each in kinds):
            return text
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
        if near := nearest(name, known, cutoff=0.8):
            yield f"the environment: {name} sets nothing; did you mean {near}?"


def _variables(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield name
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from (f"{name}__{inner}" for inner in _variables(kind))


def explain(
    error: ValidationError,
    settings: type[BaseModel],
    file: Path,
    text: str,
    content: Mapping[str, Any],
    environment: Mapping[str, Any],
) -> str:
    """Every problem on a line: the file and line, or the environment; the key; the mistake. Never a value."""
    lines = []
    for problem in error.errors(include_url=False, include_input=False):
        keys = [str(key) for key in problem["loc"]]
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            near = nearest(keys[-1], _keys_at(settings, keys[:-1]))
            message = "unknown key" + (f"; did you mean {near!r}?" if near else "")
        keys = _as_written(keys)
        if (found := depth(environment, keys)) and found >= depth(content, keys):
            name = "__".join(takewhile(lambda key: not key.isdigit(), keys[:found])).upper()
            place = f"the environment, {PREFIX}{name}"
        else:
            line = line_of(text, keys)
            place = f"{file}, line {line}" if line else f"{file} or the environment"
        lines.append(": ".join(filter(None, (place, ".".join(keys), message))))
    return "\n".join(lines)


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
