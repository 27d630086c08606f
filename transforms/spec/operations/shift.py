"""`shift`: says for each part of the input where it goes in a new output."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from idgraph.model import paths
from transforms.spec.generation.code import Code
from transforms.spec.generation.nodes import (
    NONE,
    Block,
    assign,
    call,
    constant,
    do,
    either,
    is_,
    method,
    name,
    new_dict,
    when,
)
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
)
from transforms.spec.jolt.place_code import PlaceCode
from transforms.spec.jolt.places import WalkedPaths
from transforms.spec.jolt.scalars import split_or
from transforms.spec.jolt.shift_code import ShiftCode
from transforms.spec.jolt.shift_spec import Node, read_spec
from transforms.spec.jolt.stars import Star
from transforms.spec.jolt.views import joined
from transforms.spec.limits import SpecLimits, measure
from transforms.spec.operation import UNBOUNDED, EmitContext, Operation, PathTree
from transforms.spec.operation_moves import (
    Key,
    Keys,
    Move,
    OperationMoves,
    SpecLine,
    Test,
    Wildcard,
    item_at,
    move,
    read_by,
    value_place,
)
from transforms.spec.pointers import pointer


def compile_shift(spec: Any, limits: SpecLimits, code: Code) -> Operation:
    """Raises SpecError with a pointer into `spec`."""
    outer, root = read_spec(spec, code)
    leaves = list(root.leaves())
    outputs = [output for leaf in leaves for output in leaf.outputs]
    places = WalkedPaths(outputs, code)
    out = name(places.root.variable)

    def emit(flow: EmitContext, body: Block) -> None:
        if outer.tree is not None:
            body.append(assign(outer.tree, name(flow.value)))
        if outer.count is not None:
            body.append(assign(outer.count, constant(0)))
        body.append(assign(places.root.variable, new_dict()))
        place_code = PlaceCode(code, code.borrowed, limits)
        if code.uses(joined):
            body += flow.budgeted()
        shift = ShiftCode(code, places, place_code, limits)
        shift.node(root, name(flow.value), body)
        found = either(out, NONE) if places.keyed else method(out, "get", constant("root"))
        flow.replace(found, body)
        flow.known = places.root if places.keyed else None

        def measured() -> ast.expr:
            return call(code.bind(lambda value: measure(value, limits)), name(flow.value))

        if not places.all_exclusive:
            flow.borrows = True
            flow.reaches_below |= place_code.reaches_below
            # A value that is written into the input may hold it: such an output has no end.
            body += when(is_(name(code.borrowed), NONE), [do(measured())])
        if shift.long_keys:
            body += when(name(shift.long_keys), [do(measured())])

    return Operation(
        emit,
        builds=_new_containers(places) if places.keyed else None,
        copies=_copies(leaves),
    )


def _new_containers(places: WalkedPaths) -> PathTree:
    tree: PathTree = {}
    waiting = [(places.root, tree)]
    while waiting:
        place, found = waiting.pop()
        for key, below in place.below.items():
            waiting.append((below, found.setdefault(key, {})))
    return tree


def _copies(leaves: list[Node]) -> float:
    """Plain leaves take disjoint parts of the input; what `@` reads may be any part, again and again."""
    copies = 0.0
    widest = 1
    for leaf in leaves:
        if isinstance(leaf.element, At | Transpose):
            once = all(output.once for output in leaf.outputs)
            copies += len(leaf.outputs) if once else UNBOUNDED
        else:
            widest = max(widest, len(leaf.outputs))
    return copies + widest


def shift_moves(spec: dict[str, Any], at: str, line: SpecLine, before: str) -> OperationMoves:
    """See `OperationMoves`."""
    made, root = OperationMoves([], line, collects=True), _Level("root", ())
    made.moves.extend(_shifted(spec, [root, root], f"{at}/spec", made, before))
    return made


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
                            made.tests.append(Test(read_by(index, places), with_before, is_key=True))
                    if any(isinstance(each, Transpose) for each in elements):
                        there = f"{below}{pointer(number)}" if isinstance(right, list) else below
                        made.value_keys.append((there, _fixed(target)))
                    if not isinstance(element, Hash):
                        # The key that `$` puts may be a text, where keys are compared with one.
                        source = here.place if isinstance(element, Dollar) else level.place
                        yield move(
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
        case At():
            return here
        case Dollar((up, group)):
            return _Level(walk[-1 - up].key if group == 0 and up < len(walk) else None, here.place)
        case Transpose():
            return here._replace(place=read_by(element, [each.place for each in walk]))
    # A key of the spec goes before a pattern that takes it too.
    keys = [parse_key(key) for spelled in beside for key in split_or(spelled)]
    wildcard = Wildcard(element, {each.key for each in keys if isinstance(each, Literal)})
    return _Level(wildcard, (*here.place, wildcard), isinstance(element, Star) and element.groups == 1)


def _target(elements: Sequence[Element], walk: Sequence[_Level]) -> Keys:
    found: list[Key] = []
    for element in elements:
        match element:
            case Literal(key):
                found.append(key)
            case Array(index):
                found.append(item_at(index))
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
