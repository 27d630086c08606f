"""A spec that one person may publish stores nothing of a protected value in the clear, and nothing that was chosen by
it."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from sqlalchemy.orm import Session

from idgraph.model.attributes import AttributeDefinition, EncryptionLevel
from idgraph.model.errors import SpecError
from idgraph.model.fragments import Kind
from idgraph.model.specs import SpecDefinition, SpecDocument
from ingestion.stages.map_output import MapOutput
from metadata_service.attributes.catalogue import carry_out, plan_attribute
from metadata_service.specs.approval import opened_by_definition
from metadata_service.specs.catalogue import put_in_force, put_spec, retire_spec
from metadata_service.storage.database import open_database
from tests.lanes import examples
from tests.metadata_service.conftest import sqlite_url
from tests.retail import UNDETECTED, Pipeline, attribute, raw, snapshot, states_of
from tests.transforms.spec.test_value_flow import ARRAYS, MODIFIES, OPERATIONS, SHIFTS, VALUES, shift
from transforms import compile_spec

PROTECTED = ("vault", "z")
PLACES = {("a",): "one", ("b", "c"): "other", ("b",): "whole"}
"""Places of the input, with the source of which a version put them into the vault. It is retired: its protection stays."""
HONEST = {
    "one": [shift({"who": "who", "a": "vault.a"})],
    "other": [shift({"who": "who", "b": {"c": "vault.c"}})],
    "whole": [{"operation": "jmespath", "spec": {"who": "who", "vault.b": "b"}}],
}
PAIRS = [("5a", "6b"), (15, 16), ("15", "16"), (True, False)]
"""Values of one form, which functions of a value alone may show."""

TESTING = st.sampled_from(["5a", "5*", "15", "1*", "true", "6b|16"])
ENDS = st.sampled_from(
    ["x", "y", "x[]", "vault.a", "vault.k", "vault.a", "n.&", "&", "n.@(1,a)", "n[@(1,a)]"]
)
COPYING = st.builds(
    lambda first, second, end: shift({first: f"vault.{end}", second: "x"}),
    st.sampled_from("ab"),
    st.sampled_from("bc"),
    st.sampled_from("akz"),
) | st.builds(
    lambda end, other: {"operation": "jmespath", "spec": {f"vault.{end}": "lower(to_string(a))", "x": other}},
    st.sampled_from("akz"),
    st.sampled_from(["c", "b.a", "c || b.a"]),
)
CHOOSING = st.builds(
    lambda place, text, end, also: shift({place: {text: {"#yes": end}, "@": also}, "*": "&"}),
    st.sampled_from(["a", "b", "x"]),
    TESTING,
    ENDS,
    ENDS,
)
COMPUTING = st.builds(
    lambda target, expression: {"operation": "jmespath", "spec": {target: expression, "b": "b", "c": "c"}},
    st.sampled_from(["x", "vault.a", "vault.k", "a", "_event.id"]),
    st.sampled_from(
        [
            "a",
            "lower(a)",
            "a == '5a' && c",
            "length(to_string(a))",
            "[a, c]",
            "keys(@)",
            "b.c || a",
            "to_number(a)",
        ]
    ),
)
NAMES = st.sampled_from(["_event.id", "x", "y", "a", "vault.a", "vault", "b.c"])


class World(NamedTuple):
    pipeline: Pipeline
    session: Session


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("uses")
    with closing(open_database(sqlite_url(folder))) as database:
        with database.write("zoe", "protects") as edit:
            for path in PROTECTED:
                stated = AttributeDefinition(
                    path=path, data_type="string", encryption=EncryptionLevel.PROTECTED
                )
                carry_out(edit, plan_attribute(edit, stated, lambda _: None))
            for name, operations in HONEST.items():
                honest = definition(operations, {"name": name, "source": name})
                version, _ = put_spec(edit, honest, lambda _: None)
                put_in_force(edit, name, version)
                retire_spec(edit, name, version, lambda _: None)
        pipeline = Pipeline(folder)
        with database.read() as session:
            yield World(pipeline, session)
        pipeline.data_keys.close()


def definition(operations: list[Any], more: dict[str, Any]) -> SpecDefinition:
    stated = {
        "name": "orders",
        "source": "orders",
        "operations": operations,
        "identifiers": [{"type": "user_id", "path": "who", "primary": True}],
    }
    return SpecDefinition.model_validate(stated | more)


@st.composite
def drafts(draw: st.DrawFn) -> SpecDefinition:
    chain = draw(
        st.lists(
            SHIFTS | COPYING | COPYING | CHOOSING | COMPUTING | MODIFIES | OPERATIONS | ARRAYS,
            min_size=1,
            max_size=3,
        )
    )
    fixed = {"who": "w1", "_event": {"ordinal": 17, "id": "e1"}}
    chain = [*chain, {"operation": "default", "spec": fixed}]
    more: dict[str, Any] = {
        "id": draw(st.just("_event.id") | NAMES),
        "ordinal": draw(st.sampled_from(["_event.ordinal", "_event.ordinal", "x", "a"])),
        "retracts": draw(st.sampled_from([None, None, "y", "x"])),
    }
    if draw(st.booleans()):
        named = [
            {"type": "user_id", "path": "who", "primary": True},
            {"type": "other", "path": draw(NAMES), "fallback": draw(st.booleans())},
        ]
        more["identifiers"] = named
    if draw(st.booleans()):
        more |= {"mode": "snapshot", "scope": draw(st.sampled_from(["", "x", "vault"]))}
    return definition(chain, more)


def planted(payload: dict[str, Any], place: tuple[str, ...], value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(payload)
    at = changed
    for key in place[:-1]:
        if not isinstance(at.get(key), dict):
            at[key] = {}
        at = at[key]
    at[place[-1]] = value
    return changed


def stored(world: World, known: Any, payload: dict[str, Any]) -> str:
    """All that anybody without a key reads of what an event left: whatever is not sealed."""
    world.pipeline.snapshot = known
    output: MapOutput = world.pipeline.map(raw({"id": "e1", "ordinal": 5} | payload, 1))
    found: dict[str, Any] = {
        "letters": [(str(each.reason), each.detail, each.stage, each.spec) for each in output.dead_letters],
        "changes": sorted((path, str(kind)) for path, kind in output.changes),
        "skipped": output.skipped,
    }
    for name, state in states_of(output).items():
        registers = {
            path: (str(each.kind), None if each.kind is Kind.SEALED else repr(each.value), str(each.origin))
            for path, each in state.registers.items()
        }
        found[name] = (
            registers,
            {str(key): str(origin) for key, origin in state.identifiers.items()},
            {str(key): str(each) for key, each in state.sightings.items()},
            {str(key): str(each) for key, each in getattr(state, "markers", {}).items()},
        )
    return json.dumps(found, sort_keys=True, default=str)


@settings(max_examples=examples(300, 60), deadline=None)
@given(
    draft=drafts(),
    payload=st.dictionaries(st.sampled_from("abc"), VALUES, min_size=1),
    place=st.sampled_from(list(PLACES)),
    pair=st.sampled_from(PAIRS),
)
def test_what_one_may_publish_shows_nothing_of_a_protected_value(
    world: World,
    draft: SpecDefinition,
    payload: dict[str, Any],
    place: tuple[str, ...],
    pair: tuple[Any, Any],
) -> None:
    """A place of the input that a retired version protected: two events that differ there alone leave the same, but what is
    sealed, by every spec that goes in force without a second person."""
    try:
        compile_spec(draft.operations)
        opened = opened_by_definition(world.session, draft.model_copy(update={"source": PLACES[place]}))
    except SpecError:
        return
    event("asked" if opened else "free")
    if opened:
        return
    document = SpecDocument(**dict(draft) | {"version": 2, "created": datetime.now(UTC)})
    declared = [attribute(path, encryption="protected") for path in PROTECTED]
    known = snapshot(specs=[document], declared=declared, defaults=UNDETECTED)
    one, other = (stored(world, known, planted(payload, place, each)) for each in pair)
    assert one == other
