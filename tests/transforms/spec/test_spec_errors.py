"""Messages to people who wrote a wrong spec: the found text, the expected one, the nearest name."""

from __future__ import annotations

from typing import Any

import pytest

from idgraph.model.errors import SpecError
from transforms import compile_spec


@pytest.mark.parametrize(
    ("operation", "spec", "message", "hint"),
    [
        ("shfit", {}, "there is no operation 'shfit'; expected one of shift, default", "'shift'"),
        ("Shift", {}, "there is no operation 'Shift'", "'shift'"),
        ("com.acme.Mask", {}, "'com.acme.Mask' names a Java class; specs here cannot run Java code", None),
        (None, {}, "the key 'operation' is missing", None),
        (5, {}, "expected the name of an operation, found 5", None),
        ("shift", [], "expected an object as the spec of shift, found an empty array", None),
        ("shift", {"a": 5}, "or an object, found 5", None),
        ("shift", {"a": "&3"}, "there are not 3 levels above this place, only 2", None),
        ("default", {"a*": 1}, "in default '*' must be the whole key, found 'a*'", None),
        ("remove", {"a": "b"}, 'to go on below it, found "b"', None),
        ("cardinality", {"a": "one"}, 'to go on below the key, found "one"', "'ONE'"),
        ("cardinality", {"a*": "ONE", "b*": "ONE"}, "found 'a*' and 'b*'", None),
        ("modify-overwrite-beta", {"a": "=tolower"}, "there is no function 'tolower'", "'toLower'"),
        ("modify-overwrite-beta", {"a": "=trim(@(1,a)"}, "'@(' is not closed in '@(1,a'", None),
        ("jmespath", {"a": True}, "expected a JMESPath expression or an object, found true", None),
        ("jmespath", {"a": "trm(b)"}, "there is no function 'trm'", "'trim'"),
        ("jmespath", {"a": "trim(a, b)"}, "trim() takes 1 argument, found 2", None),
        ("jmespath", {"a": "x" * 99 + "("}, "JMESPath, character 101: expected more", "'(' is not closed"),
        ("jmespath", {"a": " "}, "expected a JMESPath expression, found empty text", None),
        ("jmespath", {"a": "b.(c)"}, "JMESPath, character 3: expected a key or '[' or '{', found '('", None),
        ("jmespath", {"a": "b[?c = 'x']"}, "JMESPath, character 6: '=' cannot stand here", "'=='"),
        ("jmespath", {"a": "b-c"}, "JMESPath, character 2: '-' cannot stand here", "double quotes"),
        ("jmespath", {"a": "lower('b)"}, "JMESPath, character 7: the ' is not closed", None),
    ],
)
def test_messages(operation: Any, spec: Any, message: str, hint: str | None) -> None:
    with pytest.raises(SpecError) as caught:
        compile_spec([{"operation": operation, "spec": spec}])
    assert message in caught.value.message
    assert (hint is None) is (caught.value.hint is None)
    assert (hint or "") in (caught.value.hint or "")


def test_the_character_within_an_expression() -> None:
    with pytest.raises(SpecError) as caught:
        compile_spec({"operation": "jmespath", "spec": {"a": "b.c["}})
    assert (caught.value.pointer, caught.value.offset) == ("/spec/a", 4)
    assert caught.value.under("/operations/0").offset == 4
