"""Calls of JMESPath functions: ours directly, the standard ones as the library has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

from jmespath.exceptions import JMESPathError
from jmespath.visitor import _Expression

from idgraph.model.errors import SpecError, TransformError
from transforms.spec.budget import pay_for, pay_for_all
from transforms.spec.jmespath.functions import CUSTOM_FUNCTIONS, CustomFunction, first_non_null
from transforms.spec.jmespath.standard import StandardFunctions
from transforms.spec.pointers import nearest

_STANDARD = StandardFunctions()
_STANDARD_TABLE: dict[str, dict[str, Any]] = StandardFunctions.FUNCTION_TABLE


class _Caller:
    """Lets the library's functions call a compiled expression (`sort_by(@, &age)`)."""

    def visit(self, evaluate: Callable[[Any], Any], value: Any) -> Any:
        return evaluate(value)


_CALLER = _Caller()


def compile_call(
    name: str, arguments: list[tuple[Callable[[Any], Any], bool]], constants: Sequence[Any]
) -> Callable[[Any], Any]:
    """`arguments` are compiled expressions, each with whether it is passed as such (`&age`); `constants`
    are their values where they are literals, else None.

    Raises SpecError for an unknown function, a wrong number of arguments, or a constant that cannot be right.
    """
    custom = CUSTOM_FUNCTIONS.get(name)
    if custom is not None:
        call = _custom_call(name, custom, arguments)
        if custom.check is not None:
            custom.check(constants)
        return call
    known = _STANDARD_TABLE.get(name)
    if known is None:
        names = [*CUSTOM_FUNCTIONS, *_STANDARD_TABLE]
        raise SpecError(f"there is no function '{name}'", hint=nearest(name, names))
    signature = known["signature"]
    variadic = bool(signature) and bool(signature[-1].get("variadic"))
    _check_count(name, len(arguments), len(signature), None if variadic else len(signature))
    for position, (_, is_reference) in enumerate(arguments):
        if is_reference and "expref" not in signature[min(position, len(signature) - 1)]["types"]:
            raise SpecError(f"argument {position + 1} of {name}() takes no '&'")
    if name == "not_null" and not any(is_reference for _, is_reference in arguments):
        return first_non_null(*[evaluate for evaluate, _ in arguments])
    return _standard_call(name, arguments)


def _check_count(name: str, count: int, least: int, most: int | None) -> None:
    if count < least or (most is not None and count > most):
        wanted = f"{least}" if most == least else f"{least} or more"
        raise SpecError(f"{name}() takes {wanted} argument{'' if wanted == '1' else 's'}, found {count}")


def _custom_call(
    name: str, function: CustomFunction, arguments: list[tuple[Callable[[Any], Any], bool]]
) -> Callable[[Any], Any]:
    _check_count(name, len(arguments), function.least, function.most)
    if any(is_reference for _, is_reference in arguments):
        raise SpecError(f"{name}() takes no '&' argument")
    evaluators = [evaluate for evaluate, _ in arguments]
    call = function.call
    if function.is_lazy:
        made: Callable[[Any], Any] = call(*evaluators)
        return made
    if len(evaluators) == 1:
        only = evaluators[0]
        return lambda value: call(only(value))
    return lambda value: call(*[evaluate(value) for evaluate in evaluators])


_DEEP = frozenset({"to_string", "contains"})
"""Functions that read all of their arguments: the others read no more than the elements of an array."""


def _standard_call(name: str, arguments: list[tuple[Callable[[Any], Any], bool]]) -> Callable[[Any], Any]:
    read = pay_for_all if name in _DEEP else pay_for

    def evaluate(value: Any) -> Any:
        resolved = [
            _Expression(argument, _CALLER) if is_reference else argument(value)
            for argument, is_reference in arguments
        ]
        for each in resolved:
            if type(each) is not _Expression:
                read(each)
        try:
            result = _STANDARD.call_function(name, resolved)
        except (JMESPathError, TypeError, ValueError):
            # The library's message quotes the value; some of its functions do not look at all of their arguments.
            raise TransformError(f"{name}() got an argument of a wrong type") from None
        # JSON cannot hold what overflows, nor what `to_number` makes of the text `nan`.
        return None if type(result) is float and not isfinite(result) else result

    return evaluate
