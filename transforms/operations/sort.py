"""`sort`: orders the keys of all objects; `~` comes first. Arrays keep their order."""

from __future__ import annotations

from typing import Any

from transforms.flow import Flow
from transforms.generation.code import Code
from transforms.generation.nodes import Block
from transforms.jolt.text import sort_key
from transforms.limits import SpecLimits
from transforms.meter import pay
from transforms.operation import Operation
from transforms.ownership import EVERYTHING


def compile_sort(_spec: Any, _limits: SpecLimits, _code: Code) -> Operation:
    """Jolt ignores the spec of `sort`."""

    def emit(flow: Flow, body: Block) -> None:
        body += flow.metered()
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
