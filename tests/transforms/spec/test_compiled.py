"""A snapshot's specs, compiled when first needed: those with the same operations once."""

from __future__ import annotations

import ast
import gc
from typing import Any

import pytest

from idgraph.model.errors import SpecError
from idgraph.model.events import Event
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.specs import SpecDocument
from tests.retail import snapshot as retail_snapshot
from tests.retail import spec
from transforms import compile_spec
from transforms.spec import mapping
from transforms.spec.chain import Transform
from transforms.spec.mapping import CompiledSnapshot


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The operations that were compiled."""
    reported: list[Any] = []

    def counted(operations: Any) -> Transform:
        reported.append(operations)
        return compile_spec(operations)

    monkeypatch.setattr(mapping, "compile_spec", counted)
    return reported


def document(name: str, value: Any = 1, version: int = 1, **changed: Any) -> SpecDocument:
    operations = [
        {"operation": "shift", "spec": {"id": "user"}},
        {"operation": "default", "spec": {"x": value}},
    ]
    place = {"type": "u", "path": "user", "primary": True}
    content = {"name": name, "event_type": name, "operations": operations, "identifiers": [place], **changed}
    return spec("orders").model_validate(
        {"source": "s", "id": "user", "version": version, "created": "2026-01-01T00:00:00Z", **content}
    )


def snapshot(version: int, *specs: SpecDocument) -> MetadataSnapshot:
    return MetadataSnapshot(version=version, specs=specs)


def mapped(known: CompiledSnapshot, event_type: str) -> Any:
    found = known.spec_for("s", event_type)
    assert found is not None
    event = Event("s", event_type, "e", 1, "file:x#1", {"id": "7"}, b"")
    made = found.map(event)
    assert made is not None
    return found.ref, made.stamp.priority, made.identifiers, made.output


def test_specs_with_the_same_operations_are_compiled_once(compiled: list[Any]) -> None:
    known = CompiledSnapshot(snapshot(1, document("a"), document("b", priority=5), document("c", 2)))
    found = {name: mapped(known, name) for name in "abc"}
    assert len(compiled) == 2
    assert [found[name][:2] for name in "abc"] == [
        (document("a").ref, 0),
        (document("b").ref, 5),
        (document("c").ref, 0),
    ]
    assert [found[name][3]["x"] for name in "abc"] == [1, 1, 2]


@pytest.mark.parametrize(
    ("one", "other"), [(1, True), (1, 1.0), (0.0, -0.0), ({"k": 1, "l": 2}, {"l": 2, "k": 1}), (1, "1")]
)
def test_what_only_compares_as_equal_is_compiled_by_itself(compiled: list[Any], one: Any, other: Any) -> None:
    known = CompiledSnapshot(snapshot(1, document("a", one), document("b", other)))
    for name, value in (("a", one), ("b", other)):
        output = mapped(known, name)[3]
        assert repr(output["x"]) == repr(value)
    assert len(compiled) == 2


def test_an_edit_that_leaves_the_operations_compiles_nothing(compiled: list[Any]) -> None:
    before, after = snapshot(1, document("a")), snapshot(2, document("a", version=2, priority=3))
    known = CompiledSnapshot(before)
    mapped(known, "a")
    known = CompiledSnapshot(after, known)
    assert mapped(known, "a")[:2] == (document("a", version=2).ref, 3)
    assert len(compiled) == 1
    # What the edit before last left is forgotten.
    for version in (3, 4):
        known = CompiledSnapshot(snapshot(version, document("a", version, version)), known)
        mapped(known, "a")
    assert len(known._by_operations) <= 2


def test_a_compiled_spec_keeps_nothing_of_what_it_was_made_of() -> None:
    def nodes() -> int:
        gc.collect()
        return sum(isinstance(each, ast.AST) for each in gc.get_objects())

    gc.freeze()  # What is there already takes seconds to be looked at.
    before = nodes()
    known = CompiledSnapshot(retail_snapshot())
    for source in ("segment", "amplitude", "orders"):
        assert known.spec_for(source, "any")
    assert nodes() == before


def test_what_does_not_compile_is_reported_to_each(compiled: list[Any]) -> None:
    wrong = [{"operation": "no such"}]
    known = CompiledSnapshot(snapshot(1, document("a", operations=wrong), document("b", operations=wrong)))
    for name in "aab":
        with pytest.raises(SpecError, match="no operation 'no such'"):
            known.spec_for("s", name)
    assert len(compiled) == 2
