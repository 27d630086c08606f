"""Law 1 for detection: what is sealed is a function of path, value and snapshot, so order, batches, replays
and the moment at which a proposal arrives do not show. Law 3: what looks sensitive is nowhere in the clear."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from idgraph.app.settings.document import load
from idgraph.model import paths
from idgraph.model.classification import Proposal
from idgraph.model.events import RawRecord
from idgraph.model.fragments import Kind
from idgraph.model.identifiers import Identifier
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.sources import FlowConfig
from idgraph.model.specs import IdentifierPlace, SpecDocument
from ingestion.stages.map_output import MapOutput
from merge.fragments import FragmentState
from metadata_service.attributes.discovery import with_proposal
from tests.folders import in_memory
from tests.lanes import examples
from tests.retail import CREATED, Pipeline, attribute, raw, snapshot, spec
from tests.support.memory.data_keys import MemoryDataKeys
from transforms.schema.detection import detect, shaped
from transforms.schema.detection.names import named

CANARIES = (b"ann@example.com", b"4111111111111111", b"93.184.216.34", b"415-555-2671")
VALUES: list[Any] = [
    *("hello", "ann@example.com", "4111111111111111", "93.184.216.34", 17, True, 2.5, None, ["a", 1], ""),
    *(["x", {"mail": "ann@example.com"}], 4111111111111111, "415-555-2671"),
]
PATHS = ["note", "email", "lat", "a.b", "client.ip"]
WHO = ["p1", "p2", "ann@example.com"]
SPEC = spec(
    "orders",
    operations=({"operation": "shift", "spec": {"*": "&"}},),
    identifiers=(IdentifierPlace(type="person", path="who", primary=True),),
)
EMPTY = snapshot(specs=[SPEC], declared=[])
KEYS = MemoryDataKeys()


@cache
def folder() -> tempfile.TemporaryDirectory[str]:
    """One keyring and one set of data keys for all runs: other keys seal to other bytes."""
    return in_memory()


def pipeline(known: MetadataSnapshot, combine: int = 5) -> Pipeline:
    return Pipeline(Path(folder().name), KEYS, flow=FlowConfig(combine_events=combine), snapshot=known)


def event(number: int, who: str, path: str, value: Any) -> RawRecord:
    for key in reversed(paths.split(path)):
        value = {key: value}
    return raw({"_event": {"id": f"e{number}", "ordinal": 1000 + number % 3}, "who": who, **value}, number)


histories = st.lists(
    st.tuples(st.sampled_from(WHO), st.sampled_from(PATHS), st.sampled_from(VALUES)), min_size=1, max_size=10
).map(lambda each: [event(number, *one) for number, one in enumerate(each)])


def learnt(known: MetadataSnapshot, output: MapOutput) -> MetadataSnapshot:
    """The next snapshot, as the metadata service makes it of what a map stage found."""
    found = {each.path: each for each in known.attributes}
    for (path, data_type), _ in output.changes.items():
        now = found.get(path) or attribute(path, data_type, status="discovered")
        proposal = output.proposals.get((path, data_type))
        found[path] = now if proposal is None else with_proposal(now, proposal, known.levels)
    return known.model_copy(update={"version": known.version + 1, "attributes": tuple(found.values())})


def proposals(known: MetadataSnapshot) -> dict[str, Proposal | None]:
    return {each.path: each.proposal for each in known.attributes}


@settings(max_examples=examples(60), deadline=None)
@given(histories, st.data(), st.integers(1, 7))
def test_order_duplication_and_batches_do_not_show(
    history: list[RawRecord], data: st.DataObject, combine: int
) -> None:
    again = data.draw(st.lists(st.sampled_from(history), max_size=5))
    one, other = pipeline(EMPTY), pipeline(EMPTY, combine)
    one.process(history)
    for some in data.draw(st.permutations([*history, *again])):
        other.process([some])
    assert one.export() == other.export()
    assert one.export(reveal=True) == other.export(reveal=True)
    for fragment in one.store.scan(limit=1000):
        whole = fragment.id.encode() + FragmentState.decode(fragment.state).encode()
        assert [canary for canary in CANARIES if canary in whole] == []


@settings(max_examples=examples(60), deadline=None)
@given(histories, st.data())
def test_when_proposals_arrive_does_not_show_in_answers(
    history: list[RawRecord], data: st.DataObject
) -> None:
    def run(arrival: list[RawRecord], learns: list[bool]) -> tuple[Pipeline, MetadataSnapshot]:
        running = pipeline(EMPTY)
        newest = running.snapshot
        for one, learn in zip(arrival, learns, strict=True):
            (output,) = running.map_stage().run([one])
            running.commit_stage().run(output.encoded())
            newest = learnt(newest, output)
            running.snapshot = newest if learn else running.snapshot
        running.snapshot = newest
        return running, newest

    count = len(history)
    learns = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    slow, last = run(history, [False] * count)
    quick, other = run(data.draw(st.permutations(history)), learns)
    assert proposals(last) == proposals(other)
    assert slow.export() == quick.export()


@given(st.sampled_from([*WHO, "4111111111111111", "x"]), st.booleans())
def test_a_name_is_the_same_before_and_after_discovery(who: str, proposed: bool) -> None:
    before = pipeline(EMPTY).map(event(1, who, "note", "x"))
    discovered = attribute("who", status="discovered")
    if proposed:
        found = shaped("ann@example.com")
        assert found is not None
        discovered = with_proposal(discovered, found, EMPTY.levels)
        assert discovered.is_protected
    after = pipeline(snapshot(specs=[SPEC], declared=[discovered])).map(event(1, who, "note", "x"))
    assert list(before.fragments) == list(after.fragments)
    (name,) = before.fragments
    assert (f"person:{who}" == name) is (shaped(who) is None)


def test_the_security_example_shows_nothing_that_looks_sensitive(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "security"
    content = json.loads((example / "specs" / "audit.json").read_bytes())
    audit = SpecDocument(**{**content, "version": 1, "created": CREATED})
    files = sorted((example / "data" / "audit").glob("*.jsonl"))
    given_records = [
        RawRecord("audit", f"file:{file.name}#{number}", line)
        for file in files
        for number, line in enumerate(file.read_bytes().splitlines()[:6], 1)
    ]
    sources = load(example / "idgraph.toml").sources_by_name()
    known = snapshot(specs=[audit], declared=[])

    def run(some: list[RawRecord], combine: int) -> Pipeline:
        flow = FlowConfig(combine_events=combine)
        running = Pipeline(Path(folder().name), KEYS, flow=flow, snapshot=known, sources=sources)
        running.process(some)
        return running

    forwards, backwards = run(given_records, 50), run([*given_records[::-1], *given_records[:40]], 7)
    assert forwards.export() == backwards.export()
    sealed = 0
    for fragment in forwards.store.scan(limit=10_000):
        state = FragmentState.decode(fragment.state)
        for text in state.identifiers:
            identifier = Identifier.parse(text)
            assert identifier.value.startswith("~") or shaped(identifier.value) is None
        for path, register in state.visible():
            keys = paths.split(path)[-2:]
            sealed += register.kind is Kind.SEALED
            if register.kind is Kind.PLAIN:
                assert detect(keys, named(keys), register.value) is None, path
    assert sealed > 300
