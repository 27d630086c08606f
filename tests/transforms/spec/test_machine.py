"""The machine in C and Python's compiler: one function, two back ends, and nobody can determine which one runs."""

from __future__ import annotations

import copy
import gc
import itertools
import json
import sys
import threading
from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.mapping_cases import MappingCase, cases
from idgraph import native
from idgraph.model import canonical
from idgraph.model.errors import SpecError, TransformError
from tests.lanes import examples
from tests.oracle.generation import GENERATORS, task_of
from tests.transforms.spec.test_generated_code import OPERATIONS, SPECS
from transforms import compile_spec

pytestmark = pytest.mark.skipif(native.built_programs is None, reason=f"the machine is {native.state}")

Transform = Callable[..., Any]


@pytest.fixture(autouse=True)
def both() -> Any:
    yield
    native.use(True)


def back_ends(spec: Any) -> tuple[Transform, Transform]:
    """What a spec becomes with the machine and without."""
    native.use(True)
    machine = compile_spec(spec)
    native.use(False)
    return machine, compile_spec(spec)


def outcome(transform: Transform, *arguments: Any) -> Any:
    """What comes out, by its `repr`: 1, 1.0 and True are not the same."""
    try:
        return repr(transform(*arguments))
    except TransformError as error:
        return type(error), error.pointer, error.message, error.__suppress_context__, repr(error.__cause__)


def is_program(transform: Transform) -> bool:
    return type(transform).__name__ == "Program"


class Text(str):
    __slots__ = ()


class Whole(int):
    __slots__ = ()


class Object(dict[str, Any]):
    pass


class Array(list[Any]):
    pass


class Torn(dict[str, Any]):
    """An object that cannot be read."""

    def __getitem__(self, key: str) -> Any:
        raise ZeroDivisionError

    def get(self, key: str, default: Any = None) -> Any:
        raise ZeroDivisionError


class Equal:
    """Nothing that JSON has; to compare it fails."""

    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "Equal()"


def nest(levels: int) -> Any:
    made: Any = 1
    for level in range(levels):
        made = {"a": made} if level % 2 else [made]
    return made


KEYS = st.sampled_from(["a", "b", "c", "rating", "x.y", "0", "1", "\ud800", "é", "a" * 200]) | st.text(
    max_size=3
)
ODD = st.sampled_from(
    [
        Text("a"),
        Whole(3),
        2**14_000,
        -(2**63),
        Decimal("1.50"),
        float("nan"),
        "x" * 600,
        "\ud800",
        (),
        nest(40),
        nest(400),
        {Text("a"): 1, "b": 2},
    ]
)
# Containers that JSON does not make: what bounds the depth of an output must not meet them.
FOREIGN = st.sampled_from(
    [Object(a=1, b={"c": 2}), Array([1, {"a": 2}]), Torn(a=1, b=2, c=3), Equal(), len, 5j]
)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6)
VALUES = st.recursive(
    PLAIN | ODD,
    lambda below: st.lists(below, max_size=4) | st.dictionaries(KEYS, below, max_size=5),
    max_leaves=12,
)


@settings(max_examples=examples(200), deadline=None)
@given(st.sampled_from(list(GENERATORS)), st.integers(0, 10**9), VALUES, VALUES)
def test_generated_specs(operation: str, seed: int, hostile: Any, context: Any) -> None:
    task = task_of(Random(seed), operation)
    try:
        machine, python = back_ends(task["spec"])
    except SpecError:
        return
    for payload in (task["input"], spoilt(task["input"], hostile, Random(seed)), hostile):
        before = repr(payload)
        for given_context in (None, task.get("context"), context):
            assert outcome(machine, payload, given_context) == outcome(python, payload, given_context)
        assert repr(payload) == before


def spoilt(payload: Any, hostile: Any, random: Random) -> Any:
    """The payload with something else at one place."""
    if isinstance(payload, dict | list) and payload and random.random() < 0.9:
        made = copy.copy(payload)
        place = random.choice(list(payload) if isinstance(payload, dict) else range(len(payload)))
        made[place] = spoilt(payload[place], hostile, random)
        return made
    return hostile


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(OPERATIONS, SPECS), min_size=1, max_size=3), SPECS | VALUES)
def test_hostile_specs(operations: list[tuple[str, Any]], payload: Any) -> None:
    try:
        machine, python = back_ends([{"operation": name, "spec": spec} for name, spec in operations])
    except SpecError:
        return
    assert outcome(machine, payload) == outcome(python, payload)


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.name)
def test_real_events(case: MappingCase) -> None:
    machine, python = back_ends(case.spec)
    assert is_program(machine)
    payloads = [canonical.decode(line) for line in case.lines]
    # Twice: what is known of the first objects reports where to look in the others.
    for payload in payloads * 2:
        assert outcome(machine, payload) == outcome(python, payload)
    # Keys that are other objects, in another order, some of them gone.
    random = Random(case.name)
    for line in case.lines[:200]:
        assert outcome(machine, shuffled(json.loads(line), random)) is not None
    for line in case.lines[:200]:
        payload = shuffled(json.loads(line), random)
        assert outcome(machine, payload) == outcome(python, payload)


def shuffled(value: Any, random: Random) -> Any:
    if isinstance(value, list):
        return [shuffled(each, random) for each in value]
    if not isinstance(value, dict):
        return value
    keys = random.sample(list(value), k=len(value))
    made = {"".join(key): shuffled(value[key], random) for key in keys}
    for key in keys[:1]:
        # What is taken away leaves a gap among the entries.
        if random.random() < 0.3:
            del made[key]
    return made


def test_a_spec_that_changes_what_it_walks() -> None:
    spec = [{"operation": "shift", "spec": {"user": ["u", "u.copy"], "ts": "u.ts", "*": {"*": "user.&"}}}]
    machine, python = back_ends(spec)
    payload = {"user": {"a": 1}, "ts": 2, "other": {"b": 3, "c": 4}, "user2": {"a": {"z": 1}}}
    before = copy.deepcopy(payload)
    for _ in range(3):
        assert outcome(machine, payload) == outcome(python, payload)
    assert payload == before


def while_another_is_handled(transform: Transform, payload: Any) -> Exception | None:
    try:
        raise KeyError("outer")
    except KeyError:
        try:
            transform(payload)
        except TransformError as error:
            return error
    return None


def test_exceptions_stand_alone() -> None:
    spec = {"operation": "modify-overwrite-beta", "spec": {"a": "=toLower(@(1,b))"}}
    for transform in back_ends(spec):
        found = while_another_is_handled(transform, {"b": "x" * 2_000_000})
        assert isinstance(found, TransformError)
        assert found.__cause__ is None
        assert found.__suppress_context__
        assert isinstance(found.__context__, TransformError)
        assert isinstance(found.__context__.__context__, KeyError)
    assert sys.exc_info() == (None, None, None)


def test_arguments() -> None:
    machine, python = back_ends({"operation": "shift", "spec": {"a": "b"}})
    assert is_program(machine)
    for transform in (machine, python):
        assert transform({"a": 1}) == transform({"a": 1}, None) == {"b": 1}
        for count in (0, 120):
            with pytest.raises(TypeError):
                transform(*[{}] * count)
        with pytest.raises(TypeError):
            transform({}, none=None)


@pytest.mark.long
def test_no_reference_is_left() -> None:
    chosen = list(cases())
    runs = []
    for case in chosen:
        native.use(True)
        runs.append((compile_spec(case.spec), [canonical.decode(line) for line in case.lines[:20]]))
    bad = [None, [], "x", 5, {"type": [1]}, {"protoPayload": nest(300)}, nest(300), {"event": {"a": Text()}}]

    def rounds(count: int) -> None:
        for (transform, payloads), _ in itertools.product(runs, range(count)):
            for payload in (*payloads, *bad):
                try:
                    transform(payload)
                except TransformError as error:
                    error.__traceback__ = None

    rounds(20)
    gc.collect()
    before, none, true = sys.getallocatedblocks(), sys.getrefcount(None), sys.getrefcount(True)
    rounds(50)
    gc.collect()
    assert abs(sys.getallocatedblocks() - before) < 200
    assert abs(sys.getrefcount(None) - none) < 200
    assert abs(sys.getrefcount(True) - true) < 200


def test_programs_are_collected() -> None:
    gc.collect()
    gc.freeze()  # What is there already takes seconds to be looked at.

    def programs() -> int:
        return sum(is_program(each) for each in gc.get_objects())

    before = programs()
    for _ in range(5):
        # The function and what starts it over refer to each other.
        compile_spec({"operation": "shift", "spec": {"user": "u", "ts": "u.ts"}})({"user": {}, "ts": 1})
    gc.collect()
    assert programs() == before


def test_threads_share_a_function() -> None:
    case = next(case for case in cases() if case.name == "gcp")
    machine, python = back_ends(case.spec)
    payloads = [json.loads(line) for line in case.lines[:100]]
    wanted = [outcome(python, payload) for payload in payloads]
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(10):
            wrong.extend(
                payload
                for payload, want in zip(payloads, wanted, strict=True)
                if outcome(machine, payload) != want
            )

    threads = [threading.Thread(target=work) for _ in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []


def _number(name: str) -> int:
    assert native.built_programs is not None
    return native.built_programs.INSTRUCTIONS[name][0]


@pytest.mark.parametrize(
    "code",
    [
        [],
        [9999],
        [-1],
        ["RETURN"],
        ["RETURN", 5],
        ["RETURN", -3],
        ["RETURN", 2**40],
        ["MOVE", 0, -1],
        ["MOVE", -1, 0, "RETURN", 0],
        ["JUMP", 1],
        ["JUMP", 99],
        ["JUMP", -1],
        ["NEW_LIST", 0, 1000, "RETURN", 0],
        ["NEW_LIST", 0, -1, "RETURN", 0],
        ["CALL_METHOD", 0, -1, 0, "RETURN", 0],
        ["ITERATE", 0, 0, "RETURN", 0],
        ["GET", 0, 0, -1, -9, "RETURN", 0],
    ],
)
def test_what_is_no_program_is_refused(code: list[Any]) -> None:
    assert native.built_programs is not None
    numbers = [_number(each) if isinstance(each, str) else each for each in code]
    with pytest.raises(ValueError, match=r"no program|out of range"):
        native.built_programs.Program(numbers, ("a",), (1, 1, 2, 0), ())


@pytest.mark.parametrize("taken", [["NEXT", 0, 0], ["NEXT_TWO", 0, 0, 0], ["NEXT_THREE", 0, 0, 0, 0]])
def test_items_of_a_dict_are_taken_as_nothing_else(taken: list[Any]) -> None:
    assert native.built_programs is not None
    code = ["ITERATE_ITEMS", 0, 0, *taken, 4 + len(taken), "RETURN", 0]
    numbers = [_number(each) if isinstance(each, str) else each for each in code]
    program = native.built_programs.Program(numbers, (), (1, 1, 1, 1), ())
    with pytest.raises(TypeError, match="two at once"):
        program({"a": 1})


@settings(max_examples=examples(1000), deadline=None)
@given(st.lists(st.integers(0, 99), max_size=20), st.integers(0, 10**9), VALUES | FOREIGN)
def test_no_program_can_crash(numbers: list[int], seed: int, payload: Any) -> None:
    """Whatever the instructions, in whatever order: a value comes out, or an exception."""
    assert native.built_programs is not None
    instructions = list(native.built_programs.INSTRUCTIONS.values())
    random = Random(seed)
    made: list[int | None] = []
    for wanted in numbers:
        number, kinds = instructions[wanted % len(instructions)]
        made.append(number)
        for kind in kinds:
            # All jumps lead to the end, so that each run has one.
            made.append(None if kind == "j" else 2 if kind == "*" else random.randrange(1, 3))
            made += [random.randrange(-4, 3) for _ in range(2 if kind == "*" else 0)]
    end = len(made)
    code = [end if each is None else each for each in (*made, _number("RETURN"), 1)]
    constants = ("a", [1, {"a": 2}], len, "items")
    program = native.built_programs.Program(code, constants, (1, 1, 3, 3), ((Exception, 1, end),))
    assert program(copy.copy(payload)) is not Ellipsis
