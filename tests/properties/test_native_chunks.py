"""Chunks of records, mapped natively and by Python: the same events by fragment, dead letters and reports."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idgraph import native
from idgraph.model import canonical
from idgraph.model.attributes import ReconciliationPolicy
from idgraph.model.behaviour import ActivityDocument
from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.events import DecryptedRecord, RawRecord, UndecryptedRecord
from idgraph.model.fragments import FragmentChange
from idgraph.model.snapshots import DetectionMode, DiscoveryDefaults, MetadataSnapshot
from idgraph.model.sources import FileSource
from ingestion.sources.files.lines import DamagedRecord
from ingestion.sources.payload_formats import PayloadFormats
from ingestion.stages.dead_letters import BatchAttempt, BatchDeadLetters, DeadLetterWriter
from ingestion.stages.map import EventMapper
from ingestion.stages.map_output import MapOutput, MappedChunk, MappedEvent
from ingestion.stages.protect import Protector
from merge import codec
from merge.fragments import FragmentState
from tests.lanes import examples
from tests.properties import odd_values
from tests.properties.references import both
from tests.retail import NOW, Pipeline, attribute, records, snapshot, spec
from transforms.spec.mapping import CompiledSnapshot

pytestmark = pytest.mark.skipif(
    native.built_events is None or native.built_leaves is None, reason=f"native code is {native.state}"
)

LATEST = int(NOW * 1000)
EARLIEST = 978_307_200_000
WHOLE = [{"operation": "shift", "spec": {"*": "&"}}]
# Where the id stands decides how it is protected; events of a snapshot spec, and of none, are the reference implementation's.
PLACES: dict[str, dict[str, Any]] = {
    "plain": {},
    "stored": {"id": "n"},
    "sealed": {"id": "secret"},
    "whole": {"mode": "snapshot", "scope": "s"},
}
SPECS = [
    *(spec(name) for name in ("segment", "amplitude", "orders")),
    *(
        spec(
            "orders",
            name=name,
            source="odd",
            event_type=name,
            operations=WHOLE,
            specification_type="chain",
            **more,
        )
        for name, more in PLACES.items()
    ),
]
UNTIMED = "counted"
SOURCES = {
    name: FileSource.model_validate(
        {
            "name": name,
            "path": "inbox",
            "source": {"const": "odd"},
            "type": {"path": "kind"},
            "ordinal_unit": unit,
        }
    )
    for name, unit in (("odd", "epoch_ms"), (UNTIMED, "sequence"))
}

ids = st.sampled_from(["e1", "e2", "ann@example.com", "a%40b.example", "日", 7, None, ""])
ordinals = st.sampled_from(
    [
        1,
        5,
        -1,
        10**8 - 1,
        10**8,
        EARLIEST - 1,
        EARLIEST,
        LATEST,
        LATEST + 1,
        2**63,
        "2024-03-01T00:00:00Z",
        "soon",
        None,
    ]
)
emails = st.sampled_from(["p1@example.com", "p2@example.com", " ", None, 7, ["x"], "日@example.com"])
extras = st.dictionaries(
    st.sampled_from(["a", "n", "secret", "first", "4111111111111111", "_event", "deep", "日"]),
    odd_values.leaves | odd_values.fine_trees,
    max_size=3,
)


def _record(
    source: str, line: int, kind: Any, event_id: Any, ordinal: Any, email: Any, extra: dict[str, Any]
) -> RawRecord:
    body = {
        "kind": kind,
        "_event": {"id": event_id, "ordinal": ordinal},
        "identity": {"email": email},
        **extra,
    }
    try:
        value = canonical.encode(body)
    except Exception:
        value = b"{"
    return RawRecord(source, f"file:odd/x#{line}", value)


kinds = st.sampled_from(["plain", "plain", "plain", "stored", "sealed", "whole", "nobody's", None])
sources = st.sampled_from(["odd", "odd", UNTIMED])
odd_records = st.builds(_record, sources, st.integers(1, 9), kinds, ids, ordinals, emails, extras)


def _decrypted(record: RawRecord) -> DecryptedRecord:
    return DecryptedRecord.of(record._replace(value=b"encrypted"), record.value)


decrypted = odd_records.map(_decrypted)
undecrypted = odd_records.map(lambda record: UndecryptedRecord(*record))
damaged = st.just(
    DamagedRecord(RawRecord("odd", "file:odd/x#99", b"{half"), DeadLetterReason.CORRUPT_SOURCE, "cut")
)
chunks = st.lists(
    st.sampled_from(records(60)) | odd_records | odd_records | decrypted | undecrypted | damaged, max_size=12
)


@cache
def pipeline() -> Pipeline:
    """One keyring for all runs: other keys hash to other names."""
    return Pipeline(Path(tempfile.mkdtemp()))


def mapped(found: MetadataSnapshot, some: list[list[RawRecord | DamagedRecord]]) -> list[tuple[Any, ...]]:
    """What comes of chunks under a snapshot; of each event its state, whoever made its bytes."""
    tools = pipeline()
    compiled = CompiledSnapshot(found)
    dead_letters = BatchDeadLetters(DeadLetterWriter(tools.sealer), 1, BatchAttempt("main/0", "attempt"))
    protector = Protector(compiled, tools.data_keys, tools.blind_index, dead_letters)
    mapper = EventMapper(
        compiled, {**tools.sources, **SOURCES}, protector, dead_letters, PayloadFormats(), EARLIEST
    )
    reported = []
    for day, chunk in enumerate(some):
        compiled.attributes.look_again(86_400 * day)
        output = MapOutput()
        events = mapper.map_chunk(chunk, LATEST, output)
        reported.append(
            (
                _comparable(events),
                [dead_letter[:-2] for dead_letter in output.dead_letters],
                sorted(map(repr, output.changes.items())),
                sorted(map(repr, output.proposals.items())),
                sorted(map(repr, output.sights.items())),
                (output.bytes, output.skipped),
            )
        )
    return reported


def _comparable(chunk: MappedChunk) -> list[tuple[Any, ...]]:
    plain: list[tuple[Any, ...]] = [
        (name, when, state) for name in chunk.plain.fragment_ids() for when, state in chunk.plain.take(name)
    ]
    others = [(name, *_other(name, each)) for name, events in chunk.others.items() for each in events]
    return sorted((*plain, *others), key=repr)


def _other(name: str, event: MappedEvent) -> tuple[Any, ...]:
    body = event.state
    if body is None:
        state = FragmentState()
        state.apply(FragmentChange(name, event.origin, event.leaves.plain, event.identifiers, event.scope))
        body = codec.body(state.encode())
    assert event.fragment_id == name == str(event.identifiers[0])
    when = event.origin.stamp.ordinal if event.record.source != UNTIMED else None
    if not event.leaves.to_seal and event.scope is None and not event.timeline:
        # What a plain one is without bytes of its own.
        return when, body
    timeline = event.timeline or None
    return when, body, type(event.record), event.record, event.leaves.to_seal, event.scope, timeline


ACTIVITIES = (
    ActivityDocument(
        name="some", source="odd", condition="a != null", fields={"a": "a", "secret": "secret"}, version=1
    ),
    ActivityDocument(name="counted", source=UNTIMED, event_type="sealed", version=2),
    ActivityDocument(
        name="views", time="activity.lastSeenAt", fields={"event": "activity.lastEvent"}, version=1
    ),
)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(chunks, min_size=1, max_size=3), st.sampled_from(DetectionMode), st.booleans(), st.booleans())
def test_chunks(
    some: list[list[RawRecord | DamagedRecord]], mode: DetectionMode, has_policy: bool, has_activities: bool
) -> None:
    policy = ReconciliationPolicy.FIRST if has_policy else ReconciliationPolicy.LATEST
    declared = [
        attribute("identity.email", encryption="searchable"),
        attribute("secret", encryption="protected"),
        attribute("a", policy=policy),
        attribute("n", "integer", status="discovered"),
    ]
    found = snapshot(specs=SPECS, declared=declared, defaults=DiscoveryDefaults(detection=mode))
    if has_activities:
        found = found.model_copy(update={"activities": ACTIVITIES})
    one, other = both(lambda: mapped(found, some))
    assert one == other


@pytest.mark.parametrize("is_encrypted", [False, True], ids=["clear", "encrypted"])
def test_the_common_event_is_mapped_natively(is_encrypted: bool) -> None:
    """So that what is compared is not the reference implementation with itself."""
    tools = pipeline()
    dead_letters = BatchDeadLetters(DeadLetterWriter(tools.sealer), 1, BatchAttempt("main/0", "attempt"))
    compiled = CompiledSnapshot(snapshot().model_copy(update={"activities": ACTIVITIES[:1]}))
    protector = Protector(compiled, tools.data_keys, tools.blind_index, dead_letters)
    mapper = EventMapper(compiled, tools.sources, protector, dead_letters, PayloadFormats())

    def fail(*_: Any) -> None:
        raise AssertionError("the reference implementation was asked")

    some: list[RawRecord | DamagedRecord] = [
        _decrypted(each) if is_encrypted else each for each in records(200)
    ]
    mapper.map_chunk(some, LATEST, MapOutput())
    mapper.map = fail  # type: ignore[method-assign, assignment]
    again = mapper.map_chunk(some, LATEST, MapOutput())
    assert sum(len(again.plain.take(name)) for name in again.plain.fragment_ids()) > 50
    assert sum(map(len, again.others.values())) > 20
