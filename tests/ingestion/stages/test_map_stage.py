"""The map stage on the retail example, with a real keyring and real specs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from idgraph.model import canonical
from idgraph.model.attributes import DataType, EncryptionLevel
from idgraph.model.dead_letters import DeadLetter, DeadLetterReason
from idgraph.model.errors import KeyProviderError, StoreError
from idgraph.model.events import Event, RawRecord
from idgraph.model.fragments import Kind
from idgraph.model.identifiers import Identifier
from idgraph.model.snapshots import DetectionMode, DiscoveryDefaults
from idgraph.model.sources import FileSource, FlowConfig, ValuePlace
from idgraph.model.specs import SpecDocument
from idgraph.model.stamps import SpecRef, Stamp
from ingestion.sources.files.lines import DamagedRecord
from ingestion.stages.aggregate import Aggregator
from ingestion.stages.map_output import Fault, MapOutput
from merge.fragments import FragmentState
from tests.retail import (
    NOW,
    UNDETECTED,
    Pipeline,
    attribute,
    attributes,
    order,
    raw,
    records,
    snapshot,
    spec,
    states_of,
)
from tests.support.memory.data_keys import MemoryDataKeys
from transforms.privacy.sealing import DataKeys, SealingKey, UnusableKey
from transforms.spec.mapping import CompiledSnapshot, MappedPayload, MappingSpec

Reason = DeadLetterReason


def passing(operations: Any, **changed: Any) -> SpecDocument:
    """The orders spec with another chain."""
    return spec("orders", operations=operations, specification_type="chain", **changed)


SAME = [{"operation": "jmespath", "spec": {"identity": "identity", "_event": "_event", "a": "a"}}]
WHOLE = [{"operation": "shift", "spec": {"*": "&"}}]


def event(line: int = 1, **content: Any) -> RawRecord:
    """For specs that pass everything on: mapped output as the event itself."""
    whole = {
        "_event": {"id": f"e{line}", "ordinal": 1_709_251_200_000},
        "identity": {"email": f"p{line}@example.com"},
        **content,
    }
    return raw(whole, line)


def encoded(output: MapOutput) -> bytes:
    """All that leaves the stage, as bytes."""
    states = []
    for name, state in sorted(states_of(output).items()):
        states.append(name.encode() + state.encode())
    dead_letters = [
        canonical.encode([str(part) for part in dead_letter[:-2]]) + dead_letter.payload
        for dead_letter in output.dead_letters
    ]
    changes = canonical.encode(
        [[*map(str, key), *map(str, origin)] for key, origin in output.changes.items()]
    )
    return b"\n".join([*states, *dead_letters, changes])


def by_path(output: MapOutput, name: str) -> dict[str, tuple[Kind, Any]]:
    return {
        path: (register.kind, register.value) for path, register in states_of(output)[name].registers.items()
    }


def fragment_named(pipeline: Pipeline, email: str) -> str:
    return str(pipeline.blind_index.identifier(Identifier("email", email)))


def test_an_identifier_in_the_form_of_a_hash_is_hashed_as_any_other(tmp_path: Path) -> None:
    """Found by an attacker: an event with the hash of another person's address was joined to that person."""
    pipeline = Pipeline(tmp_path, snapshot=snapshot(specs=[passing(WHOLE)]))
    victim = fragment_named(pipeline, "p1@example.com")
    output = pipeline.map(event(2, identity={"email": victim.removeprefix("email:")}))
    assert output.dead_letters == []
    assert [*states_of(output)] != [victim]


# What is set aside, and that it is all that is set aside


BAD: dict[str, tuple[Reason, str, RawRecord | DamagedRecord]] = {
    "not JSON": (Reason.NOT_JSON, "decode", raw(b'{"order_id": ', 50)),
    "not an object": (Reason.NOT_OBJECT, "decode", raw(b"[1]", 50)),
    "damaged": (
        Reason.CORRUPT_SOURCE,
        "read",
        DamagedRecord(raw(b"half a li", 50), Reason.CORRUPT_SOURCE, "truncated"),
    ),
    "too large": (Reason.TOO_LARGE, "read", DamagedRecord(raw(b"x", 50), Reason.TOO_LARGE, "2 bytes")),
    "missing id": (Reason.MISSING_ID, "map", order(9, 50, order_id=None)),
    "id of a wrong type": (Reason.WRONG_TYPE, "map", order(9, 50, order_id={"no": 1})),
    "missing ordinal": (Reason.MISSING_ORDINAL, "map", order(9, 50, created_at=None)),
    "ordinal in the future": (Reason.FUTURE_ORDINAL, "map", order(9, 50, created_at="2031-01-01T00:00:00Z")),
    "ordinal in seconds": (Reason.PAST_ORDINAL, "map", order(9, 50, created_at="1970-01-21T10:05:24Z")),
    "missing identifier": (Reason.MISSING_IDENTIFIER, "map", order(9, 50, customer={})),
    "blank identifier": (Reason.MISSING_IDENTIFIER, "map", order(9, 50, customer={"email": "  "})),
    "identifier of white space": (
        Reason.MISSING_IDENTIFIER,
        "map",
        raw({"at": 1, "u": " \t\u3000"}, 50, "odd"),
    ),
    "identifier too long": (Reason.LONG_IDENTIFIER, "encrypt", raw({"at": 1, "u": "ü" * 1024}, 50, "odd")),
    "no spec": (Reason.NO_SPEC, "map", raw({"a": 1}, 50, "unmapped")),
    "spec that does not compile": (Reason.SPEC_UNUSABLE, "map", raw({"a": 1}, 50, "broken")),
    "bad ordinal": (Reason.BAD_ORDINAL, "map", raw({"at": "yesterday", "u": "u1"}, 50, "odd")),
    "identifier of a wrong type": (Reason.WRONG_TYPE, "map", raw({"at": 1, "u": {"x": 1}}, 50, "odd")),
    "output is no object": (Reason.TRANSFORM_FAILED, "map", raw({"a": 1}, 50, "bare")),
    "too deep": (
        Reason.TRANSFORM_FAILED,
        "diff",
        raw(b'{"at":1,"u":"u1","t":' + b'{"k":' * 90 + b"1" + b"}" * 91, 50, "odd"),
    ),
    "too many leaves": (
        Reason.TRANSFORM_FAILED,
        "diff",
        raw({"at": 1, "u": "u1", "t": {f"k{n}": n for n in range(10_001)}}, 50, "odd"),
    ),
    "a path too long": (
        Reason.TRANSFORM_FAILED,
        "diff",
        raw({"at": 1, "u": "u1", "t": {"k" * 1025: 1}}, 50, "odd"),
    ),
    "an empty key": (Reason.TRANSFORM_FAILED, "diff", raw({"at": 1, "u": "u1", "": 1}, 50, "odd")),
}


def odd_pipeline(folder: Path) -> Pipeline:
    """The example with more sources, whose specs show what the real ones never do."""
    everything = [{"operation": "shift", "spec": {"*": "&"}}]
    odd = {
        "id": None,
        "ordinal": "at",
        "identifiers": [{"type": "user_id", "path": "u", "primary": True}],
    }
    bare = [{"operation": "shift", "spec": {"a": ""}}]
    specs = [
        spec("orders"),
        passing([{"operation": "no-such"}], name="broken", source="broken"),
        passing(everything, name="odd", source="odd", **odd),
        passing(bare, name="bare", source="bare"),
    ]
    pipeline = Pipeline(folder, snapshot=snapshot(specs=specs))
    for name in ("unmapped", "broken", "odd", "bare"):
        pipeline.sources[name] = FileSource(name=name, path=Path("inbox"), id=ValuePlace(content=True))
    return pipeline


@pytest.mark.parametrize("name", BAD)
def test_a_bad_event_is_set_aside_with_its_reason_and_hurts_only_itself(name: str, tmp_path: Path) -> None:
    reason, stage, bad = BAD[name]
    pipeline = odd_pipeline(tmp_path)
    alone = pipeline.map(order(1, 1), order(2, 2))

    output = pipeline.map(order(1, 1), bad, order(2, 2))

    (dead_letter,) = output.dead_letters
    assert (dead_letter.reason, dead_letter.stage) == (reason, stage)
    assert output.events == 3
    assert {name: state.encode() for name, state in states_of(output).items()} == {
        name: state.encode() for name, state in states_of(alone).items()
    }
    assert output.changes == alone.changes


def test_a_dead_letter_says_where_why_and_under_which_spec_and_keeps_the_record(pipeline: Pipeline) -> None:
    bad = order(1, 7, order_id=None)
    (dead_letter,) = pipeline.map(bad).dead_letters
    assert (dead_letter.source, dead_letter.position, dead_letter.spec) == (
        "orders",
        "file:orders/x.jsonl#7",
        "shop-orders@1",
    )
    assert (dead_letter.snapshot_version, dead_letter.batch, dead_letter.attempt) == (1, "main/0", "attempt")
    assert bad.value not in dead_letter.payload
    assert pipeline.sealer.open(dead_letter.payload, dead_letter.id, dead_letter.position) == bad.value


def test_the_same_record_gives_the_same_dead_letter_again(pipeline: Pipeline) -> None:
    def reported(dead_letter: DeadLetter) -> DeadLetter:
        return dead_letter._replace(set_aside_at=0)

    (first,), (second,) = (pipeline.map(order(1, 7, order_id=None)).dead_letters for _ in range(2))
    assert reported(first) == reported(second)


def test_an_event_that_maps_to_nothing_is_counted_and_is_no_dead_letter(tmp_path: Path) -> None:
    nothing = passing([{"operation": "shift", "spec": {"no-such-key": "x"}}])
    output = Pipeline(tmp_path, snapshot=snapshot(specs=[nothing])).map(order())
    assert (output.skipped, output.dead_letters, output.fragments) == (1, [], {})


def test_a_spec_that_raises_half_way_spoils_no_fragment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Pipeline(tmp_path)
    make = MappingSpec.__init__

    def make_broken(self: MappingSpec, document: SpecDocument, alike: MappingSpec | None = None) -> None:
        make(self, document, alike)
        good = self.map

        def crash_on_second(item: Event) -> MappedPayload | None:
            mapped = good(item)
            if item.position.endswith("#2"):
                raise RuntimeError(f"broken near {item.payload['customer']['email']}")
            return mapped

        self.map = crash_on_second

    monkeypatch.setattr(MappingSpec, "__init__", make_broken)
    output = pipeline.map(order(1, 1), order(2, 2), order(3, 3))
    (dead_letter,) = output.dead_letters
    assert (dead_letter.reason, dead_letter.stage, dead_letter.detail) == (
        Reason.STAGE_CRASHED,
        "map",
        "RuntimeError",
    )
    assert len(output.fragments) == 2
    assert b"p2@example.com" not in encoded(output)


def test_a_crash_while_sealing_hurts_only_its_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = Pipeline(tmp_path)
    seal = SealingKey.seal

    def crash_for_one(self: SealingKey, value: Any, path: str, stamp: Stamp, token: str | None = None) -> str:
        if stamp.event_id == "R2":
            raise ValueError(f"cannot seal {value}")
        return seal(self, value, path, stamp, token)

    monkeypatch.setattr(SealingKey, "seal", crash_for_one)
    output = pipeline.map(order(1, 1), order(2, 2), order(3, 3))
    (dead_letter,) = output.dead_letters
    assert (dead_letter.reason, dead_letter.stage, dead_letter.detail) == (
        Reason.STAGE_CRASHED,
        "encrypt",
        "ValueError",
    )
    assert set(output.fragments) == {fragment_named(pipeline, f"p{n}@example.com") for n in (1, 3)}


def of_one_person(number: int, **changed: Any) -> RawRecord:
    """A later order of the same person for each number."""
    later = {"created_at": f"2024-03-0{number}T00:00:00Z", "order_id": f"R{number}"}
    return order(1, number, **later, shipping={"line1": f"{number} Main St"}, **changed)


def test_a_crash_while_sealing_the_latest_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [of_one_person(2), of_one_person(3), of_one_person(1)]
    expected = Pipeline(tmp_path).map(given[0], given[2])
    pipeline = Pipeline(tmp_path)
    pipeline.data_keys = DataKeys(pipeline.provider, MemoryDataKeys())
    seal = SealingKey.seal

    def crash_for_one(self: SealingKey, value: Any, path: str, stamp: Stamp, token: str | None = None) -> str:
        if stamp.event_id == "R3":
            raise ValueError(f"cannot seal {value}")
        return seal(self, value, path, stamp, token)

    monkeypatch.setattr(SealingKey, "seal", crash_for_one)
    output = pipeline.map(*given)
    assert [(each.reason, each.position[-2:]) for each in output.dead_letters] == [
        (Reason.STAGE_CRASHED, "#3")
    ]
    (name,) = output.fragments
    found, wanted = states_of(output)[name], states_of(expected)[name]
    assert {path: each.origin for path, each in found.registers.items()} == {
        path: each.origin for path, each in wanted.registers.items()
    }
    assert by_path(output, name)["address.shipping.line1"][0] is Kind.SEALED


def test_what_a_later_event_of_a_chunk_replaces_is_never_sealed(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    streets: list[Any] = []
    seal = SealingKey.seal

    def counted(self: SealingKey, value: Any, path: str, stamp: Stamp, token: str | None = None) -> str:
        streets.extend([value] if path == "address.shipping.line1" else [])
        return seal(self, value, path, stamp, token)

    monkeypatch.setattr(SealingKey, "seal", counted)
    output = pipeline.map(of_one_person(3), of_one_person(1), of_one_person(2))
    assert streets == ["3 Main St"]
    assert output.protected == 3 * 4


# The clock


@pytest.mark.parametrize(
    ("unit", "ahead", "dead"),
    [("epoch_ms", -1, False), ("epoch_ms", 0, False), ("epoch_ms", 1, True), ("sequence", 10**12, False)],
)
def test_only_times_are_checked_against_the_future(unit: str, ahead: int, dead: bool, tmp_path: Path) -> None:
    pipeline = Pipeline(
        tmp_path, flow=FlowConfig(max_future_skew_seconds=60), snapshot=snapshot(specs=[passing(SAME)])
    )
    pipeline.sources["orders"] = pipeline.sources["orders"].model_copy(update={"ordinal_unit": unit})
    ordinal = int((NOW + 60) * 1000) + ahead
    output = pipeline.map(event(1, _event={"id": "e", "ordinal": ordinal}))
    assert [dead_letter.reason for dead_letter in output.dead_letters] == [Reason.FUTURE_ORDINAL] * dead


YEAR_2001 = 978_307_200_000
SECONDS = 1_764_324_000


@pytest.mark.parametrize(
    ("unit", "ordinal", "year", "dead"),
    [
        ("epoch_ms", SECONDS, 2001, True),
        ("epoch_ms", YEAR_2001 - 1, 2001, True),
        ("epoch_ms", YEAR_2001, 2001, False),
        ("epoch_ms", -1, 2001, True),
        ("epoch_ms", 100_000_000, 2001, True),
        ("epoch_ms", 99_999_999, 2001, False),
        ("epoch_ms", 3, 2001, False),
        ("epoch_ms", YEAR_2001 - 1, 1995, False),
        ("epoch_ms", SECONDS, 1995, True),
        ("epoch_ms", SECONDS, 1970, False),
        ("sequence", SECONDS, 2001, False),
        ("sequence", -1, 2001, False),
    ],
)
def test_only_times_are_checked_against_the_past(
    unit: str, ordinal: int, year: int, dead: bool, tmp_path: Path
) -> None:
    flow = FlowConfig(earliest_year=year)
    pipeline = Pipeline(tmp_path, flow=flow, snapshot=snapshot(specs=[passing(SAME)]))
    pipeline.sources["orders"] = pipeline.sources["orders"].model_copy(update={"ordinal_unit": unit})
    output = pipeline.map(event(1, _event={"id": "e", "ordinal": ordinal}))
    assert [dead_letter.reason for dead_letter in output.dead_letters] == [Reason.PAST_ORDINAL] * dead
    assert len(states_of(output)) == (not dead)


# Keys


class _FailingKeys:
    """Data keys of which some, or all, cannot be had."""

    def __init__(self, keys: DataKeys, fails: Callable[[str], bool], whole: Exception | None = None) -> None:
        self._keys, self._fails, self._whole = keys, fails, whole

    def fetch(self, fragment_ids: Iterable[str], create: bool) -> dict[str, SealingKey]:
        if self._whole:
            raise self._whole
        found = self._keys.fetch(fragment_ids, create)
        refused = UnusableKey(KeyProviderError("refused"))
        return {name: refused if self._fails(name) else key for name, key in found.items()}


def test_a_key_that_cannot_be_unwrapped_hurts_only_its_fragment(pipeline: Pipeline) -> None:
    poor = fragment_named(pipeline, "p2@example.com")
    pipeline.data_keys = _FailingKeys(pipeline.data_keys, lambda name: name == poor)  # type: ignore[assignment]
    output = pipeline.map(order(1, 1), order(2, 2), order(3, 3))
    assert [(dead_letter.reason, dead_letter.position[-2:]) for dead_letter in output.dead_letters] == [
        (Reason.KEY_UNAVAILABLE, "#2")
    ]
    assert set(output.fragments) == {fragment_named(pipeline, f"p{n}@example.com") for n in (1, 3)}


def test_without_keys_what_needs_none_flows_on(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    pipeline.data_keys = _FailingKeys(
        pipeline.data_keys, lambda _: True, KeyProviderError("the provider is away")
    )  # type: ignore[assignment]
    view = {"user_id": "1", "time": 1, "insert_id": "i", "event_type": "View", "platform": "iOS"}
    output = pipeline.map(order(1, 1), raw(view, 2, "amplitude"))
    (dead_letter,) = output.dead_letters
    assert (dead_letter.reason, dead_letter.detail) == (Reason.KEY_UNAVAILABLE, "the provider is away")
    assert list(output.fragments) == ["user_id:1"]


def test_a_key_store_that_is_away_gives_the_batch_back(pipeline: Pipeline) -> None:
    pipeline.data_keys = _FailingKeys(pipeline.data_keys, lambda _: True, StoreError("away"))  # type: ignore[assignment]
    with pytest.raises(StoreError):
        pipeline.map(order())


# Law 3


CANARY = "Canary4711"


def canaries(output: MapOutput, *texts: str) -> list[str]:
    content = encoded(output).lower()
    return [text for text in texts if text.lower().encode() in content]


def test_no_protected_plaintext_leaves_the_stage(pipeline: Pipeline) -> None:
    good = order(
        1,
        1,
        customer={
            "email": f"{CANARY}@example.com",
            "name": {"first": f"{CANARY}first", "last": f"{CANARY}last"},
        },
        shipping={"line1": f"{CANARY} street", "city": "Springfield"},
    )
    bad = [
        order(2, 2, order_id=None, customer={"email": f"{CANARY}@x"}, shipping={"line1": CANARY}),
        order(3, 3, order_id={CANARY: CANARY}),
        order(4, 4, created_at=CANARY),
        order(5, 5, customer={"email": [CANARY], "name": CANARY}),
        order(6, 6, cart={"total": CANARY}),
        raw(f'{{"order_id": "{CANARY}'.encode(), 7),
        raw(f'["{CANARY}"]'.encode(), 8),
    ]
    output = pipeline.map(good, *bad)
    assert output.dead_letters
    assert output.protected >= 4
    assert canaries(output, CANARY) == []
    assert canaries(output, "Springfield") == ["Springfield"]


def test_no_details_quote_events_of_real_specs(pipeline: Pipeline) -> None:
    broken: list[RawRecord] = []
    for number, record in enumerate(records(40)):
        content = canonical.decode(record.value)
        for key in content:
            spoiled = {**content, key: [CANARY, {CANARY: CANARY}]}
            position = f"file:x#{number}.{key}"
            broken.append(RawRecord(record.source, position, canonical.encode(spoiled)))
    output = pipeline.map(*broken)
    assert output.dead_letters
    for dead_letter in output.dead_letters:
        assert CANARY not in dead_letter.detail
        assert CANARY.encode() not in dead_letter.payload
        assert dead_letter.reason is not Reason.STAGE_CRASHED


def test_protected_identifiers_are_keyed_hashes_everywhere(pipeline: Pipeline) -> None:
    output = pipeline.map(order())
    ((name, state),) = states_of(output).items()
    assert name.startswith("email:~")
    assert list(state.identifiers) == [name]
    # The web site's specs protect the same type, though the person is named by another.
    content = {
        "type": "identify",
        "timestamp": "2024-03-01T00:00:00Z",
        "messageId": "m",
        "userId": "7",
        "traits": {"email": "P1@example.com"},
    }
    segment = pipeline.map(raw(content, 1, "segment"))
    assert list(segment.fragments) == ["user_id:7"]
    assert name in states_of(segment)["user_id:7"].identifiers
    assert canaries(segment, "p1@example.com") == []


@pytest.mark.parametrize(
    ("content", "sealed", "plain"),
    [
        # Below a protected attribute.
        ({"a": {"b": {"new": CANARY}}}, {"a.b.new"}, set()),
        ({"a": {"b": {"deep": {"er": [CANARY]}}}}, {"a.b.deep.er"}, set()),
        # At it, whatever its type.
        ({"a": {"b": [CANARY]}}, {"a.b"}, set()),
        ({"a": {"b": 4711}}, {"a.b"}, set()),
        # Above it: a string or an array where an object was.
        ({"a": CANARY}, {"a"}, set()),
        ({"a": [{"b": CANARY}]}, {"a"}, set()),
        # Beside it, and what an admin declared open below it.
        ({"a": {"c": "x"}}, set(), {"a.c"}),
        ({"a": {"b": {"open": "x"}}}, set(), {"a.b.open"}),
    ],
)
def test_protection_is_inherited_below_and_above(
    content: dict[str, Any], sealed: set[str], plain: set[str], tmp_path: Path
) -> None:
    declared = [
        attribute("identity.email"),
        attribute("a.b", encryption="protected"),
        attribute("a.b.open"),
        attribute("a.c"),
    ]
    pipeline = Pipeline(tmp_path, snapshot=snapshot(specs=[passing(SAME)], declared=declared))
    output = pipeline.map(event(**content))
    found = by_path(output, "email:p1@example.com")
    assert {path for path, (kind, _) in found.items() if kind is Kind.SEALED} == sealed
    assert {path for path, (kind, _) in found.items() if kind is Kind.PLAIN} == plain | {"identity.email"}
    assert canaries(output, CANARY) == []


def test_what_was_discovered_below_a_protected_attribute_stays_protected(tmp_path: Path) -> None:
    declared = [attribute("a", encryption="protected"), attribute("a.b", status="discovered")]
    pipeline = Pipeline(
        tmp_path, snapshot=snapshot(specs=[passing(SAME)], declared=declared, defaults=UNDETECTED)
    )
    assert by_path(pipeline.map(event(a={"b": CANARY})), "email:p1@example.com")["a.b"][0] is Kind.SEALED


@pytest.mark.parametrize(
    "content",
    [
        {"contacts": {f"{CANARY}@example.com": 1}},
        {f"{CANARY}@example.com": {"seen": True}},
        {"calls": {"+14155552671": {CANARY: 2}}},
        {"contacts": {f"{CANARY}@example.com": None}},
        {"contacts": {f"{CANARY}@example.com": {}}},
    ],
)
def test_a_key_that_looks_sensitive_becomes_no_path(content: dict[str, Any], tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, snapshot=snapshot(specs=[passing(WHOLE)]))
    output = pipeline.map(event(**content), event(fine=1))
    (dead_letter,) = output.dead_letters
    assert dead_letter.reason is Reason.SENSITIVE_KEY
    assert {path for path, _ in output.changes} == {"fine"}
    assert canaries(output, CANARY, "14155552671") == []
    assert CANARY not in dead_letter.detail


def test_a_key_that_looks_sensitive_within_an_array_seals_the_array(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, snapshot=snapshot(specs=[passing(WHOLE)]))
    output = pipeline.map(event(seen=[{f"{CANARY}@example.com": 1}]))
    assert by_path(output, next(iter(output.fragments)))["seen"][0] is Kind.SEALED
    assert canaries(output, CANARY) == []


@pytest.mark.parametrize(
    ("event_id", "mode", "is_shown"),
    [
        (f"signup-{CANARY}@example.com", DetectionMode.SEAL, False),
        (f"{CANARY}@example.com-2024-05-01", DetectionMode.SEAL, False),
        (f"signup-{CANARY}%40example.com", DetectionMode.SEAL, False),
        (f"signup-{CANARY}@example.com", DetectionMode.OFF, True),
        (f"signup-{CANARY}", DetectionMode.SEAL, True),
    ],
)
def test_an_event_id_with_an_address_is_hashed(
    event_id: str, mode: DetectionMode, is_shown: bool, tmp_path: Path
) -> None:
    defaults = DiscoveryDefaults(detection=mode)
    pipeline = Pipeline(tmp_path, snapshot=snapshot(specs=[passing(WHOLE)], defaults=defaults))
    output = pipeline.map(event(_event={"id": event_id, "ordinal": 1_709_251_200_000}, fine=1))
    assert not output.dead_letters
    assert bool(canaries(output, CANARY)) is is_shown


@pytest.mark.parametrize("mode", [DetectionMode.OFF, DetectionMode.PROPOSE])
def test_keys_are_only_refused_where_detectors_seal(mode: DetectionMode, tmp_path: Path) -> None:
    defaults = DiscoveryDefaults(detection=mode)
    pipeline = Pipeline(tmp_path, snapshot=snapshot(specs=[passing(WHOLE)], defaults=defaults))
    assert not pipeline.map(event(contacts={"ann@example.com": 1})).dead_letters


def test_a_key_that_an_admin_declared_is_a_name(tmp_path: Path) -> None:
    declared = [*attributes(), attribute("hosts.8\\.8\\.8\\.8", "integer")]
    pipeline = Pipeline(tmp_path, snapshot=snapshot(specs=[passing(WHOLE)], declared=declared))
    output = pipeline.map(event(hosts={"8.8.8.8": 1}), event(hosts={"8.8.4.4": 1}))
    assert [dead_letter.reason for dead_letter in output.dead_letters] == [Reason.SENSITIVE_KEY]


def test_a_dead_letter_has_all_errors_of_its_record(tmp_path: Path) -> None:
    targets = {"_event": "_event", "identity": "identity", "profile.salary": "to_number_exact(salary)"}
    targets |= {"joined": "epoch_ms(joined)", "name": "trim(name)"}
    chain = [{"operation": "shift", "spec": {"*": "&"}}, {"operation": "jmespath", "spec": targets}]
    pipeline = Pipeline(tmp_path, snapshot=snapshot(specs=[passing(chain)]))
    (dead_letter,) = pipeline.map(event(salary=f"n/a {CANARY}", joined=CANARY, name="Ann")).dead_letters
    assert dead_letter.reason is Reason.TRANSFORM_FAILED
    assert dead_letter.detail.startswith("/1: ")
    assert all(f"at '{target}': " in dead_letter.detail for target in ("profile.salary", "joined"))
    assert "'name'" not in dead_letter.detail
    assert CANARY not in dead_letter.detail


@pytest.mark.parametrize(
    ("source", "mode", "is_refused"),
    [
        (f"{CANARY}@example.com", DetectionMode.SEAL, True),
        ("+14155552671", DetectionMode.SEAL, True),
        ("orders", DetectionMode.SEAL, False),
        (f"{CANARY}@example.com", DetectionMode.OFF, False),
    ],
)
def test_a_source_that_looks_sensitive_is_refused(
    source: str, mode: DetectionMode, is_refused: bool, tmp_path: Path
) -> None:
    """Found by review: with `source = { path = ... }` an address went into stamps and the catalogue."""
    known = snapshot(specs=[passing(WHOLE, source="*")], defaults=DiscoveryDefaults(detection=mode))
    pipeline = Pipeline(tmp_path, snapshot=known)
    of_path = pipeline.sources["orders"].model_copy(update={"source": ValuePlace(path="shop")})
    pipeline.sources["orders"] = of_path
    output = pipeline.map(event(1, shop=source), event(2, shop="fine"))
    assert [each.reason for each in output.dead_letters] == [Reason.SENSITIVE_KEY] * is_refused
    assert not any(source in each.detail for each in output.dead_letters)
    seen_from = {where for where, _ in output.changes.values()}
    assert seen_from == {"fine"} if is_refused else source in seen_from


BY_VALUE: list[Any] = [
    {"operation": "shift", "spec": {"*": "&", "name": "seen.@(1,name).at"}},
    {"operation": "shift", "spec": {"*": "&", "name": {"*": {"@(2,mail)": "seen.&1"}}}},
    [
        {"operation": "modify-default-beta", "spec": {"upper": "=toUpper(@(1,name))"}},
        {"operation": "shift", "spec": {"*": "&", "upper": "seen.@(1,upper).at"}},
    ],
    [
        {"operation": "shift", "spec": {"*": "&", "name": "by.@(1,name).at"}},
        {"operation": "shift", "spec": {"*": "&", "by": {"*": {"at": "seen.&1"}}}},
    ],
]


@pytest.mark.parametrize("operations", BY_VALUE)
def test_a_key_made_of_a_value_becomes_no_path(operations: Any, tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, snapshot=snapshot(specs=[passing(operations)], defaults=UNDETECTED))
    output = pipeline.map(event(name=CANARY, mail="x"), event(fine=1))
    (dead_letter,) = output.dead_letters
    assert dead_letter.reason is Reason.VALUE_KEY
    assert CANARY not in dead_letter.detail
    assert "fine" in {path for path, _ in output.changes}
    assert not any(CANARY.casefold() in path.casefold() for path, _ in output.changes)


def test_a_key_made_of_a_value_becomes_a_path_where_an_admin_allowed_it(tmp_path: Path) -> None:
    defaults = UNDETECTED.model_copy(update={"value_keys": ("seen",)})
    pipeline = Pipeline(tmp_path, snapshot=snapshot(specs=[passing(BY_VALUE[0])], defaults=defaults))
    output = pipeline.map(event(name="Ann"))
    assert not output.dead_letters
    assert "seen.Ann.at" in {path for path, _ in output.changes}


def test_keys_that_the_event_has_are_no_values(tmp_path: Path) -> None:
    """Whole, as a part that a wildcard took, and as places of an array; also where a value is alike."""
    operations = {
        "operation": "shift",
        "spec": {
            "_event": "_event",
            "identity": "identity",
            "scores": {"*": "scores.&"},
            "tag-*": "tags.&(0,1).of_all",
            "items": {"*": "items.&"},
            "kind": {"red": {"@(2,scores)": "by-kind.&1"}},
        },
    }
    pipeline = Pipeline(tmp_path, snapshot=snapshot(specs=[passing(operations)], defaults=UNDETECTED))
    content: dict[str, Any] = {
        "scores": {"blue": "blue"},
        "tag-red": "red",
        "items": ["0", "1"],
        "kind": "red",
    }
    output = pipeline.map(event(**content))
    assert not output.dead_letters
    assert {path for path, _ in output.changes} >= {
        "scores.blue",
        "tags.red.of_all",
        "items.0",
        "by-kind.red.blue",
    }


def test_sealed_by_default_means_identifiers_too(tmp_path: Path) -> None:
    defaults = DiscoveryDefaults(encryption=EncryptionLevel.PROTECTED)
    pipeline = Pipeline(tmp_path, snapshot=snapshot(specs=[passing(SAME)], declared=[], defaults=defaults))
    output = pipeline.map(event(a=CANARY, identity={"email": f"{CANARY}@x"}))
    assert canaries(output, CANARY) == []
    assert output.protected == 2


# Events that are taken back


UNDOING = [
    {
        "operation": "jmespath",
        "spec": {"user": "user", "device": "device", "_event": "_event", "_undo.id": "undo"},
    }
]
RETRACTING = spec(
    "orders",
    operations=UNDOING,
    specification_type="chain",
    identifiers=(
        {"type": "email", "path": "user", "primary": True},
        {"type": "device", "path": "device"},
    ),
    retracts="_undo.id",
)


def test_an_event_is_taken_back_in_whatever_order(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, snapshot=snapshot(specs=[RETRACTING]))
    one = event(1, user="ann@x.example", device="d1")
    other = event(2, user="ann@x.example", device="d2")
    undo = event(3, user="ann@x.example", undo="e1")
    name = fragment_named(pipeline, "ann@x.example")
    states = {states_of(pipeline.map(*some))[name].encode() for some in permutations([one, other, undo, one])}
    assert len(states) == 1
    state = FragmentState.decode(states.pop())
    assert state.names() == {name, "device:d2"}
    assert state.carried() == {name, "device:d1", "device:d2"}
    assert {path: each.value for path, each in state.registers.items()}["device"] == "d2"


def test_the_id_of_an_event_that_is_taken_back_is_hashed_as_its_own(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, snapshot=snapshot(specs=[RETRACTING]))
    secret = f"{CANARY}@example.com"
    first = event(1, user="ann@x.example", device="d1", _event={"id": secret, "ordinal": 1})
    output = pipeline.map(first, event(2, user="ann@x.example", undo=secret))
    assert canaries(output, CANARY) == []
    (state,) = states_of(output).values()
    assert state.names() == frozenset()


def test_an_event_that_takes_another_back_needs_its_primary_identifier(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, snapshot=snapshot(specs=[RETRACTING]))
    (dead_letter,) = pipeline.map(event(1, undo="e9")).dead_letters
    assert dead_letter.reason is Reason.MISSING_IDENTIFIER
    (dead_letter,) = pipeline.map(event(1, user="ann@x.example", undo={"no": "id"})).dead_letters
    assert dead_letter.reason is Reason.WRONG_TYPE


# Law 4


def test_each_value_names_the_spec_version_that_made_it(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, snapshot=snapshot(specs=[spec("orders", version=3)]))
    ((_, state),) = states_of(pipeline.map(order())).items()
    assert {register.spec for register in state.registers.values()} == {SpecRef("shop-orders", 3)}


# The schema


def test_unknown_attributes_are_reported_once_with_their_first_event(pipeline: Pipeline) -> None:
    output = pipeline.map(order(1, 1), order(2, 2))
    assert output.changes["orders.last.total", DataType.NUMBER] == ("orders", "file:orders/x.jsonl#1")
    assert not {path for path, _ in output.changes} & {declared.path for declared in attributes()}


def test_a_declared_type_is_silent_and_another_is_reported(tmp_path: Path) -> None:
    declared = [attribute("identity.email"), attribute("a", "number")]
    pipeline = Pipeline(tmp_path, snapshot=snapshot(specs=[passing(SAME)], declared=declared))
    output = pipeline.map(event(1, a=1), event(2, a=1.5), event(3, a="x"), event(4, a=[1]))
    assert set(output.changes) == {("a", DataType.STRING), ("a", DataType.ARRAY)}
    assert output.dead_letters == []


def test_a_bad_event_reports_no_attributes(pipeline: Pipeline) -> None:
    assert pipeline.map(order(order_id=None)).changes == {}


# Chunks


def test_events_are_combined_in_chunks_that_hold_every_record(tmp_path: Path) -> None:
    given = records(40)
    pipeline = Pipeline(tmp_path, flow=FlowConfig(combine_events=7))
    outputs = list(pipeline.map_stage().run(given))
    assert [output.events for output in outputs] == [7, 7, 7, 7, 7, 5]
    assert sum(output.bytes for output in outputs) == sum(len(record.value) for record in given)


def test_no_records_give_no_output(pipeline: Pipeline) -> None:
    assert list(pipeline.map_stage().run([])) == []


# Found by review


def test_an_attribute_that_a_refused_event_showed_first_is_still_reported(tmp_path: Path) -> None:
    everything = [{"operation": "shift", "spec": {"*": "&"}}]
    pipeline = Pipeline(tmp_path, snapshot=snapshot(specs=[passing(everything)]))
    output = pipeline.map(event(1, new=1, z={"x" * 2000: 1}), event(2, new=1))
    assert [dead_letter.reason for dead_letter in output.dead_letters] == [DeadLetterReason.TRANSFORM_FAILED]
    assert ("new", DataType.INTEGER) in output.changes


def test_a_sight_in_an_output_that_is_dropped_is_in_one_of_its_halves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = Aggregator.finish

    def crash_for_two(self: Aggregator, output: MapOutput) -> None:
        finish(self, output)
        if output.events > 1:
            output.faults["any"] = Fault("ValueError", None)

    monkeypatch.setattr(Aggregator, "finish", crash_for_two)
    known = snapshot(specs=[passing(WHOLE)], declared=[attribute("a", "integer")])
    stage = Pipeline(tmp_path, snapshot=known).map_stage()
    stage._attributes.look_again(86_400)
    first, second = stage.run([event(1, a=1), event(2, a=2)])
    assert list(first.sights) == ["a"]
    assert not second.sights
    assert "a" not in {path for path, _ in first.changes}


def test_a_batch_that_is_given_again_reports_its_sights_again(tmp_path: Path) -> None:
    compiled = CompiledSnapshot(snapshot(specs=[passing(WHOLE)], declared=[attribute("a", "integer")]))
    compiled.attributes.look_again(86_400)
    pipeline = Pipeline(tmp_path)
    pipeline.compiled = lambda _: compiled
    sights = [
        [list(output.sights) for output in pipeline.map_stage(is_again).run([event(a=1)])]
        for is_again in (False, False, True, False)
    ]
    assert sights == [[["a"]], [[]], [["a"]], [[]]]


def test_an_event_id_that_is_a_sealed_attribute_is_hashed_in_the_stamp(tmp_path: Path) -> None:
    # Stamps are stored beside the values, readable.
    pipeline = Pipeline(tmp_path, snapshot=snapshot(specs=[spec("orders", id="identity.email")]))
    output = pipeline.map(order())
    assert len(output.fragments) == 1
    assert b"example.com" not in encoded(output)  # a checksum may hold any character


def test_an_event_id_beside_a_sealed_attribute_is_hashed_too(tmp_path: Path) -> None:
    """Found by review: the same value stood sealed in its attribute, and readable as the event's id in each stamp."""
    twice = {
        "operation": "jmespath",
        "spec": {
            "user": "u",
            "health.diagnosis": "d",
            "_event": {"id": "d", "undo": "x", "ordinal": "_event.ordinal"},
            "health.former": "x",
        },
    }
    stated = spec(
        "orders",
        operations=[twice],
        id="_event.id",
        identifiers=[{"type": "user_id", "path": "user", "primary": True}],
    )
    declared = [attribute("health", encryption="protected")]
    for known in (stated, stated.model_copy(update={"retracts": "_event.undo"})):
        pipeline = Pipeline(tmp_path, snapshot=snapshot(specs=[known], declared=declared))
        output = pipeline.map(event(1, u="u1", d=CANARY, x=f"{CANARY}-x", _event={"ordinal": 1}))
        assert canaries(output, CANARY) == []
        assert len(output.fragments) == 1
        assert CANARY.encode() not in encoded(output)
    declared = [attribute("health.other", encryption="protected")]
    pipeline = Pipeline(tmp_path, snapshot=snapshot(specs=[stated], declared=declared))
    output = pipeline.map(event(1, u="u1", d="plain", x="y", _event={"ordinal": 1}))
    (state,) = states_of(output).values()
    assert {each.origin.stamp.event_id for each in state.registers.values()} == {"plain"}


def test_a_chunk_and_an_output_end_by_their_bytes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingestion.stages.map_stage.CHUNK_BYTES", 2000)
    monkeypatch.setattr("ingestion.stages.map_stage.OUTPUT_BYTES", 4000)
    outputs = list(Pipeline(tmp_path).map_stage().run(records(40)))
    assert len(outputs) > 1
    assert all(output.bytes >= 4000 for output in outputs[:-1])
    assert sum(output.events for output in outputs) == 40


def test_chunks_of_one_output_give_the_same_as_one_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Pipeline(tmp_path)
    [whole] = pipeline.map_stage().run(records(40))
    monkeypatch.setattr("ingestion.stages.map_stage.CHUNK_EVENTS", 7)
    [joined] = pipeline.map_stage().run(records(40))
    assert joined.events == 40
    assert encoded(joined) == encoded(whole)
