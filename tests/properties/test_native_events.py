"""Envelopes, mapped events and hashed identifiers, natively and by Python: the same events and errors."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from idgraph import native
from idgraph.model import canonical
from idgraph.model.events import Event, RawRecord
from idgraph.model.identifiers import Identifier
from idgraph.model.sources import FileSource
from idgraph.model.specs import IdentifierPlace
from ingestion.stages.decode import EnvelopeReader
from tests.lanes import examples
from tests.properties import odd_values
from tests.properties.references import both, outcome
from tests.retail import attribute, snapshot, spec
from transforms.privacy.protected_names import ProtectedNames
from transforms.schema import detection
from transforms.schema.detection import shaped
from transforms.spec.mapping import MOST_NATIVE_PLACES, MappingSpec

pytestmark = pytest.mark.skipif(
    native.built_events is None or native.built_leaves is None, reason=f"native code is {native.state}"
)

more = settings(max_examples=examples(300), deadline=None)

# Names, ids, times and what is none of them.
said = (
    st.sampled_from(
        ["", " ", "\xa0", "a", "ü", "日", "x" * 200, "x" * 201, "2024-03-01T00:00:00Z", "17", 17, 2**63]
    )
    | st.sampled_from(
        ["2024-03-01T00:00:00", 1.0, 1.5, -(2**63), 2**64, True, None, [], ["a", None], {"a": 1}]
    )
    | odd_values.fine_scalars
)
keys = st.sampled_from(["a", "b", "a.b", "b.a.b", "c\\.d", "c"])
bodies = st.recursive(
    st.dictionaries(st.sampled_from(["a", "b", "c.d", "c"]), said, max_size=4),
    lambda below: st.dictionaries(st.sampled_from("abc"), below | said, max_size=3),
    max_leaves=6,
)
constants = st.sampled_from(["shop", "x" * 201, "日", 7])
places = st.none() | keys.map(lambda path: {"path": path}) | constants.map(lambda const: {"const": const})
ids = st.none() | keys.map(lambda path: {"path": path}) | st.just({"content": True})
records = st.one_of(
    bodies.map(canonical.encode),
    bodies.map(canonical.encode),
    st.binary(max_size=8),
    st.sampled_from([b"[1]", b"7", b"null", b'{"a":NaN}', b'{"a":' * 5000, b'{"a":1e9999}', b'"a"']),
)


@more
@given(places, places, ids, places, st.just("") | keys, records)
def test_envelopes(source: Any, kind: Any, place: Any, ordinal: Any, payload: str, record: bytes) -> None:
    stated = {"source": source, "type": kind, "id": place, "ordinal": ordinal}
    given_places = {name: each for name, each in stated.items() if each is not None}
    config = FileSource.model_validate({"name": "s", "path": "inbox", "payload": payload, **given_places})
    one, other = both(lambda: EnvelopeReader(config).read(RawRecord("s", "file:inbox/x#1", record)))
    assert one == other


identifier_places = st.lists(
    st.tuples(st.sampled_from(["u", "v", "w"]), keys, st.booleans()), min_size=1, max_size=5
).map(
    lambda found: tuple(
        IdentifierPlace(type=kind, path=path, primary=not number, fallback=bool(number) and fallback)
        for number, (kind, path, fallback) in enumerate(found)
    )
)
outputs = bodies | st.dictionaries(st.sampled_from("abc"), odd_values.leaves, max_size=3) | odd_values.leaves


@more
@given(
    identifier_places,
    st.none() | keys,
    st.none() | keys,
    st.none() | st.sampled_from(["e", "日", "x" * 1025]),
    st.none() | st.integers(-5, 5),
    outputs,
)
def test_mapped_events(
    identifiers: tuple[IdentifierPlace, ...],
    id_place: str | None,
    ordinal_place: str | None,
    own_id: str | None,
    own_ordinal: int | None,
    output: Any,
) -> None:
    mapping = MappingSpec(spec("orders", identifiers=identifiers, id=id_place, ordinal=ordinal_place))
    contexts = []

    def transform(payload: Any, context: Any) -> Any:
        contexts.append(context)
        return payload

    mapping._transform = transform
    natively = mapping._native_mapper()
    assert natively is not None
    event = Event("shop", "order", own_id, own_ordinal, "file:x#1", output, b"")
    assert outcome(lambda: natively(event)) == outcome(lambda: mapping._map(event))
    assert contexts == [event.context()] * 2


def test_a_name_among_blank_ones_and_others() -> None:
    found = (
        IdentifierPlace(type="u", path="a", primary=True),
        IdentifierPlace(type="v", path="b"),
        IdentifierPlace(type="w", path="c", fallback=True),
    )
    mapping = MappingSpec(
        spec(
            "orders",
            identifiers=found,
            id=None,
            ordinal=None,
            operations=[{"operation": "shift", "spec": {"*": "&"}}],
        )
    )
    event = Event("shop", "order", "e", 1, "file:x#1", {"a": " \x1c", "b": "x", "c": "y"}, b"")
    mapped = mapping.map(event)
    assert mapped is not None
    assert mapped.identifiers == (Identifier("w", "y"), Identifier("v", "x"))
    assert [type(each) for each in mapped.identifiers] == [Identifier] * 2


def test_more_places_than_are_read_natively() -> None:
    many = [IdentifierPlace(type=f"t{n}", path=f"a{n}", primary=not n) for n in range(MOST_NATIVE_PLACES + 1)]
    one, other = both(
        lambda: MappingSpec(spec("orders", identifiers=tuple(many), id=None, ordinal=None)).map(
            Event("shop", "order", "e", 1, "file:x#1", {"order_id": "x"}, b"")
        )
    )
    assert one == other


@pytest.mark.parametrize(
    "arguments",
    [
        ((), (), (), len, Event, int, len),
        (((1,),) * 4, (None,) * 4, (), len, Event, int, len),
        ((None,) * 4, (None,) * 4, (), len, list, int, len),
        ((None,) * 4, (None,) * 3, (), len, Event, int, len),
        ((None,) * 4,),
    ],
)
def test_a_reader_of_something_else_is_refused(arguments: Any) -> None:
    assert native.events is not None
    with pytest.raises(TypeError):
        native.events.reader(*arguments)


# Ids, numbers and names near to what detectors look for.
near = (
    st.text("0123456789abcdef-", max_size=40)
    | st.text("0123456789abcdefxyzXYZAGq_-", max_size=24)
    | st.from_regex(r"[A-Za-z]{0,4}[0-9]{4,18}[A-Z]?[-_]?[0-9]{0,4}", fullmatch=True)
    | st.from_regex(r"[0-9]{3,4}-[0-9]{2,4}-[0-9]{4}[0-9-]{0,8}", fullmatch=True)
    | st.from_regex(r"[A-Z]{4}[0-9]{6}[HM][A-Z]{5}[A-Z0-9][0-9]", fullmatch=True)
    | st.from_regex(r"[XYZxyz][ -]?[0-9]{7}[ -]?[A-Z]", fullmatch=True)
    | st.from_regex(r"[A-Z]{6}[0-9]{2}[A-Z][0-9]{2}[A-Z][0-9]{3}[A-Z]", fullmatch=True)
    | st.from_regex(r"(AKIA|gh[ps]_|sk-|xoxb-|hf_|npm_|dapi)[A-Za-z0-9]{10,40}", fullmatch=True)
)
values = near | odd_values.texts


@settings(max_examples=examples(1000), deadline=None)
@given(values)
@example("X1234567L")
@example("x1234567l")
@example("12345678Z")
@example("131052-308T")
@example("RSSMRA85T10A562S")
@example("GODE561231HMCRRN03")
@example("dapi" + "0123456789abcdef" * 2)
@example("AKIAIOSFODNN7EXAMPLE")
@example("4111-1111-1111-1111")
@example("415-555-2671")
@example("DE89370400440532013000")
@example("a-DE89370400440532013000")
@example("eyJhbGciOiJI_eyJzdWIi_x")
def test_what_is_reported_to_be_harmless_is(value: str) -> None:
    asked: list[Identifier] = []

    def protects(identifier: Identifier) -> bool:
        asked.append(identifier)
        return False

    assert native.leaves is not None
    protect = native.leaves.protector(frozenset(), frozenset({"t"}), protects, *(lambda each: each,) * 2)
    protect((Identifier("t", value),))
    detection.KNOWN_ANSWERS[1].discard(value)
    # The quick answer is only ever that nothing is found.
    assert asked or shaped(value) is None


def test_ids_as_machines_make_them_are_reported_without_asking() -> None:
    def protects(_: Identifier) -> bool:
        raise AssertionError

    assert native.leaves is not None
    protect = native.leaves.protector(frozenset(), frozenset({"t"}), protects, *(lambda each: each,) * 2)
    found = tuple(
        Identifier("t", value)
        for value in (
            "609db510-d351-417b-ac8a-91b16c07e811",
            "R100712-1",
            "user940",
            "b4a31d6a_2",
            "plain words",
        )
    )
    assert protect(found) == found


@more
@given(
    st.lists(
        st.builds(Identifier, st.sampled_from(["user_id", "email", "contact", "x"]), values), max_size=4
    ),
    st.sampled_from(["none", "protected"]),
    st.dictionaries(st.sampled_from(["user_id", "email", "contact", "x"]), st.none() | values, max_size=2),
)
def test_protected_identifiers(
    identifiers: list[Identifier], encryption: str, forms: dict[str, str | None]
) -> None:
    place = IdentifierPlace(type="contact", path="contact.nick")
    declared = [attribute("identity.userId", encryption=encryption)]
    known = snapshot(
        specs=[spec("segment", identifiers=(*spec("segment").identifiers, place))], declared=declared
    )

    def hashed(identifier: Identifier) -> Identifier:
        return identifier._replace(value="~")

    def normal(identifier: Identifier) -> Identifier | None:
        value = forms.get(identifier.type, identifier.value)
        return None if value is None else identifier._replace(value=value)

    def work() -> Any:
        protect = ProtectedNames(known).protector(normal, hashed)
        return protect(tuple(identifiers))

    one, other = both(work)
    assert one == other
