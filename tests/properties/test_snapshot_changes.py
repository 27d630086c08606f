"""Law 4: a snapshot that is made of an earlier one and what changed is the whole one, and so is what is compiled of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idgraph.jobs.reencrypt.policy_change import protect_alike, protection_of
from idgraph.model.attributes import (
    AttributeMetadata,
    AttributeStatus,
    DataType,
    EncryptionLevel,
    ReconciliationPolicy,
)
from idgraph.model.errors import EventError, MetadataError
from idgraph.model.identifiers import Identifier
from idgraph.model.identity_rules import DEFAULT_RULES, IdentityRules
from idgraph.model.snapshot_changes import SnapshotChanges, changes_between, joined
from idgraph.model.snapshots import DetectionMode, DiscoveryDefaults, MetadataSnapshot
from idgraph.model.specs import IdentifierPlace, SpecDocument
from idgraph.snapshot_file import PinnedSnapshot
from ingestion.spark.sent_snapshots import MOST_STEPS, SentSnapshot, SnapshotSender
from tests.lanes import examples
from tests.properties.references import ORIGIN
from transforms.schema import policy_tree
from transforms.schema.attribute_nodes import AttributeNode
from transforms.schema.diff import AttributeTree
from transforms.spec.mapping import CompiledSnapshot

PATHS = ["a", "a.a", "a.b", "a.b.c", "b", "b.c", "email", "c", "d.e", "d", "d.e.f.g", r"e\.f", r"a\b", ""]
PROBES = [*PATHS, "a.b.c.d", "z", "d.e.f", "b.c.x", "e.f", "ab"]
DATE = datetime(2026, 1, 1, tzinfo=UTC)

more = settings(max_examples=examples(400), deadline=None)

attributes = st.builds(
    lambda path, kind, level, status, policy, indexable: AttributeMetadata(
        path=path,
        data_type=kind,
        encryption=level,
        status=status,
        policy=policy,
        indexable=indexable,
        version=1,
        created=DATE,
    ),
    st.sampled_from([path for path in PATHS if path]),
    st.sampled_from(DataType),
    st.sampled_from([EncryptionLevel.NONE] * 4 + list(EncryptionLevel)),
    st.sampled_from([AttributeStatus.DISCOVERED] * 3 + list(AttributeStatus)),
    st.sampled_from([ReconciliationPolicy.LATEST] * 3 + [ReconciliationPolicy.UNION]),
    st.booleans(),
)


def spec(name: str, version: int, place: str) -> SpecDocument:
    return SpecDocument(
        name=name,
        source=name,
        operations=[],
        id="d.e" if version % 2 else None,
        identifiers=(IdentifierPlace(type="t", path=place, primary=True),),
        version=version,
        created=DATE,
    )


specs = st.builds(spec, st.sampled_from("xyz"), st.integers(1, 3), st.sampled_from(["a.b", "d", "email"]))
defaults = st.builds(
    DiscoveryDefaults,
    encryption=st.sampled_from([EncryptionLevel.NONE] * 5 + [EncryptionLevel.PROTECTED]),
    detection=st.sampled_from([DetectionMode.SEAL] * 5 + list(DetectionMode)),
)


@st.composite
def edits(draw: st.DrawFn) -> list[MetadataSnapshot]:
    """Snapshots that follow one another: an edit of a few attributes, specs, the rules or the defaults each."""
    by_path: dict[str, AttributeMetadata] = {}
    by_name: dict[str, SpecDocument] = {}
    rules, edited = DEFAULT_RULES, 0
    followed = [MetadataSnapshot(version=0, defaults=draw(defaults))]
    for version in range(1, draw(st.integers(2, 8))):
        for each in draw(st.lists(attributes, max_size=3)):
            by_path[each.path] = each.model_copy(update={"version": version})
        if draw(st.integers(0, 3)) == 0:
            for one in draw(st.lists(specs, max_size=2)):
                by_name[one.name] = one
            by_name.pop(draw(st.sampled_from("xyz")), None)
        if draw(st.integers(0, 3)) == 0:
            hub_limit = draw(st.sampled_from([None, 7, 50]))
            rules, edited = IdentityRules(hub_limit=hub_limit) if hub_limit else DEFAULT_RULES, edited + 1
        followed.append(
            MetadataSnapshot(
                version=version,
                specs=tuple(by_name[name] for name in sorted(by_name)),
                attributes=tuple(by_path[path] for path in sorted(by_path)),
                defaults=draw(defaults) if draw(st.integers(0, 5)) == 0 else followed[-1].defaults,
                identity_rules=rules,
                identity_rules_version=edited,
            )
        )
    return followed


def changed(older: MetadataSnapshot, newer: MetadataSnapshot) -> SnapshotChanges:
    """As they come from the service or a file."""
    found = changes_between(older, str(older.version), newer, str(newer.version))
    assert found is not None
    return SnapshotChanges.model_validate_json(found.model_dump_json())


@more
@given(edits(), st.data())
def test_a_snapshot_made_of_changes_is_the_whole_one(
    followed: list[MetadataSnapshot], data: st.DataObject
) -> None:
    known = followed[0]
    for newer in followed[1:]:
        if data.draw(st.booleans()):
            continue  # a reader that skips versions
        known = changed(known, newer).applied_to(known)
        assert known == newer
        assert known.model_dump_json() == newer.model_dump_json()


@more
@given(edits(), st.lists(st.sampled_from(PROBES)))
def test_what_an_index_has_kept_of_the_answers_stays_true(
    followed: list[MetadataSnapshot], asked: list[str]
) -> None:
    compiled = CompiledSnapshot(followed[0])
    rules, kept = compiled.attributes.index_rules.is_indexable, dict[str, bool]()
    for older, newer in pairwise(followed):
        kept |= {path: rules(path) for path in asked}
        compiled = compiled.after(changed(older, newer))
        if compiled.attributes.index_rules.is_indexable is not rules:
            rules, kept = compiled.attributes.index_rules.is_indexable, {}
        anew = AttributeTree(newer).index_rules.is_indexable
        assert kept == {path: anew(path) for path in kept}


@more
@given(edits())
def test_changes_joined_are_all_of_them(followed: list[MetadataSnapshot]) -> None:
    steps = [changed(older, newer) for older, newer in pairwise(followed)]
    for count in range(1, len(steps) + 1):
        whole = joined(steps[:count])
        assert (whole.since, whole.etag) == (steps[0].since, steps[count - 1].etag)
        assert whole.applied_to(followed[0]) == followed[count]


@more
@given(edits())
def test_protection_is_reported_to_be_the_same_only_where_it_is(followed: list[MetadataSnapshot]) -> None:
    for known, newer in pairwise(followed):
        if protect_alike(known, newer):
            assert protection_of(known) == protection_of(newer)
    found = AttributeMetadata(
        path="zz", data_type=DataType.STRING, status="discovered", version=1, created=DATE
    )
    more_known = followed[-1].model_copy(update={"attributes": (*followed[-1].attributes, found)})
    is_open = more_known.defaults.encryption is EncryptionLevel.NONE
    assert protect_alike(followed[-1], more_known) == is_open


def test_who_asks_late_in_another_thread_leaves_no_earlier_answer_behind() -> None:
    """As an index does whose put is overdue: it asks for what it is being given while the next version is taken."""
    one, two = (
        AttributeMetadata(
            path="a",
            data_type=DataType.STRING,
            encryption=level,
            indexable=True,
            version=number,
            created=DATE,
        )
        for number, level in enumerate([EncryptionLevel.NONE, EncryptionLevel.PROTECTED], 1)
    )
    older, newer = (MetadataSnapshot(version=each.version, attributes=(each,)) for each in (one, two))
    compiled = CompiledSnapshot(older)
    tree, late = compiled.attributes, compiled.attributes.index_rules
    policy = tree.policy

    def asked(path: str) -> Any:
        found = policy(path)
        tree.policy = policy  # type: ignore[method-assign]
        compiled.after(changed(older, newer))
        return found

    tree.policy = asked  # type: ignore[method-assign]
    assert late.is_indexable("a")
    assert not tree.index_rules.is_indexable("a")


def shown(node: AttributeNode) -> Iterator[Any]:
    """All that a tree says, of what was declared."""
    yield node.path, node.policy, node.protects, node.is_sealed, node.is_searchable, node.is_undecided
    yield sorted(map(str, node.kinds)), node.proposal, node.declared
    for key in sorted(node.children):
        if not node.children[key].is_unknown:
            yield key, *shown(node.children[key])


def answers(compiled: CompiledSnapshot, outputs: list[dict[str, Any]]) -> list[Any]:
    tree, names = compiled.attributes, compiled.protected_names
    tree.report_again()
    said: list[Any] = [compiled.version, compiled.snapshot, list(shown(tree._root))]
    said += [tree.policies, tree.declared_types]
    for path in filter(None, PROBES):
        said += [path, tree.policy(path), tree.index_rules.is_indexable(path)]
        said += [names.protects_event_id(path, "x@example.com"), names.signs_in_event_ids(path)]
    said += [names.protects(Identifier("t", value)) for value in ("1", "x@example.com")]
    said += [compiled.snapshot.spec_for(name, "any") for name in "xyz"]
    for output in outputs:
        said.append(walked(tree, output))
    return said


def walked(tree: AttributeTree, output: dict[str, Any]) -> Any:
    try:
        leaves = tree.leaves(output, ORIGIN)
    except EventError as error:
        return str(error)
    return leaves.plain, leaves.to_seal, [(each.node.path, *each[1:3]) for each in leaves.unexpected]


scalars = st.sampled_from([1, 2.5, True, "text", "x@example.com", None, [1], ["x@example.com"]])
outputs = st.recursive(
    scalars,
    lambda inner: st.dictionaries(
        st.sampled_from(["a", "b", "c", "d", "e", "f", "e.f", "z"]), inner, max_size=3
    ),
    max_leaves=6,
)
trees = st.dictionaries(st.sampled_from(["a", "b", "c", "d", "email", "z", "1.2.3.4"]), outputs, max_size=3)


@more
@given(edits(), st.lists(trees, max_size=4), st.booleans())
def test_what_is_compiled_of_changes_is_what_is_compiled_of_the_whole(
    followed: list[MetadataSnapshot], outputs: list[dict[str, Any]], has_room: bool
) -> None:
    with nullcontext() if has_room else most_unknown(2):
        compiled = CompiledSnapshot(followed[0])
        for older, newer in pairwise(followed):
            for output in outputs:
                # What events show of unknown paths is kept from one snapshot to the next.
                walked(compiled.attributes, output)
            for path in filter(None, PROBES):
                compiled.attributes.index_rules.is_indexable(path)
            compiled = compiled.after(changed(older, newer))
            assert_same(compiled, newer, outputs if has_room else [])


def assert_same(compiled: CompiledSnapshot, newer: MetadataSnapshot, outputs: list[dict[str, Any]]) -> None:
    anew = CompiledSnapshot(newer)
    assert answers(compiled, outputs) == answers(anew, outputs)
    unknown = sum(node.is_unknown for node in below(compiled.attributes._root))
    assert compiled.attributes._unknown == unknown


def below(node: AttributeNode) -> Iterator[AttributeNode]:
    for child in node.children.values():
        yield child
        yield from below(child)


@contextmanager
def most_unknown(count: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policy_tree, "MAX_CACHED_UNKNOWN", count)
        yield


class Broadcasts:
    """What Spark does: a worker has what was sent, until it is destroyed."""

    def __init__(self) -> None:
        self.all: list[Any] = []
        self.there: list[Any] = []

    def __call__(self, content: bytes) -> Any:
        number = len(self.all)
        self.all.append(SimpleNamespace(value=content, destroy=lambda: self.there.remove(self.all[number])))
        self.there.append(self.all[number])
        return self.all[number]


@settings(max_examples=examples(200), deadline=None)
@given(edits(), st.data())
def test_each_worker_has_the_snapshot_that_was_sent(
    followed: list[MetadataSnapshot], data: st.DataObject
) -> None:
    broadcast = Broadcasts()
    sender = SnapshotSender(broadcast)
    workers: dict[int, tuple[str, CompiledSnapshot]] = {}
    # Also backwards, as when a database is restored.
    for number in data.draw(st.lists(st.integers(0, len(followed) - 1), min_size=1, max_size=8)):
        pinned = PinnedSnapshot(f'"{number}"', followed[number])
        sent = sender.sent(pinned)
        assert sent.etag == pinned.etag
        assert broadcast.there == [sent.whole, *(each for _, each in sent.changes)]
        for worker in data.draw(st.sets(st.integers(0, 2))):
            if worker not in workers or workers[worker][0] != sent.etag:
                workers[worker] = sent.etag, sent.compiled(workers.get(worker))
            assert_same(workers[worker][1], pinned.snapshot, [])
    sender.close()
    assert not broadcast.there


def test_what_is_sent_stays_bounded_and_a_worker_that_keeps_up_reads_the_whole_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sender = SnapshotSender(Broadcasts())
    read: list[int] = []
    compile_anew = CompiledSnapshot.__init__

    def counted(self: CompiledSnapshot, snapshot: MetadataSnapshot, *previous: Any) -> None:
        read.append(snapshot.version)
        compile_anew(self, snapshot, *previous)

    monkeypatch.setattr(CompiledSnapshot, "__init__", counted)
    known: tuple[str, CompiledSnapshot] | None = None
    sent = SentSnapshot("", None)
    for version in range(2 * MOST_STEPS + 5):
        found = tuple(
            AttributeMetadata(path=f"p{n:04}", data_type=DataType.STRING, version=1, created=DATE)
            for n in range(version)
        )
        newer = PinnedSnapshot(str(version), MetadataSnapshot(version=version, attributes=found))
        sent = sender.sent(newer)
        assert len(sent.changes) <= MOST_STEPS
        known = sent.etag, sent.compiled(known)
    assert known is not None
    assert known[1].snapshot == newer.snapshot
    assert read == [0]
    assert sent.compiled(None).snapshot == newer.snapshot


def test_changes_of_another_snapshot_are_refused() -> None:
    def attribute(path: str) -> AttributeMetadata:
        return AttributeMetadata(path=path, data_type=DataType.STRING, version=1, created=DATE)

    one = MetadataSnapshot(version=1, attributes=(attribute("a"),))
    two = MetadataSnapshot(version=2, attributes=(*one.attributes, attribute("b")))
    other = MetadataSnapshot(version=1, attributes=(attribute("b"),))
    with pytest.raises(MetadataError, match="not changes of metadata snapshot 1"):
        changed(one, two).applied_to(other)
    # Nothing is ever deleted, so this is another database, of which only the whole says what is in it.
    assert changes_between(two, "2", one, "1") is None
