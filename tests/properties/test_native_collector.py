"""What is native holds what it works with: allocating may run the collector, and with that finalizers."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from idgraph import native
from idgraph.model import canonical
from idgraph.model.events import RawRecord
from idgraph.model.fragments import Kind, Origin, Register
from idgraph.model.identifiers import Identifier
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.sources import FileSource
from idgraph.model.stamps import SpecRef, Stamp
from ingestion.stages.decode import EnvelopeReader
from merge import documents
from merge.fragments import FragmentState
from tests.properties.references import ORIGIN
from tests.retail import spec
from transforms.schema.attribute_nodes import Leaves
from transforms.schema.diff import AttributeTree
from transforms.spec.mapping import MappingSpec

pytestmark = [
    pytest.mark.skipif(native.state != "in use", reason=f"native code is {native.state}"),
    pytest.mark.long,
]

ROOT = Path(__file__).parents[2]
# Since 3.12 the collector waits until no C code runs.
at_once = pytest.mark.skipif(sys.version_info >= (3, 12), reason="the collector waits for C code")


def alone(code: str) -> str:
    """What code prints in a process of its own, which may crash."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT, timeout=120
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout


@contextmanager
def finalizing(work: Callable[[], Any]) -> Iterator[None]:
    """Has the collector run at every chance, and `work` with it, once."""

    class Finalized:
        me: Any

        def __del__(self) -> None:
            work()

    thresholds = gc.get_threshold()
    gc.collect()
    each = Finalized()
    each.me = each
    gc.set_threshold(1)
    del each
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


JOIN_IN_A_FINALIZER = """
import gc
from merge import codec, documents
from merge.fragments import FragmentState
from idgraph import native
from idgraph.model.fragments import Origin
from idgraph.model.stamps import SpecRef, Stamp

def state(size, tag):
    made = FragmentState()
    origin = Origin(Stamp(0, 1, "source", tag), SpecRef("spec", 1))
    for number in range(size):
        made.identifiers[f"{tag}:{number:03d}"] = origin
    made.normalise()
    return made.encode()

few, many = state(22, "few"), state(31, "many")

class Finalized:
    def __del__(self):
        native.states.join_all((codec.body(many), codec.body(many)))

wanted = frozenset(f"few:{number:03d}" for number in range(22))
gc.set_threshold(1, 1, 1)
for _ in range(5000):
    each = Finalized()
    each.me = each
    del each
    assert native.states.identifiers(few, "") == (wanted, None)
"""


def test_a_join_while_identifiers_are_read() -> None:
    alone(JOIN_IN_A_FINALIZER)


# An object that the collector does not know goes when what holds it is cleared: here, the function it calls.
CALLED_WHEN_CLEARED = """
import ctypes, gc
from idgraph import native

class Last:
    def __init__(self):
        ctypes.pythonapi.PyObject_GC_UnTrack(ctypes.py_object(self))
    def __call__(self, value):
        return cycle
    def __del__(self):
        try:
            ctypes.cast(address, ctypes.py_object).value(asked)
        except RuntimeError as error:
            print(error)

gc.disable()
cycle = {}
%s
address = id(made)
cycle["made"] = made
del made, cycle
gc.collect()
"""


@pytest.mark.parametrize(
    ("making", "reported"),
    [
        (
            "asked = 1; number = native.programs.INSTRUCTIONS['RETURN'][0]\n"
            "made = native.programs.Program([number, -1], (Last(), cycle), (1, 1, 1, 0), ())",
            "program",
        ),
    ],
    ids=["program"],
)
def test_what_the_collector_took_apart_says_so(making: str, reported: str) -> None:
    assert alone(CALLED_WHEN_CLEARED % making) == f"the collector has taken this {reported} apart\n"


def encoded() -> bytes:
    origin = Origin(Stamp(0, 1, "s", "e"), SpecRef("m", 1))
    state = FragmentState()
    state.registers["a"] = Register(origin, Kind.PLAIN, 1)
    state.registers["b"] = Register(origin, Kind.PLAIN, [1])
    state.normalise()
    return state.encode()


def undecodable(*_: Any) -> Any:
    return b"\xff".decode()


@pytest.mark.parametrize(
    "asked", [(undecodable, lambda *_: 1), (lambda _: True, undecodable)], ids=["is_indexable", "odd"]
)
def test_what_the_asked_raise_is_passed_on(asked: tuple[Any, Any]) -> None:
    assert native.states is not None
    with pytest.raises(UnicodeDecodeError):
        native.states.fields((encoded(),), *asked)


@pytest.mark.parametrize("number", ["9007199254740993.0", "12345678901234567890.0", "0.1", "1e16", "-0.0"])
def test_a_number_is_in_the_index_what_its_twin_makes_of_it(number: str) -> None:
    """Decimals that no double holds were the nearest double where a state had its bytes, else the exact number."""
    state = FragmentState()
    origin = Origin(Stamp(0, 1, "s", "e"), SpecRef("n", 1))
    state.registers["a"] = Register(origin, Kind.PLAIN, canonical.decode(number.encode()))
    state.normalise()
    stored = state.encode()
    assert native.states is not None
    found = native.states.fields((stored,), lambda _: True, documents.shown_of_json)
    expected = documents._fields_of_state(FragmentState.decode(stored), lambda _: True)
    assert repr(found) == repr(expected)


def test_text_that_is_none_is_left_to_the_twin() -> None:
    assert native.states is not None
    assert native.states.fields((encoded().replace(b'"a"', b'"\xff"'),), lambda _: True, lambda *_: 1) is None


@at_once
def test_an_array_that_grows_while_its_members_are_taken() -> None:
    assert native.functions is not None
    array = list(range(60))
    members = native.functions.reference("members", len)
    with finalizing(lambda: array.extend(range(4000))):
        found = members(array)
    # When the collector runs is its own affair: before the array was taken whole, or behind it.
    assert found in (4060, {str(place): place for place in range(60)})


def walked(work: Callable[[], Any], output: dict[str, Any]) -> tuple[str, Any]:
    """What a walk raises, and gives, whose detectors do some work when they are first asked."""
    assert native.leaves is not None
    tree = AttributeTree(MetadataSnapshot(version=1))
    tree.leaves({"a": {"b": "x", "c": 1}}, ORIGIN)
    (node,) = tree._root.children.values()
    odd = next(iter(node.children.values()))
    found = Leaves({}, [], [])

    def rest(*_: Any) -> None:
        work()
        for slot in ("path", "tests", "kinds"):
            if hasattr(odd, slot):
                delattr(odd, slot)
        node.children.clear()

    place = tree._root, output, "_event", ORIGIN, (Identifier("u", "1"),)
    try:
        return "", native.leaves.state(*place, {}, found, *found[:2], rest, canonical.encode)
    except RuntimeError as error:
        return str(error), None


def test_an_output_that_changes_while_it_is_walked_raises() -> None:
    output: dict[str, Any] = {"a": {"b": "one of 23 long texts to ask for", "c": 2, "d": "?"}}
    reported, _ = walked(output["a"].clear, output)
    assert "changed size" in reported


def test_nodes_that_are_gone_while_they_are_walked_are_left_to_the_twin() -> None:
    output = {"a": {"b": "one of 23 long texts to ask for", "n": [1], "c": 2}}
    reported, state = walked(gc.collect, output)
    assert (reported, state) == (
        "",
        b'[[[0,1,"shop","e","spec",1]],{"a.b":[0,1,"one of 23 long texts to ask for"]},[],{"u:1":0},{}]',
    )


def test_readers_and_mappers_go_with_what_they_belong_to() -> None:
    config = FileSource.model_validate({"name": "s", "path": "x"})
    made: list[weakref.ref[Any]] = [
        weakref.ref(MappingSpec(spec("orders"))),
        weakref.ref(EnvelopeReader(config)),
    ]
    gc.collect()
    assert [each() for each in made] == [None, None]


@at_once
def test_a_half_made_event_survives_the_collector() -> None:
    reader = EnvelopeReader(FileSource.model_validate({"name": "s", "path": "x", "ordinal": {"path": "t"}}))
    record = RawRecord("s", "file:x#1", b'{"t":"2024-03-01T00:00:00Z","a":1}')
    expected = reader.read(record)
    for _ in range(20):
        with finalizing(lambda: [{} for _ in range(1000)]):
            assert reader.read(record) == expected
