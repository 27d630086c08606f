"""Evaluators of the parts of a JMESPath expression, each a function made of those below it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

from idgraph.model.errors import SpecError
from transforms.spec.budget import FREE, paid, pay, pay_for, pay_for_all
from transforms.spec.jolt.writers import size_of
from transforms.spec.operation import copy_all


def is_number(value: Any) -> bool:
    """An integer, float or Decimal; booleans are none."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def are_orderable(one: Any, other: Any) -> bool:
    """Whether `<` can compare the two: numbers, or texts."""
    if isinstance(one, str):
        if not isinstance(other, str):
            return False
        if len(one) > FREE:
            _pay_for_both(one, other)
        return True
    if type(one) is Decimal or type(other) is Decimal:
        pay_for([one, other])
    return is_number(one) and is_number(other)


def is_false(value: Any) -> bool:
    """Null, false, and empty text, arrays and objects; 0 is true."""
    return value is None or value is False or (not value and not is_number(value))


def equal(one: Any, other: Any) -> bool:
    """Whether both are of one type and value: Python finds 1 and true equal, JMESPath does not, however deep."""
    if isinstance(one, bool) is not isinstance(other, bool):
        return False
    if type(one) is list or type(one) is dict:
        # The shorter one of two bounds what is compared.
        if type(one) is not type(other) or len(one) != len(other):
            return False
        pay_for_all(one)
        return bool(one == other) and _are_alike(one, other)
    if type(one) is str and type(other) is str and len(one) > FREE:
        _pay_for_both(one, other)
    elif type(one) is Decimal or type(other) is Decimal:
        pay_for([one, other])
    return bool(one == other)


def _are_alike(one: Any, other: Any) -> bool:
    """Whether two that Python finds equal have booleans at the same places."""
    if type(one) is dict:
        return all(_are_alike(below, other[key]) for key, below in one.items())
    if type(one) is list:
        return all(map(_are_alike, one, other))
    return isinstance(one, bool) is isinstance(other, bool)


def _pay_for_both(one: str, other: str) -> None:
    """The shorter one of two bounds what is compared."""
    paid(min(one, other, key=len))


Evaluate: TypeAlias = Callable[[Any], Any]
"""Takes the value at hand, gives the result; null is None."""


def same(value: Any) -> Any:
    return value


def field(key: str) -> Evaluate:
    return lambda value: value.get(key) if type(value) is dict else None


def chain(keys: Sequence[str]) -> Evaluate:
    """`a.b.c`"""
    if len(keys) == 2:
        first, second = keys

        def evaluate_two(value: Any) -> Any:
            if type(value) is dict:
                below = value.get(first)
                if type(below) is dict:
                    return below.get(second)
            return None

        return evaluate_two

    def evaluate(value: Any) -> Any:
        for key in keys:
            if type(value) is not dict:
                return None
            value = value.get(key)
        return value

    return evaluate


def in_turn(steps: Sequence[Evaluate]) -> Evaluate:
    """Each on what the one before it gave."""

    def evaluate(value: Any) -> Any:
        for step in steps:
            value = step(value)
        return value

    return evaluate


def index(place: int) -> Evaluate:
    def evaluate(value: Any) -> Any:
        if type(value) is not list or not -len(value) <= place < len(value):
            return None
        return value[place]

    return evaluate


def sliced(part: slice) -> Evaluate:
    """Raises SpecError for a step of 0."""
    if part.step == 0:
        raise SpecError("the step of a slice cannot be 0")

    def evaluate(value: Any) -> Any:
        if type(value) is not list:
            return None
        found = value[part]
        pay(len(found))
        return found

    return evaluate


def constant(given: Any) -> Evaluate:
    """A literal; of what an event could change, each event has its own."""
    if isinstance(given, dict | list):
        size = size_of(given)

        def copied(_value: Any) -> Any:
            pay(size)
            return copy_all(given)

        return copied
    if isinstance(given, str) and len(given) > FREE:
        return lambda _value: paid(given)
    return lambda _value: given


def compared(name: str, left: Evaluate, right: Evaluate) -> Evaluate:
    if name == "eq":
        return lambda value: equal(left(value), right(value))
    if name == "ne":
        return lambda value: not equal(left(value), right(value))
    compare = {"lt": operator.lt, "gt": operator.gt, "lte": operator.le, "gte": operator.ge}[name]

    def evaluate(value: Any) -> Any:
        one, other = left(value), right(value)
        return compare(one, other) if are_orderable(one, other) else None

    return evaluate


def either(left: Evaluate, right: Evaluate) -> Evaluate:
    def evaluate(value: Any) -> Any:
        found = left(value)
        return right(value) if is_false(found) else found

    return evaluate


def both(left: Evaluate, right: Evaluate) -> Evaluate:
    def evaluate(value: Any) -> Any:
        found = left(value)
        return found if is_false(found) else right(value)

    return evaluate


def negated(child: Evaluate) -> Evaluate:
    def evaluate(value: Any) -> bool:
        found = child(value)
        return not (is_number(found) or found)

    return evaluate


def projected(base: Evaluate, each: Evaluate, steps: int, over_objects: bool) -> Evaluate:
    """The results of `each` for every element, or value of an object. A round costs `steps`."""

    def evaluate(value: Any) -> Any:
        found = base(value)
        if over_objects:
            if type(found) is not dict:
                return None
            found = found.values()
        elif type(found) is not list:
            return None
        pay(len(found) * steps)
        results = [each(element) for element in found]
        return [result for result in results if result is not None]

    return evaluate


def filtered(base: Evaluate, each: Evaluate, condition: Evaluate, steps: int) -> Evaluate:
    """As `projected`, for the elements that a condition holds for."""

    def evaluate(value: Any) -> Any:
        found = base(value)
        if type(found) is not list:
            return None
        pay(len(found) * steps)
        results = [each(element) for element in found if not is_false(condition(element))]
        return [result for result in results if result is not None]

    return evaluate


def flattened(base: Evaluate) -> Evaluate:
    def evaluate(value: Any) -> Any:
        found = base(value)
        if type(found) is not list:
            return None
        pay(len(found))
        merged: list[Any] = []
        for element in found:
            if type(element) is list:
                pay(len(element))
                merged += element
            else:
                merged.append(element)
        return merged

    return evaluate


def listed(children: Sequence[Evaluate]) -> Evaluate:
    return lambda value: None if value is None else [child(value) for child in children]


def keyed(pairs: Sequence[tuple[str, Evaluate]]) -> Evaluate:
    return lambda value: None if value is None else {key: child(value) for key, child in pairs}


def paying(each: Evaluate, steps: int) -> Evaluate:
    """An expression that a function calls for each element."""

    def evaluate(value: Any) -> Any:
        pay(steps)
        return each(value)

    return evaluate
