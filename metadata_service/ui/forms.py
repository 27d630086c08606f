"""A form for a JSON document, made of the model that checks it: the inputs of its members, and the document that they make."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from inspect import getdoc
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from idgraph.model.paths import pointer as pointer_of
from metadata_service.documents.problems import Problem

TITLES = {"q": "Search"}
"""Names that are no words."""
MOST_ROWS = 40
SPARE_PAIRS = 2
_ABSENT: Any = object()
_MISSING = re.compile(r"the key '(.+)' is missing")


class FormMember(NamedTuple):
    """An input, or several. `name` is that of the input, `pointer` the place in the document; they differ in lists of pairs.

    `text`, `choice`: one input with a value. `pair`: a key (`label`) and a value. `pairs`, `rows`, `part`: `parts`, of which rows
    and pairs end with empty ones. `json`: a value that no input shows.
    """

    kind: Literal["text", "choice", "pair", "pairs", "rows", "part", "json"]
    name: str
    pointer: str
    label: str
    help: str = ""
    value: str = ""
    default: str = ""
    words: tuple[str, ...] = ()
    is_needed: bool = False
    parts: tuple[FormMember, ...] = ()

    @property
    def has_value(self) -> bool:
        """Whether one of its inputs has."""
        return bool(self.value) or any(each.has_value for each in self.parts)


class _Shape(NamedTuple):
    """The types that a member may have: `part` is a model, alone or with scalars, `row` that of a list."""

    scalars: tuple[Any, ...]
    part: type[BaseModel] | None = None
    row: type[BaseModel] | None = None
    is_map: bool = False
    is_list: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """The choices, if no other text is allowed."""
        found: list[str] = []
        for each in self.scalars:
            if get_origin(each) is Literal:
                found += map(str, get_args(each))
            elif each is bool:
                found += ("true", "false")
            elif isinstance(each, type) and issubclass(each, Enum):
                found += (str(one.value) for one in each)
            else:
                return ()
        return tuple(found)

    def typed(self, text: str, default: Any) -> Any:
        """The value that a text says; `_ABSENT` for none."""
        text = text.strip()
        if not text:
            return _ABSENT
        if self.is_list:
            return [each.strip() for each in text.split(",") if each.strip()]
        if text == "null" and (default is not None or str not in self.scalars):
            return None
        if {int, float, bool} & set(self.scalars):
            try:
                value = json.loads(text)
            except ValueError:
                return text
            return text if isinstance(value, dict | list) else value
        return text


def _shape(annotation: Any) -> _Shape:
    kinds = [each for each in _alternatives(annotation) if each is not NoneType]
    for each in kinds:
        origin, inner = get_origin(each), get_args(each)
        if origin is dict:
            return _Shape((), is_map=True)
        if origin in (list, tuple):
            item = _alternatives(inner[0])[0]
            return _Shape((), row=item) if _is_model(item) else _Shape((), is_list=item is str)
    part = next(filter(_is_model, kinds), None)
    return _Shape(tuple(each for each in kinds if each is not part), part)


def _alternatives(annotation: Any) -> list[Any]:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return [one for each in inner for one in _alternatives(each)]
    return _alternatives(inner[0]) if origin is Annotated else [annotation]


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _members(
    model: type[BaseModel], left_out: Collection[str] = ()
) -> Iterator[tuple[str, FieldInfo, _Shape]]:
    for name, field in model.model_fields.items():
        key = field.alias or name
        if key not in left_out:
            yield key, field, _shape(field.annotation)


def form_of(
    model: type[BaseModel], document: Mapping[str, Any], left_out: Collection[str] = (), above: str = ""
) -> tuple[FormMember, ...]:
    """The inputs of a document; `left_out` are members that it does not show, at its first level."""
    found: list[FormMember] = []
    for key, field, shape in _members(model, left_out):
        place = above + pointer_of(key)
        found += _shown(key, field, shape, document.get(key, _ABSENT), place)
    return tuple(found)


def _shown(key: str, field: FieldInfo, shape: _Shape, value: Any, place: str) -> Iterator[FormMember]:
    label, help_ = TITLES.get(key) or key.replace("_", " ").capitalize(), field.description or ""
    if shape.is_map:
        pairs = {} if value is _ABSENT else value
        if not _is_simple(pairs, Mapping) or not all(isinstance(each, str) for each in pairs.values()):
            yield FormMember("json", place, place, label, help_, _text(value))
            return
        rows = [*pairs.items(), *[("", "")] * SPARE_PAIRS]
        parts = (
            FormMember("pair", f"{place}/{number}", place + pointer_of(name), name, value=text)
            for number, (name, text) in enumerate(rows)
        )
        yield FormMember("pairs", place, place, label, help_, parts=tuple(parts))
    elif shape.row is not None:
        items = [] if value is _ABSENT else value
        if not _is_simple(items, list) or not all(isinstance(each, dict) for each in items):
            yield FormMember("json", place, place, label, help_, _text(value))
            return
        parts = (
            FormMember("part", below, below, str(number + 1), parts=form_of(shape.row, each, above=below))
            for number, each in enumerate([*items, {}])
            for below in (f"{place}/{number}",)
        )
        help_ = help_ or _about(shape.row)
        yield FormMember("rows", place, place, label, help_, parts=tuple(parts))
    elif shape.scalars or shape.is_list:
        default = "" if field.is_required() or field.default in (None, ()) else _text(field.default)
        text = ", ".join(map(_text, value)) if shape.is_list and isinstance(value, list) else _text(value)
        is_other = shape.part is not None and isinstance(value, dict)
        words = shape.words if shape.part is None else ()
        yield FormMember(
            "choice" if words else "text", place, place, label, help_,
            "" if is_other else text, default, words, field.is_required(),
        )  # fmt: skip
    elif shape.part is None and value is not _ABSENT:
        yield FormMember("json", place, place, label, help_, _text(value))
    if shape.part is not None:
        inner = form_of(shape.part, value if isinstance(value, dict) else {}, above=place)
        if shape.scalars:
            label = "Or: " + re.sub(r"(?<=.)([A-Z])", r" \1", shape.part.__name__).lower()
        is_needed = field.is_required()
        yield FormMember("part", place, place, label, _about(shape.part), is_needed=is_needed, parts=inner)


def _about(model: type[BaseModel]) -> str:
    return (getdoc(model) or "").partition("\n\n")[0].replace("\n", " ")


def _is_simple(value: Any, kind: type[Mapping[str, Any]] | type[list[Any]]) -> bool:
    return isinstance(value, kind) and len(value) <= MOST_ROWS


def _text(value: Any) -> str:
    if value is _ABSENT:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def filled(
    model: type[BaseModel], document: Mapping[str, Any], typed: Mapping[str, str], above: str = ""
) -> dict[str, Any]:
    """The document with what was typed into the inputs; a member without an input stays, an empty input has no member."""
    made = dict(document)
    for key, field, shape in _members(model):
        place = above + pointer_of(key)
        if not any(name == place or name.startswith(f"{place}/") for name in typed):
            continue
        value = _filled(field, shape, document.get(key, _ABSENT), typed, place)
        if value is _ABSENT:
            made.pop(key, None)
        else:
            made[key] = value
    return made


def _filled(field: FieldInfo, shape: _Shape, value: Any, typed: Mapping[str, str], place: str) -> Any:
    if shape.is_map:
        keys = sorted(
            (each for each in typed if re.match(rf"{re.escape(place)}/\d+/key$", each)), key=_number
        )
        pairs = [(typed[each].strip(), typed.get(each[:-3] + "value", "").strip()) for each in keys]
        return {name: text for name, text in pairs if name or text} or _ABSENT
    if shape.row is not None:
        items, rows = value if isinstance(value, list) else [], []
        for number in range(len(items) + MOST_ROWS):
            old = items[number] if number < len(items) else {}
            if new := filled(shape.row, old, typed, f"{place}/{number}"):
                rows.append(new)
        return rows or _ABSENT
    one = shape.typed(typed.get(place, ""), field.default)
    if shape.part is None:
        return one
    part = filled(shape.part, value if isinstance(value, dict) else {}, typed, place)
    # Of a text and a part, the one that somebody changed holds.
    return part if part and (one is _ABSENT or one == value) else one


def _number(name: str) -> int:
    return int(name.split("/")[-2])


def pointers(form: Iterable[FormMember]) -> Iterator[str]:
    """The places of all members."""
    for each in form:
        yield each.pointer
        yield from pointers(each.parts)


def at_their_places(form: Sequence[FormMember], problems: Iterable[Problem]) -> dict[str, list[Problem]]:
    """Problems by the innermost member that has them; those of the whole document by an empty pointer."""
    known = {"", *pointers(form)}
    found: dict[str, list[Problem]] = {}
    for each in problems:
        missing = _MISSING.fullmatch(each.message)
        place = each.pointer + (pointer_of(missing[1]) if missing else "")
        while place not in known:
            place = place.rpartition("/")[0]
        found.setdefault(place, []).append(each)
    return found
