"""The stated reason of an attribute's protection agrees with the pipeline."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from idgraph.model.attributes import AttributeMetadata, AttributeStatus, EncryptionLevel
from idgraph.model.snapshots import DiscoveryDefaults
from tests.retail import attribute, snapshot
from transforms.schema.protection_in_force import protection_in_force

attributes = st.lists(
    st.builds(
        lambda path, encryption, status: attribute(path, encryption=encryption, status=status),
        st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map(".".join),
        st.sampled_from(EncryptionLevel),
        st.sampled_from([AttributeStatus.ACTIVE, AttributeStatus.DISCOVERED]),
    ),
    max_size=5,
    unique_by=lambda each: each.path,
)


@example([attribute("a"), attribute("a.a.a")], "a", EncryptionLevel.PROTECTED)
@given(attributes, st.sampled_from(["a", "a.b", "a.b.a"]), st.sampled_from(EncryptionLevel))
def test_there_is_a_reason_exactly_where_something_protects(
    known: list[AttributeMetadata], path: str, default: EncryptionLevel
) -> None:
    found = protection_in_force(
        snapshot(declared=known, defaults=DiscoveryDefaults(encryption=default)), path
    )
    assert bool(found.because) is found.policy.is_protected


@pytest.mark.parametrize(
    ("stated", "path", "reason"),
    [
        (
            {"encryption": "protected", "classification": "confidential"},
            "a",
            "classification confidential means",
        ),
        ({"encryption": "searchable", "classification": "confidential"}, "a", "by itself means another"),
        ({"encryption": "protected"}, "a.b", "inherited from a"),
        ({"path": "a.b", "encryption": "protected"}, "a", "what a.b does"),
        (
            {"encryption": "protected", "status": "discovered", "sealed_for_review": True},
            "a",
            "no admin decided on it yet",
        ),
    ],
)
def test_the_reason_is_reported(stated: dict[str, object], path: str, reason: str) -> None:
    found = protection_in_force(snapshot(declared=[attribute(**{"path": "a", **stated})]), path)  # type: ignore[arg-type]
    (reported,) = found.because
    assert reason in reported
