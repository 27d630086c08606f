"""Law 4: a discovered attribute that follows the defaults is in no snapshot, and nobody can tell by what is done with values."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from idgraph.jobs.reencrypt.policy_change import protection_of
from idgraph.model.attributes import (
    AttributeMetadata,
    AttributeStatus,
    DataType,
    EncryptionLevel,
    ReconciliationPolicy,
)
from idgraph.model.errors import EventError
from idgraph.model.identifiers import Identifier
from idgraph.model.snapshots import DetectionMode, DiscoveryDefaults, MetadataSnapshot, PinnedSnapshot
from idgraph.model.specs import IdentifierPlace, SpecDocument
from idgraph.projection.documents import fingerprint
from ingestion.spark.sent_snapshots import SnapshotSender
from profile_service.visibility import restrictions
from tests.lanes import examples
from tests.properties.references import ORIGIN
from transforms.schema.attribute_nodes import AttributePolicy
from transforms.schema.diff import AttributeTree
from transforms.spec.mapping import CompiledSnapshot

PATHS = ["a", "a.a", "a.b", "a.b.c", "b", "b.c", "email", "c", "d.e", "d", "d.e.f.g", r"e\.f", r"a\b"]
PROBES = [*PATHS, "a.b.c.d", "z", "d.e.f", "b.c.x", "e.f", "ab"]
DATE = datetime(2026, 1, 1, tzinfo=UTC)

more = settings(max_examples=examples(400), deadline=None)
levels = st.sampled_from([0, 0, 0, 20])

attributes = st.builds(
    lambda path, kind, protection, status, policy, indexable, level: AttributeMetadata(
        path=path,
        data_type=kind,
        encryption=protection,
        status=status,
        policy=policy,
        indexable=indexable,
        authorization_level=level,
        version=1,
        created=DATE,
    ),
    st.sampled_from(PATHS),
    st.sampled_from(DataType),
    st.sampled_from([EncryptionLevel.NONE] * 4 + list(EncryptionLevel)),
    st.sampled_from([AttributeStatus.DISCOVERED] * 3 + list(AttributeStatus)),
    st.sampled_from([ReconciliationPolicy.LATEST] * 3 + [ReconciliationPolicy.UNION]),
    st.booleans(),
    levels,
)
spec = SpecDocument(
    name="x",
    source="x",
    operations=[],
    id="d.e",
    identifiers=(IdentifierPlace(type="t", path="a.b", primary=True),),
    version=1,
    created=DATE,
)
snapshots = st.builds(
    lambda known, defaults: MetadataSnapshot(
        version=1,
        specs=(spec,),
        attributes=tuple(sorted(known, key=lambda each: each.path)),
        defaults=defaults,
    ),
    st.lists(attributes, max_size=8, unique_by=lambda each: each.path),
    st.builds(
        DiscoveryDefaults,
        encryption=st.sampled_from([EncryptionLevel.NONE] * 5 + [EncryptionLevel.PROTECTED]),
        detection=st.sampled_from([DetectionMode.SEAL] * 5 + list(DetectionMode)),
        indexable=st.booleans(),
        authorization_level=levels,
    ),
)
scalars = st.sampled_from([1, 2.5, True, "text", "x@example.com", None, [1], ["x@example.com"]])
outputs = st.recursive(
    scalars,
    lambda inner: st.dictionaries(
        st.sampled_from(["a", "b", "c", "d", "e", "f", "e.f", "z"]), inner, max_size=3
    ),
    max_leaves=6,
)
trees = st.dictionaries(st.sampled_from(["a", "b", "c", "d", "email", "z", "1.2.3.4"]), outputs, max_size=3)


def served(snapshot: MetadataSnapshot) -> MetadataSnapshot:
    """As the metadata service gives it."""
    kept = (each for each in snapshot.attributes if not snapshot.defaults.are_followed_by(each))
    return snapshot.model_copy(update={"attributes": tuple(kept)})


@more
@given(snapshots, st.lists(trees, max_size=4))
def test_what_is_left_out_changes_nothing(
    snapshot: MetadataSnapshot, given_outputs: list[dict[str, Any]]
) -> None:
    assert answers(served(snapshot), given_outputs) == answers(snapshot, given_outputs)


def answers(snapshot: MetadataSnapshot, given_outputs: list[dict[str, Any]]) -> list[Any]:
    compiled = CompiledSnapshot(snapshot)
    tree, names = compiled.attributes, compiled.protected_names
    said: list[Any] = [tree.policies, tree.declared_types, tree.levels, tree.highest_level]
    said += [protection_of(snapshot), fingerprint(snapshot), restrictions(snapshot)]
    for path in PROBES:
        said += [path, held(tree.policy(path)), tree.level(path), tree.level_of_sealed(path)]
        said += [held(tree.policy_of_value(path, value)) for value in (1, "x@example.com")]
        said += [tree.index_rules.is_indexable(path), tree.shows_in_a_key(path)]
        said += [names.protects_event_id(path, "x@example.com"), names.signs_in_event_ids(path)]
    said += [names.protects(Identifier("t", value)) for value in ("1", "x@example.com")]
    said += [walked(AttributeTree(snapshot), output) for output in given_outputs]
    return said


def held(policy: AttributePolicy) -> AttributePolicy:
    """A protected value is never indexed, whatever its policy says of that."""
    return policy._replace(indexable=policy.indexable and not policy.is_protected)


def walked(tree: AttributeTree, output: dict[str, Any]) -> Any:
    try:
        leaves = tree.leaves(output, ORIGIN)
    except EventError as error:
        return str(error)
    return leaves.plain, leaves.to_seal


def test_a_worker_has_the_snapshot_that_was_sent() -> None:
    there: list[Any] = []

    def broadcast(content: bytes) -> Any:
        there.append(SimpleNamespace(value=content, destroy=lambda: there.pop(0)))
        return there[-1]

    sender = SnapshotSender(broadcast)
    compiled = None
    # Also backwards, as when a database is restored.
    for version in (1, 1, 2, 1):
        pinned = PinnedSnapshot(f'"{version}"', MetadataSnapshot(version=version, specs=(spec,)))
        sent = sender.sent(pinned)
        assert sent.etag == pinned.etag
        assert len(there) == 1
        compiled = sent.compiled(compiled)
        assert compiled.snapshot == pinned.snapshot
    sender.close()
    assert not there
