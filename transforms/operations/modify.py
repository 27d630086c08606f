"""`modify-overwrite-beta`, `modify-default-beta`, `modify-define-beta`: compute values in place.

They differ in when a value is written: always, where there is nothing or null, where there is nothing.
"""

from __future__ import annotations

from typing import Any

from transforms.jolt.elements import Array, Literal, parse_key
from transforms.jolt.levels import Frame
from transforms.jolt.modify_children import Mode
from transforms.jolt.modify_spec import Reader
from transforms.jolt.text import split_or
from transforms.limits import SpecLimits, measure
from transforms.operation import Operation
from transforms.ownership import EVERYTHING, PathTree


def compile_overwrite(spec: Any, limits: SpecLimits) -> Operation:
    """Raises SpecError with a pointer into `spec`."""
    return _compile(spec, limits, Mode.OVERWRITE)


def compile_default(spec: Any, limits: SpecLimits) -> Operation:
    """Raises SpecError with a pointer into `spec`."""
    return _compile(spec, limits, Mode.DEFAULT)


def compile_define(spec: Any, limits: SpecLimits) -> Operation:
    """Raises SpecError with a pointer into `spec`."""
    return _compile(spec, limits, Mode.DEFINE)


def _compile(spec: Any, limits: SpecLimits, mode: Mode) -> Operation:
    reader = Reader(mode, limits)
    outer, visit = reader.read(spec)
    size, placed_slot = reader.layout.size, reader.placed_slot
    outer_slot = outer.tree_slot

    no_frame: Frame = []

    def run_plain(value: Any, _context: Any) -> Any:
        visit(None, None, value, 0, no_frame)
        return value

    def run(value: Any, context: Any) -> Any:
        frame: Frame = [None] * size
        frame[0] = context
        if outer_slot is not None:
            frame[outer_slot] = value
        visit(None, None, value, 0, frame)
        if frame[placed_slot]:
            # What was put below a part may hold that part: such an output has no end.
            measure(value, limits)
        return value

    changes: PathTree = {}
    assigns: list[tuple[str, ...]] = []
    if reader.traits.squashes or not _trace(spec, changes, assigns, ()):
        changes = EVERYTHING
    return Operation(
        run if reader.traits.lookups else run_plain,
        changes=changes,
        assigns=assigns,
        makes_longs=reader.traits.makes_longs,
    )


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
