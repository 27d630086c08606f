"""The syntax that generated functions are built of. `code.verify` refuses any other.

Each kind of node is a class of its own, so that a node from elsewhere cannot pass for one; `lineno` and
`col_offset`, which the compiler wants of every node, are set once for all here.
"""

from __future__ import annotations

import ast
from typing import TypeAlias, TypeVar, cast

Block: TypeAlias = list[ast.stmt]

Node = TypeVar("Node", bound=ast.AST)


def _kind(of: type[Node]) -> type[Node]:
    members = {"lineno": 1, "col_offset": 0, "__module__": __name__}
    return cast("type[Node]", type(of.__name__, (of,), members))


Name = _kind(ast.Name)
Constant = _kind(ast.Constant)
Call = _kind(ast.Call)
Attribute = _kind(ast.Attribute)
Subscript = _kind(ast.Subscript)
Compare = _kind(ast.Compare)
BoolOp = _kind(ast.BoolOp)
IfExp = _kind(ast.IfExp)
Dict = _kind(ast.Dict)
List = _kind(ast.List)
Tuple = _kind(ast.Tuple)
NamedExpr = _kind(ast.NamedExpr)
BinOp = _kind(ast.BinOp)
Assign = _kind(ast.Assign)
Expr = _kind(ast.Expr)
If = _kind(ast.If)
For = _kind(ast.For)
Return = _kind(ast.Return)
Raise = _kind(ast.Raise)
Try = _kind(ast.Try)
ExceptHandler = _kind(ast.ExceptHandler)
Delete = _kind(ast.Delete)
Argument = _kind(ast.arg)
FunctionDef = _kind(ast.FunctionDef)

_LOAD, _STORE, _DELETE = ast.Load(), ast.Store(), ast.Del()
_IS, _IS_NOT, _IN, _NOT_IN, _EQ, _LT = ast.Is(), ast.IsNot(), ast.In(), ast.NotIn(), ast.Eq(), ast.Lt()
_OR, _AND, _MINUS, _PLUS, _TIMES = ast.Or(), ast.And(), ast.Sub(), ast.Add(), ast.Mult()


def name(identifier: str) -> ast.Name:
    return Name(identifier, _LOAD)


def constant(value: str | int | float | bool | None) -> ast.Constant:
    return Constant(value)


NONE = Constant(None)


def call(function: ast.expr, *arguments: ast.expr) -> ast.Call:
    return Call(function, list(arguments), [])


def method(owner: ast.expr, attribute: str, *arguments: ast.expr) -> ast.Call:
    return Call(Attribute(owner, attribute, _LOAD), list(arguments), [])


def item(owner: ast.expr, key: ast.expr) -> ast.Subscript:
    return Subscript(owner, key, _LOAD)


def assign(target: str, value: ast.expr) -> ast.Assign:
    return Assign([Name(target, _STORE)], value)


def assign_both(target: str, owner: ast.expr, key: ast.expr, value: ast.expr) -> ast.Assign:
    """`target = owner[key] = value`."""
    return Assign([Name(target, _STORE), Subscript(owner, key, _STORE)], value)


def named(target: str, value: ast.expr) -> ast.NamedExpr:
    """`(target := value)`: the value, which the name has from then on."""
    return NamedExpr(Name(target, _STORE), value)


def set_item(owner: ast.expr, key: ast.expr, value: ast.expr) -> ast.Assign:
    return Assign([Subscript(owner, key, _STORE)], value)


def delete_item(owner: ast.expr, key: ast.expr) -> ast.Delete:
    return Delete([Subscript(owner, key, _DELETE)])


def is_(one: ast.expr, other: ast.expr) -> ast.Compare:
    return Compare(one, [_IS], [other])


def is_not(one: ast.expr, other: ast.expr) -> ast.Compare:
    return Compare(one, [_IS_NOT], [other])


def in_(one: ast.expr, other: ast.expr) -> ast.Compare:
    return Compare(one, [_IN], [other])


def not_in(one: ast.expr, other: ast.expr) -> ast.Compare:
    return Compare(one, [_NOT_IN], [other])


def equals(one: ast.expr, other: ast.expr) -> ast.Compare:
    return Compare(one, [_EQ], [other])


def less(one: ast.expr, other: ast.expr) -> ast.Compare:
    return Compare(one, [_LT], [other])


def plus(one: ast.expr, other: ast.expr) -> ast.BinOp:
    return BinOp(one, _PLUS, other)


def minus(one: ast.expr, other: ast.expr) -> ast.BinOp:
    return BinOp(one, _MINUS, other)


def times(one: ast.expr, other: ast.expr) -> ast.BinOp:
    return BinOp(one, _TIMES, other)


def either(one: ast.expr, other: ast.expr) -> ast.BoolOp:
    return BoolOp(_OR, [one, other])


def both(one: ast.expr, other: ast.expr) -> ast.BoolOp:
    return BoolOp(_AND, [one, other])


def choice(test: ast.expr, one: ast.expr, other: ast.expr) -> ast.IfExp:
    return IfExp(test, one, other)


def new_dict(key: ast.expr | None = None, value: ast.expr | None = None) -> ast.Dict:
    """`{}` or `{key: value}`."""
    return Dict([], []) if key is None or value is None else Dict([key], [value])


def new_list(*elements: ast.expr) -> ast.List:
    return List(list(elements), _LOAD)


def new_tuple(*elements: ast.expr) -> ast.Tuple:
    return Tuple(list(elements), _LOAD)


def do(expression: ast.expr) -> ast.Expr:
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
