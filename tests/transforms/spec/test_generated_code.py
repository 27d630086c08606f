"""No spec can become code: whatever its texts are, the generated function holds them as constants only."""

from __future__ import annotations

import ast
import builtins
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idgraph.model.errors import SpecError, TransformError
from tests.lanes import examples
from transforms import compile_spec
from transforms.spec.generation import code, nodes
from transforms.spec.generation.code import Code, VerificationError, build, verify

HOSTILE = [
    "__import__('os').system('x')",
    "__class__",
    "v0",
    "x1",
    "None",
    "lambda",
    "'",
    '"""',
    "\\",
    "a\nraise SystemExit",
    "{0.__class__}",
    "%s",
    "\ud800",
    "\x00",
    "é\u202e",
    "😀",
    "f'{exit()}'",
    "# -*- coding: x -*-",
    "]);exit(",
    "9" * 50,
    "",
]


def escaped(text: str) -> str:
    """The text as a literal key of a spec."""
    return "".join(f"\\{character}" if character in '.*&@$#[]()|,\\"^=' else character for character in text)


KEYS = st.sampled_from(HOSTILE) | st.text(max_size=12)
RIGHT = KEYS.map(escaped) | KEYS
LEAVES = RIGHT | st.integers() | st.floats() | st.none() | st.booleans() | st.lists(RIGHT, max_size=2)
SPECS = st.recursive(
    LEAVES,
    lambda below: st.dictionaries(
        KEYS.map(escaped) | KEYS | st.sampled_from(["*", "@", "$", "&", "@(1,a)", "a|b"]), below, max_size=4
    ),
    max_leaves=8,
)
OPERATIONS = st.sampled_from(
    ["shift", "default", "remove", "cardinality", "modify-overwrite-beta", "modify-define-beta", "jmespath"]
)


Built = tuple[ast.AST, frozenset[str], dict[str, Any]]


def compiled(spec: Any) -> tuple[Any, Built]:
    """The function of a spec, and what it was built from."""
    seen: list[Built] = []

    def watched(function: Any, names: frozenset[str], bound: dict[str, Any]) -> Any:
        seen.append((function, names, bound))
        return build(function, names, bound)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transforms.spec.generation.code.build", watched)
        transform = compile_spec(spec)
    (only,) = seen
    return transform, only


def check_tree(tree: ast.AST, names: frozenset[str], bound: dict[str, Any]) -> None:
    """The guarantee in other words than those of `verify`."""
    assert all(name[0] in "abcdefghijklmnopqrstuvwxyz" and name[1:].isdigit() for name in names)
    assert set(bound) <= names
    dangerous = {
        vars(builtins)[name] for name in ("eval", "exec", "compile", "open", "getattr", "__import__")
    }
    assert not any(value in dangerous for value in bound.values() if isinstance(value, type(len)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            assert node.id in names
        if isinstance(node, ast.Attribute):
            assert node.attr in code.METHODS
        assert not isinstance(node, ast.Import | ast.ImportFrom | ast.Lambda | ast.JoinedStr | ast.Global)


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(st.tuples(OPERATIONS, SPECS), min_size=1, max_size=3), SPECS)
def test_hostile_specs(operations: list[tuple[str, Any]], payload: Any) -> None:
    try:
        transform, built = compiled([{"operation": name, "spec": spec} for name, spec in operations])
    except SpecError:
        return
    check_tree(*built)
    try:
        transform(payload)
    except TransformError:
        return


# How a path spells a lone backslash is a matter of its own.
@pytest.mark.parametrize("key", [key for key in HOSTILE if key not in ("", "\\")])
def test_hostile_keys_are_keys(key: str) -> None:
    chain = [
        {"operation": "shift", "spec": {escaped(key): f"out.{escaped(key)}", "other": {escaped(key): "o.p"}}},
        {"operation": "modify-overwrite-beta", "spec": {"out": {"x": "text"}}},
        {"operation": "default", "spec": {"d": key}},
    ]
    transform, built = compiled(chain)
    assert transform({key: 1, "other": {key: 2}}) == {
        "out": {key: 1, "x": "text"},
        "o": {"p": 2},
        "d": key,
    }
    check_tree(*built)


def _function(*body: ast.stmt) -> ast.FunctionDef:
    arguments = ast.arguments([], [nodes.Argument("v0", None)], None, [], [], None, [])
    return nodes.FunctionDef("f1", arguments, list(body), [], None)


def _foreign(source: str) -> ast.stmt:
    return ast.parse(source).body[0]


NAMES = frozenset(["v0", "f1"])
V0 = nodes.name("v0")


@pytest.mark.parametrize(
    "statement",
    [
        _foreign("import os"),
        _foreign("v0 = 1"),
        nodes.do(nodes.name("open")),
        nodes.do(nodes.method(V0, "__class__")),
        nodes.do(nodes.method(V0, "format")),
        nodes.do(nodes.call(nodes.call(V0))),
        nodes.do(nodes.Constant(b"bytes")),
        nodes.do(nodes.Constant(("a", "b"))),  # type: ignore[arg-type]
        nodes.do(nodes.Constant(type("Text", (str,), {})("sub"))),
        nodes.do(nodes.Call(V0, [], [ast.keyword("x", V0)])),
        nodes.do(ast.Name("v0", ast.Load(), lineno=1, col_offset=0)),
        nodes.do(_foreign("lambda: 0").value),  # type: ignore[attr-defined]
        nodes.assign("__builtins__", V0),
        _function(),
    ],
)
def test_what_is_on_no_list_is_refused(statement: ast.stmt) -> None:
    bad = _function(statement)
    if isinstance(statement, nodes.FunctionDef):
        bad.decorator_list = [V0]
    with pytest.raises(VerificationError):
        verify(bad, NAMES)


def test_generated_code_sees_no_builtins() -> None:
    run = code.compiled(_function(nodes.Return(V0)), {})
    assert run.__globals__["__builtins__"] == {}
    assert run(5) == 5


def test_names_come_from_the_generator() -> None:
    code = Code()
    assert code.fresh("v") != code.fresh("v")
    assert code.bind(len).id == code.bind(len).id


def nested(depth: int, inner: Any) -> Any:
    for _ in range(depth):
        inner = {"a": inner}
    return inner


def test_deep_and_large_specs_compile_or_are_refused() -> None:
    deep = {"operation": "shift", "spec": nested(60, {"*": ".".join("b" * 60)})}
    found = compile_spec(deep)(nested(61, 1))
    for _ in range(60):
        found = found["b"]
    assert found == 1
    long_path = {"a": ".".join("b" * 5000)}
    many = {f"k{number}": f"{'.'.join('b' * 200)}.k{number}" for number in range(300)}
    for spec in (long_path, many):
        with pytest.raises(SpecError, match="too"):
            compile_spec({"operation": "shift", "spec": spec})


@pytest.mark.parametrize("operation", ["shift", "modify-overwrite-beta"])
def test_wildcards_are_bounded(operation: str) -> None:
    def wildcards(depth: int) -> Any:
        spec: Any = "x" if operation == "shift" else "=noop"
        for _ in range(depth):
            spec = {"*": spec}
        return {"operation": operation, "spec": spec}

    assert compile_spec(wildcards(16))({}) in (None, {})
    with pytest.raises(SpecError, match="inside one another"):
        compile_spec(wildcards(17))


def test_steps_are_counted() -> None:
    chain = {
        "operation": "shift",
        "spec": {"l": {"*": {"@(2,l)": {"*": {"@(4,l)": {"*": {"@(6,l)": {"*": "x"}}}}}}}},
    }
    with pytest.raises(TransformError, match="steps") as caught:
        compile_spec([chain])({"l": list(range(300))})
    assert caught.value.pointer == "/0"


BIG = "x," * 2_000_000


@pytest.mark.parametrize(
    "expression",
    [
        "=toLower",
        "=trim",
        "=split(',',@(1,a))",
        "=concat(@(1,a),@(1,a))",
        "=join('-',@(1,a),@(1,a))",
        "=toUpper(@(1,a))",
    ],
)
def test_long_texts_are_errors(expression: str) -> None:
    transform = compile_spec({"operation": "modify-overwrite-beta", "spec": {"a": expression}})
    with pytest.raises(TransformError, match="long"):
        transform({"a": BIG})


@pytest.mark.parametrize("function", ["concat(@(2,a),'x')", "toLower(@(2,a))", "split(',',@(2,a))"])
def test_texts_made_in_a_loop_are_bounded(function: str) -> None:
    chain = [{"operation": "modify-overwrite-beta", "spec": {"l": {"*": f"={function}"}}}]
    with pytest.raises(TransformError, match=r"steps|parts"):
        compile_spec(chain)({"a": "x," * 250_000, "l": list(range(10_000))})


@pytest.mark.filterwarnings("error")
def test_functions_of_constants_compile_without_a_warning() -> None:
    for right in ("=split(',','a,b')", "=toString('a')", "=toLower('a')", "=size('a')", "=concat('a','b')"):
        compile_spec({"operation": "modify-overwrite-beta", "spec": {"v": right}})
