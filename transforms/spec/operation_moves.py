"""The moves of a spec's operations: the places that each reads, and the places to which it puts the values."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, NamedTuple, TypeAlias, cast

from idgraph.model import paths
from transforms.spec.jolt.elements import (
    Amp,
    Array,
    At,
    Dollar,
    Element,
    Hash,
    Literal,
    Reference,
    Transpose,
    parse_key,
    parse_path,
    parse_transpose,
)
from transforms.spec.jolt.scalars import split_or
from transforms.spec.jolt.stars import Star
from transforms.spec.operations import JOLT_CLASSES
from transforms.spec.pointers import pointer

Place: TypeAlias = "tuple[str | None, ...]"
"""Keys from the root, None for any key. It stands for all below it."""


class Item(NamedTuple):
    """An element of an array."""

    position: int | str


ANY_ITEM = Item("any")
APPENDED = Item("appended")
"""Nothing else is put at it."""
COLLECTED = Item("collected")
"""One of several values that were put at one place."""
_NOT_KNOWN = (ANY_ITEM, COLLECTED)


class Wildcard:
    """A key of a spec that takes several keys."""

    def __init__(self, element: Element, but: Container[str] = ()) -> None:
        self._element, self._but = element, but

    def takes(self, key: str) -> bool:
        is_other = isinstance(self._element, Star) and self._element.match(key) is None
        return not is_other and key not in self._but


Key: TypeAlias = "str | int | Item | Wildcard | None"
Keys: TypeAlias = "tuple[Key, ...]"
"""A number stands in targets only: the key at this index of the keys that were read."""


class SpecLine(NamedTuple):
    """A line of a spec. Two with the same content do the same with a value that comes the same way. One that `computes` does more
    than to move the value as it is, or by a function of it alone that says no more of it than its form."""

    place: str
    content: str
    computes: bool = False


class Move(NamedTuple):
    """A place that an operation reads, and the place to which it puts the value."""

    source: Keys
    target: Keys
    is_copy: bool
    """Whether all below the source stands below the target."""
    by: SpecLine
    is_repeated: bool = False
    """Whether it may put several values at one place."""
    inverse: Move | None = None

    @property
    def may_move_objects(self) -> bool:
        """Or else it makes texts and numbers only."""
        return self.is_copy or self.by.computes


class Test(NamedTuple):
    """A shift's look at a text: as the key that a pattern takes, or that a target gets (`is_key`)."""

    source: Keys
    by: SpecLine
    is_key: bool = False

    def tests(self, held: Keys) -> bool:
        """Whether it looks at a value that stands at a place it reads: that has no keys."""
        return self.is_key or len(self.source) > len(held)


@dataclass
class OperationMoves:
    """The moves and tests of an operation. One that replaces leaves nothing else of its input. One that `collects`
    makes an array of two values for one place. `value_keys` are the places that make a key of a value: JSON pointer,
    and the path above the key, as far as it is fixed. `written` are all places at which it may put something: a key that
    is not known is one of those that are there."""

    moves: list[Move]
    by: SpecLine
    replaces: bool = True
    removed: Sequence[Place] = ()
    tests: list[Test] = field(default_factory=list)
    collects: bool = False
    value_keys: list[tuple[str, str]] = field(default_factory=list)
    written: list[Keys] = field(default_factory=list)


def read(entry: dict[str, Any], at: str, before: str) -> OperationMoves:
    """The moves of an operation at a JSON pointer; `before` are the earlier operations, as text."""
    name, spec = JOLT_CLASSES.get(entry["operation"], entry["operation"]), entry.get("spec") or {}
    line = SpecLine(f"/operations{at}", repr(entry))
    if name == "shift":
        made, root = OperationMoves([], line, collects=True), _Level("root", ())
        made.moves.extend(_shifted(spec, [root, root], f"{at}/spec", made, before))
        return made
    if name == "jmespath":
        from transforms.spec.jmespath.operation import targets_read

        made = OperationMoves([], line)
        for keys, sources, is_copy, is_plain, text in targets_read(spec) if spec else ():
            there = f"/operations{at} at '{paths.join(keys)}'"
            by = SpecLine(there, text if is_plain else text + before, not is_plain)
            made.moves += [_move(source, keys, is_copy, by) for source in sources]
            made.written.append(keys)
        return made
    if name.startswith("modify"):
        made = OperationMoves([], SpecLine(line.place, name), replaces=False)
        # Its statements see what those before them made.
        made.moves.extend(_modified(spec, (), line.place, made, line.content + before))
        return made
    if name == "default":
        return OperationMoves([], line, replaces=False, written=list(_defaulted(spec, ())))
    if name == "cardinality":
        moves = [_move(*move, True, line) for move in _adjusted(spec, ())]
        return OperationMoves(moves, line, replaces=False)
    removed = list(_removed(spec, ())) if name == "remove" else []
    # The elements behind one that is removed have other indexes then.
    arrays = [(*each[:-1], ANY_ITEM) for each in removed if each[-1] and each[-1].isdecimal()]
    return OperationMoves([_move(each, each, True, line) for each in arrays], line, False, removed)


def _shifted(
    spec: dict[str, Any], walk: list[_Level], at: str, made: OperationMoves, before: str
) -> Iterator[Move]:
    for spelled, right in spec.items():
        for key in split_or(spelled):
            element, here = parse_key(key), walk[-1]
            level = _level(element, walk, spec)
            below = f"{at}{pointer(spelled)}"
            if not isinstance(element, Hash | At | Dollar):
                made.tests.append(Test(level.place, SpecLine(f"/operations{below}", repr(right) + before)))
            if isinstance(right, dict):
                yield from _shifted(right, [*walk, level], below, made, before)
                continue
            for number, path in enumerate(right if isinstance(right, list) else [right]):
                if isinstance(path, str):
                    elements = parse_path(path) if path.strip() else ()
                    target = _target(elements, [*walk, level])
                    made.written.append(target)
                    by = SpecLine(f"/operations{below}", path)
                    places = [each.place for each in (*walk, level)]
                    with_before = by._replace(content=path + before)
                    for part in elements:
                        index = part.index if isinstance(part, Array) else part
                        if isinstance(index, Transpose):
                            made.tests.append(Test(_read(index, places), with_before, is_key=True))
                    if any(isinstance(each, Transpose) for each in elements):
                        there = f"{below}{pointer(number)}" if isinstance(right, list) else below
                        made.value_keys.append((there, _fixed(target)))
                    if not isinstance(element, Hash):
                        # The key that `$` puts may be a text, where keys are compared with one.
                        source = here.place if isinstance(element, Dollar) else level.place
                        yield _move(
                            source,
                            target,
                            not isinstance(element, Dollar),
                            by,
                            _is_repeated(elements, [*walk, level]),
                        )


def _fixed(target: Keys) -> str:
    """The path above the first key that is made of a value."""
    return paths.join(each for each in value_place(target[: target.index(None)]) if isinstance(each, str))


class _Level(NamedTuple):
    key: Key
    place: Keys
    whole: int = 0
    """Another group that has all of the key."""


def _level(element: Element, walk: Sequence[_Level], beside: Iterable[str]) -> _Level:
    here = walk[-1]
    match element:
        case Literal(key):
            return _Level(key, (*here.place, key))
        case Hash(text):
            return _Level(text, here.place)
        case At() | Dollar():
            return here
        case Transpose():
            return here._replace(place=_read(element, [each.place for each in walk]))
    # A key of the spec goes before a pattern that takes it too.
    keys = [parse_key(key) for spelled in beside for key in split_or(spelled)]
    wildcard = Wildcard(element, {each.key for each in keys if isinstance(each, Literal)})
    return _Level(wildcard, (*here.place, wildcard), isinstance(element, Star) and element.groups == 1)


def _read(element: Transpose, places: Sequence[Keys]) -> Keys:
    above = places[-1 - element.up] if element.up < len(places) else ()
    return above + tuple(each.key if isinstance(each, Literal) else None for each in element.path or ())


def _target(elements: Sequence[Element], walk: Sequence[_Level]) -> Keys:
    found: list[Key] = []
    for element in elements:
        match element:
            case Literal(key):
                found.append(key)
            case Array(index):
                found.append(_item(index))
            case Amp((reference,)) if not isinstance(reference, str) and reference.group == 0:
                found.append(walk[-1 - reference.up].key if reference.up < len(walk) else None)
            case _:
                found.append(None)
    return tuple(found)


def _is_repeated(elements: Sequence[Element], walk: Sequence[_Level]) -> bool:
    """Whether several keys that a wildcard takes may give one target: no reference has all of the key."""
    tokens = [each for part in elements for each in getattr(part, "tokens", (getattr(part, "index", None),))]
    references = [each for each in tokens if isinstance(each, Reference) and each.up < len(walk)]
    named = {walk[-1 - each.up].key for each in references if each.group in (0, walk[-1 - each.up].whole)}
    return any(isinstance(each.key, Wildcard) and each.key not in named for each in walk)


def _move(source: Keys, target: Keys, is_copy: bool, by: SpecLine, is_repeated: bool = False) -> Move:
    inverse = Move(target, _known(source, target), is_copy, by)
    return Move(source, _known(target, source), is_copy, by, is_repeated, inverse)


def _known(keys: Keys, within: Keys) -> Keys:
    """With the index in others, or None, for a wildcard."""
    return tuple(
        key if not isinstance(key, Wildcard) else within.index(key) if key in within else None for key in keys
    )


_READING = re.compile(r"@\([^()]*\)|@[^\s,()]+")
_FORM = "toLower|toUpper|trim|toString|toInteger|toLong|toDouble|stripLeadingZeros|epochMs|digits|hash"
_PLAIN = re.compile(rf"[^=@].*|(=(?:{_FORM})\()?(?:{_READING.pattern})(?(1)\))|=(?:{_FORM})|", re.DOTALL)


def _modified(
    spec: dict[str, Any], above: Keys, at: str, made: OperationMoves, others: str
) -> Iterator[Move]:
    for spelled, right in spec.items():
        for option in split_or(spelled):
            element = parse_key(
                option[1:].removesuffix("?") if option[0] in "+~_" else option.removesuffix("?")
            )
            key = _item(element.index) if isinstance(element, Array) else Wildcard(element)
            place = (*above, element.key if isinstance(element, Literal) else key)
            below = f"{at}{pointer(spelled)}"
            if isinstance(right, dict) and right:
                yield from _modified(right, place, below, made, others)
                continue
            made.written.append(place)
            places = [(), *(place[:end] for end in range(len(place) + 1))]
            for value in right if isinstance(right, list) else [] if isinstance(right, dict) else [right]:
                text = value if isinstance(value, str) else repr(value)
                is_plain = _PLAIN.fullmatch(text) is not None
                by = SpecLine(below, text if is_plain else text + others, not is_plain)
                yield _move(place, place, True, by)
                read = [_read(parse_transpose(each), places) for each in _READING.findall(text)]
                for each in read:
                    yield _move(each, place, is_plain, by)
                for each in (*read, place) if "squash" in text.casefold() else ():
                    # It shortens the arrays that it is given.
                    yield _move(each, (*each, None), False, by)


def _adjusted(spec: dict[str, Any], above: Keys) -> Iterator[tuple[Keys, Keys]]:
    """The moves of a `cardinality`: one of several values to the place of all, or a value into an array of it."""
    for spelled, right in spec.items():
        for key in split_or(spelled):
            element = parse_key(key)
            keys = element.key if isinstance(element, Literal) else Wildcard(element)
            place = above if isinstance(element, At) else (*above, keys)
            if isinstance(right, dict):
                yield from _adjusted(right, place)
            else:
                yield (place, (*place, _item(0))) if right == "MANY" else ((*place, ANY_ITEM), place)


def _defaulted(spec: dict[str, Any], above: Keys) -> Iterator[Keys]:
    for spelled, right in spec.items():
        for option in split_or(spelled.removesuffix("[]")):
            place = (*above, None if option == "*" else option.replace("\\", ""))
            if not isinstance(right, dict) or not right or spelled.endswith("[]"):
                yield place
            else:
                yield from _defaulted(right, place)


def _removed(spec: Any, above: Place) -> Iterator[Place]:
    for spelled, right in spec.items() if isinstance(spec, dict) else ():
        for key in split_or(spelled):
            if "*" in key and key != "*":
                continue
            place = (*above, None if key == "*" else key.replace("\\", ""))
            if isinstance(right, dict):
                yield from _removed(right, place)
            else:
                yield place


def _item(index: object) -> Item:
    return APPENDED if index is None else Item(index) if isinstance(index, int) else ANY_ITEM


def value_place(place: Keys) -> Place:
    """Up to the first array, which is one value, but through those that may be."""
    keys = (key for key in place if key != COLLECTED)
    return cast("Place", tuple(takewhile(lambda key: not isinstance(key, Item), keys)))


def may_be(wanted: Key, key: Key) -> bool:
    if isinstance(wanted, Wildcard):
        return not isinstance(key, str) or wanted.takes(key)
    if wanted is None or key is None or (isinstance(wanted, str) and isinstance(key, str)):
        return None in (wanted, key) or wanted == key
    if isinstance(wanted, str):
        wanted, key = key, wanted
    if isinstance(key, str):
        return key.isdecimal() and wanted in (*_NOT_KNOWN, APPENDED, Item(int(key)))
    if APPENDED in (wanted, key):
        return wanted != key
    return wanted == key or wanted in _NOT_KNOWN or key in _NOT_KNOWN


def if_known(key: Key) -> str | None:
    return key if isinstance(key, str) else None


def covers(gone: Place, place: Keys) -> bool:
    # A key that is not known may be another one, which stays.
    pairs = zip(gone, place, strict=False)
    return len(gone) <= len(place) and all(each is None or each == key for each, key in pairs)
