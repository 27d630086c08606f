"""The syntax that generated functions are built of. There is no other: see `verification`.

Each kind of node is a class of its own, so that a node from elsewhere cannot pass for one; `lineno` and
`col_offset`, which the compiler wants of every node, are set once for all here.
"""

from __future__ import annotations

import ast
from typing import Any, TypeAlias

Block: TypeAlias = list[ast.stmt]
ByKind: TypeAlias = dict[type, list[Any]]
"""The nodes of a tree, of each kind in any order."""


class Name(ast.Name):
    lineno, col_offset = 1, 0


class Constant(ast.Constant):
    lineno, col_offset = 1, 0


class Call(ast.Call):
    lineno, col_offset = 1, 0


class Attribute(ast.Attribute):
    lineno, col_offset = 1, 0


class Subscript(ast.Subscript):
    lineno, col_offset = 1, 0


class Compare(ast.Compare):
    lineno, col_offset = 1, 0


class BoolOp(ast.BoolOp):
    lineno, col_offset = 1, 0


class IfExp(ast.IfExp):
    lineno, col_offset = 1, 0


class Dict(ast.Dict):
    lineno, col_offset = 1, 0


class List(ast.List):
    lineno, col_offset = 1, 0


class Tuple(ast.Tuple):
    lineno, col_offset = 1, 0


class NamedExpr(ast.NamedExpr):
    lineno, col_offset = 1, 0


class BinOp(ast.BinOp):
    lineno, col_offset = 1, 0


class Assign(ast.Assign):
    lineno, col_offset = 1, 0


class Expr(ast.Expr):
    lineno, col_offset = 1, 0


class If(ast.If):
    lineno, col_offset = 1, 0


class For(ast.For):
    lineno, col_offset = 1, 0


class Return(ast.Return):
    lineno, col_offset = 1, 0


class Raise(ast.Raise):
    lineno, col_offset = 1, 0


class Try(ast.Try):
    lineno, col_offset = 1, 0


class ExceptHandler(ast.ExceptHandler):
    lineno, col_offset = 1, 0


class Delete(ast.Delete):
    lineno, col_offset = 1, 0


class Argument(ast.arg):
    lineno, col_offset = 1, 0


class FunctionDef(ast.FunctionDef):
    lineno, col_offset = 1, 0


_LOAD, _STORE, _DELETE = ast.Load(), ast.Store(), ast.Del()
_IS, _IS_NOT, _IN, _NOT_IN, _EQ, _LT = ast.Is(), ast.IsNot(), ast.In(), ast.NotIn(), ast.Eq(), ast.Lt()
_OR, _AND, _MINUS, _PLUS, _TIMES = ast.Or(), ast.And(), ast.Sub(), ast.Add(), ast.Mult()


def name(identifier: str) -> Name:
    return Name(identifier, _LOAD)


def constant(value: str | int | float | bool | None) -> Constant:
    return Constant(value)


NONE = Constant(None)


def call(function: ast.expr, *arguments: ast.expr) -> Call:
    return Call(function, list(arguments), [])


def method(owner: ast.expr, attribute: str, *arguments: ast.expr) -> Call:
    return Call(Attribute(owner, attribute, _LOAD), list(arguments), [])


def item(owner: ast.expr, key: ast.expr) -> Subscript:
    return Subscript(owner, key, _LOAD)


def assign(target: str, value: ast.expr) -> Assign:
    return Assign([Name(target, _STORE)], value)


def assign_both(target: str, owner: ast.expr, key: ast.expr, value: ast.expr) -> Assign:
    """`target = owner[key] = value`."""
    return Assign([Name(target, _STORE), Subscript(owner, key, _STORE)], value)


def named(target: str, value: ast.expr) -> NamedExpr:
    """`(target := value)`: the value, which the name has from then on."""
    return NamedExpr(Name(target, _STORE), value)


def set_item(owner: ast.expr, key: ast.expr, value: ast.expr) -> Assign:
    return Assign([Subscript(owner, key, _STORE)], value)


def delete_item(owner: ast.expr, key: ast.expr) -> Delete:
    return Delete([Subscript(owner, key, _DELETE)])


def is_(one: ast.expr, other: ast.expr) -> Compare:
    return Compare(one, [_IS], [other])


def is_not(one: ast.expr, other: ast.expr) -> Compare:
    return Compare(one, [_IS_NOT], [other])


def in_(one: ast.expr, other: ast.expr) -> Compare:
    return Compare(one, [_IN], [other])


def not_in(one: ast.expr, other: ast.expr) -> Compare:
    return Compare(one, [_NOT_IN], [other])


def equals(one: ast.expr, other: ast.expr) -> Compare:
    return Compare(one, [_EQ], [other])


def less(one: ast.expr, other: ast.expr) -> Compare:
    return Compare(one, [_LT], [other])


def plus(one: ast.expr, other: ast.expr) -> BinOp:
    return BinOp(one, _PLUS, other)


def minus(one: ast.expr, other: ast.expr) -> BinOp:
    return BinOp(one, _MINUS, other)


def times(one: ast.expr, other: ast.expr) -> BinOp:
    return BinOp(one, _TIMES, other)


def either(one: ast.expr, other: ast.expr) -> BoolOp:
    return BoolOp(_OR, [one, other])


def both(one: ast.expr, other: ast.expr) -> BoolOp:
    return BoolOp(_AND, [one, other])


def choice(test: ast.expr, one: ast.expr, other: ast.expr) -> IfExp:
    return IfExp(test, one, other)


def new_dict(key: ast.expr | None = None, value: ast.expr | None = None) -> Dict:
    """`{}` or `{key: value}`."""
    return Dict([], []) if key is None or value is None else Dict([key], [value])


def new_list(*elements: ast.expr) -> List:
    return List(list(elements), _LOAD)


def new_tuple(*elements: ast.expr) -> Tuple:
    return Tuple(list(elements), _LOAD)


def do(expression: ast.expr) -> Expr:
    return Expr(expression)


def when(test: ast.expr, body: Block, otherwise: Block | None = None) -> Block:
    """An `if`; nothing at all where both blocks are empty."""
    if not body and not otherwise:
        return []
    return [If(test, body or [Expr(NONE)], otherwise or [])]


def parts(tree: ast.AST) -> list[ast.AST]:
    """The tree and all below it that is of this syntax; `ast.walk` takes five times as long."""
    found: list[ast.AST] = []
    waiting: list[object] = [tree]
    while waiting:
        node = waiting.pop()
        if type(node) is list:
            waiting += node
        elif isinstance(node, ast.AST) and node._fields:
            found.append(node)
            waiting += node.__dict__.values()
    return found


def loop(targets: list[str], over: ast.expr, body: Block) -> Block:
    """A `for` over one or more variables."""
    names: list[ast.expr] = [Name(target, _STORE) for target in targets]
    target = names[0] if len(names) == 1 else Tuple(names, _STORE)
    return [For(target, over, body or [Expr(NONE)], [])]
