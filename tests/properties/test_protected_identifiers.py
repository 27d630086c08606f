"""An identifier is hashed wherever the value it was read from is sealed (law 3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idgraph.model.attributes import AttributeMetadata, AttributeStatus, EncryptionLevel
from idgraph.model.identifiers import Identifier
from idgraph.model.snapshots import DiscoveryDefaults, MetadataSnapshot
from idgraph.model.specs import IdentifierPlace
from tests.retail import attribute, spec
from transforms.privacy.protected_names import ProtectedNames
from transforms.schema.diff import AttributeTree

PLACE = "contact.nick"
SOMEBODY = Identifier("contact", "somebody")

levels = st.sampled_from([EncryptionLevel.NONE, EncryptionLevel.PROTECTED])
paths = st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map(".".join)
attributes = st.lists(
    st.builds(
        lambda path, encryption, status: attribute(path, encryption=encryption, status=status),
        paths,
        levels,
        st.sampled_from(AttributeStatus),
    ),
    max_size=5,
    unique_by=lambda each: each.path,
)


def snapshot(
    place: str, known: list[AttributeMetadata], default: EncryptionLevel = EncryptionLevel.NONE
) -> MetadataSnapshot:
    identified = spec("orders", identifiers=(IdentifierPlace(type="contact", path=place, primary=True),))
    return MetadataSnapshot(
        version=1,
        specs=(identified,),
        attributes=tuple(known),
        defaults=DiscoveryDefaults(encryption=default),
    )


@given(paths, attributes, levels)
def test_identifiers_follow_the_policy_of_their_place(
    place: str, known: list[AttributeMetadata], default: EncryptionLevel
) -> None:
    seen = snapshot(place, known, default)
    assert ProtectedNames(seen).protects(SOMEBODY) is AttributeTree(seen).policy(place).is_protected


@pytest.mark.parametrize(
    ("known", "hashed"),
    [
        ([attribute("contact", encryption="protected")], True),
        (
            [
                attribute("contact", encryption="protected"),
                attribute(PLACE, status="discovered"),
            ],
            True,
        ),
        ([attribute("contact", encryption="protected"), attribute(PLACE)], False),
        ([attribute(f"{PLACE}.home", encryption="protected")], True),
        ([attribute("contact.phone", encryption="protected")], False),
    ],
    ids=["below", "discovered below", "declared open below", "above", "beside"],
)
def test_the_neighbourhood_of_a_place(known: list[AttributeMetadata], hashed: bool) -> None:
    assert ProtectedNames(snapshot(PLACE, known)).protects(SOMEBODY) is hashed
