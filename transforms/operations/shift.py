"""`shift`: says for each part of the input where it goes in a new output."""

from __future__ import annotations

from typing import Any

from transforms.jolt.elements import At, Transpose
from transforms.jolt.levels import Frame, FrameLayout
from transforms.jolt.output_paths import Kind, OutputPath
from transforms.jolt.shift_spec import Node, read_spec
from transforms.jolt.shift_walk import visitor
from transforms.jolt.writers import BorrowedError, Writers
from transforms.limits import SpecLimits, measure
from transforms.operation import UNBOUNDED, Operation
from transforms.ownership import PathTree, copy_all


def compile_shift(spec: Any, limits: SpecLimits) -> Operation:
    """Raises SpecError with a pointer into `spec`."""
    layout = FrameLayout()
    outer, root = read_spec(spec, layout)
    leaves = list(root.leaves())
    outputs = [output for leaf in leaves for output in leaf.outputs]
    exclusive = frozenset(id(output) for output in outputs if _is_exclusive(output, outputs))
    # As a rule the output is an object; only then can writers start from it instead of from its holder.
    keyed = all(len(output.kinds) > 1 and output.kinds[1] is Kind.KEY for output in outputs)
    visit = visitor(root, Writers(keyed, exclusive, limits))
    size = layout.size
    no_frame: Frame = []

    def run_with(value: Any, borrowed: set[int] | None) -> Any:
        frame: Frame = [None] * size
        frame[0] = borrowed
        if outer.tree_slot is not None:
            frame[outer.tree_slot] = value
        if outer.count_slot is not None:
            frame[outer.count_slot] = 0
        out: dict[str, Any] = {}
        visit(value, out, frame)
        return (out or None) if keyed else out.get("root")

    def run(value: Any, _context: Any) -> Any:
        try:
            return run_with(value, set())
        except BorrowedError:
            return rerun(copy_all(value))

    def run_owned(value: Any, _context: Any) -> Any:
        try:
            return run_with(value, set())
        except BorrowedError:
            return rerun(value)

    def rerun(value: Any) -> Any:
        found = run_with(value, None)
        # What is written into the input may be what holds it: such an output has no end.
        measure(found, limits)
        return found

    def run_exclusive(value: Any, _context: Any) -> Any:
        if size > 1:
            return run_with(value, None)
        out: dict[str, Any] = {}
        visit(value, out, no_frame)
        return out or None

    all_exclusive = keyed and len(exclusive) == len(outputs)
    return Operation(
        run_exclusive if all_exclusive else run,
        run_owned=run_exclusive if all_exclusive else run_owned,
        builds=_new_containers(outputs, exclusive) if keyed else None,
        copies=_copies(leaves),
    )


def _is_exclusive(output: OutputPath, outputs: list[OutputPath]) -> bool:
    if not output.once or output.fixed_keys is None:
        return False
    return not any(other is not output and output.may_meet(other) for other in outputs)


def _new_containers(outputs: list[OutputPath], exclusive: frozenset[int]) -> PathTree:
    tree: PathTree = {}
    for output in outputs:
        keys = output.fixed_keys
        if id(output) in exclusive and keys is not None:
            below = tree
            for key in keys[1:-1]:
                below = below.setdefault(key, {})
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
