"""`modify-overwrite-beta`, `modify-default-beta`, `modify-define-beta`: compute values in place.

They differ in when a value is written: always, where there is nothing or null, where there is nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from transforms.spec.generation.code import Code
from transforms.spec.generation.nodes import NONE, Block, assign, call, do, is_, is_not, name, when
from transforms.spec.jolt.elements import Array, Literal, parse_key, parse_transpose
from transforms.spec.jolt.modify_code import ModifyCode
from transforms.spec.jolt.modify_spec import Children, ChildShape, Mode, SpecReader
from transforms.spec.jolt.scalars import split_or
from transforms.spec.limits import SpecLimits, measure
from transforms.spec.operation import EVERYTHING, EmitContext, Operation, PathTree
from transforms.spec.operation_moves import (
    Keys,
    Move,
    OperationMoves,
    SpecLine,
    Wildcard,
    item_at,
    move,
    read_by,
)
from transforms.spec.pointers import pointer


def compile_overwrite(spec: Any, limits: SpecLimits, code: Code) -> Operation:
    """Raises SpecError with a pointer into `spec`."""
    return _compile(spec, limits, code, Mode.OVERWRITE)


def compile_default(spec: Any, limits: SpecLimits, code: Code) -> Operation:
    """Raises SpecError with a pointer into `spec`."""
    return _compile(spec, limits, code, Mode.DEFAULT)


def compile_define(spec: Any, limits: SpecLimits, code: Code) -> Operation:
    """Raises SpecError with a pointer into `spec`."""
    return _compile(spec, limits, code, Mode.DEFINE)


def _compile(spec: Any, limits: SpecLimits, code: Code, mode: Mode) -> Operation:
    reader = SpecReader(mode, limits, code)
    outer, root = reader.read(spec)
    traits = reader.traits
    children = root.below or Children()

    def emit(flow: EmitContext, body: Block) -> None:
        traits.keeps_longs = flow.keeps_longs or traits.reports_own_longs
        flow.makes_longs |= traits.makes_longs and traits.keeps_longs
        if outer.tree is not None:
            body.append(assign(outer.tree, name(flow.value)))
        place = None if traits.placements else flow.known
        placed = code.fresh("s", unset=True)
        inner: Block = []
        moves = traits.squashes or bool(traits.placements)
        ModifyCode(code, placed, limits, moves).children(root, flow.value, place, inner)
        body += when(_is_walked(children.shape, flow, code), inner)
        if traits.placements:
            # A value that was put below a part may hold that part: such an output has no end.
            flow.known = None
            measured = call(code.bind(lambda value: measure(value, limits)), name(flow.value))
            body += when(name(placed), [do(measured)])

    changes: PathTree = {}
    assigns: list[tuple[str, ...]] = []
    if traits.squashes or not _trace(spec, changes, assigns, ()):
        changes = EVERYTHING
    return Operation(
        emit,
        changes=changes,
        assigns=assigns,
        copies=1 + traits.placements,
        reports_longs=traits.reports_longs,
    )


def _is_walked(shape: ChildShape, flow: EmitContext, code: Code) -> ast.expr:
    """Whether the value is of the kind that the spec walks; null is of none."""
    if shape is ChildShape.EITHER or (shape is ChildShape.OBJECT and flow.known is not None):
        return is_not(name(flow.value), NONE)
    return is_(call(code.bind(type), name(flow.value)), code.bind(shape.value))


def _trace(
    spec: dict[str, Any], changes: PathTree, assigns: list[tuple[str, ...]], path: tuple[str, ...]
) -> bool:
    """Collects what the operation changes and assigns; False if that may be anything."""
    for spelled, right in spec.items():
        for key in split_or(spelled):
            element = parse_key(_bare(key))
            inner = isinstance(right, dict) and bool(right)
            if isinstance(element, Array):
                return False
            name = element.key if isinstance(element, Literal) else "*"
            if not inner:
                assigns.append((*path, name))
                continue
            if not isinstance(element, Literal):
                return False
            if not _trace(right, changes.setdefault(name, {}), assigns, (*path, name)):
                return False
    return True


def _bare(key: str) -> str:
    """The key without its mode and without the `?` for "only if present"."""
    bare = key[1:] if key[0] in "+~_" else key
    return bare[:-1] if len(key) > 1 and key[-1] == "?" and not bare.endswith("\\?") else bare


_READING = re.compile(r"@\([^()]*\)|@[^\s,()]+")
_FORM = "toLower|toUpper|trim|toString|toInteger|toLong|toDouble|stripLeadingZeros|epochMs|digits|hash"
_PLAIN = re.compile(rf"[^=@].*|(=(?:{_FORM})\()?(?:{_READING.pattern})(?(1)\))|=(?:{_FORM})|", re.DOTALL)


def modify_moves(
    operation: str, spec: dict[str, Any], _at: str, line: SpecLine, before: str
) -> OperationMoves:
    """See `OperationMoves`. A statement sees what those before it made."""
    made = OperationMoves([], SpecLine(line.place, operation), replaces=False)
    made.moves.extend(_modified(spec, (), line.place, made, line.content + before))
    return made


def _modified(
    spec: dict[str, Any], above: Keys, at: str, made: OperationMoves, others: str
) -> Iterator[Move]:
    for spelled, right in spec.items():
        for option in split_or(spelled):
            element = parse_key(
                option[1:].removesuffix("?") if option[0] in "+~_" else option.removesuffix("?")
            )
            key = item_at(element.index) if isinstance(element, Array) else Wildcard(element)
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
                yield move(place, place, True, by)
                read = [read_by(parse_transpose(each), places) for each in _READING.findall(text)]
                for each in read:
                    yield move(each, place, is_plain, by)
                for each in (*read, place) if "squash" in text.casefold() else ():
                    # It shortens the arrays that it is given.
                    yield move(each, (*each, None), False, by)
