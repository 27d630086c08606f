"""`sort`: orders the keys of all objects; `~` comes first. Arrays keep their order."""

from __future__ import annotations

from typing import Any

from transforms.spec.budget import pay
from transforms.spec.emit_context import EmitContext
from transforms.spec.generation.code import Code
from transforms.spec.generation.nodes import Block
from transforms.spec.jolt.text import sort_key
from transforms.spec.limits import SpecLimits
from transforms.spec.operation import EVERYTHING, Operation


def compile_sort(_spec: Any, _limits: SpecLimits, _code: Code) -> Operation:
    """Jolt ignores the spec of `sort`."""

    def emit(flow: EmitContext, body: Block) -> None:
        body += flow.budgeted()
        flow.pass_through(_sorted, body)

    return Operation(emit, builds=EVERYTHING)


def _sorted(value: Any) -> Any:
    if type(value) is dict:
        pay(len(value))
        return {key: _sorted(value[key]) for key in sorted(value, key=_order)}
    if type(value) is list:
        pay(len(value))
        return [_sorted(element) for element in value]
    return value


def _order(key: str) -> tuple[bool, bytes]:
    return not key.startswith("~"), sort_key(key)
