"""The protection of an attribute with its origin, for people. The pipeline asks `AttributeTree`, and so does this."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from idgraph.model import paths
from idgraph.model.attributes import AttributeMetadata, AttributeStatus, EncryptionLevel
from idgraph.model.snapshots import MetadataSnapshot
from transforms.schema.attribute_nodes import AttributePolicy
from transforms.schema.diff import AttributeTree

MOST_BELOW = 5
"""The number of protected attributes below a path that are named."""


class ProtectionInForce(NamedTuple):
    """The policy that holds for every value at a path, and what makes it so, one reason each; none if nothing
    protects it. A detector may still seal single values of an attribute that no admin decided on."""

    policy: AttributePolicy
    because: tuple[str, ...]


class ListedAttribute(AttributeMetadata):
    """An attribute with the encryption that holds for its values: its own, or a stricter one that it inherits."""

    encryption_in_force: EncryptionLevel

    @property
    def shown_encryption(self) -> str:
        """For people."""
        inherited = " (inherited)" if self.encryption_in_force is not self.encryption else ""
        return f"{self.encryption_in_force}{inherited}"


def with_protection(
    snapshot: MetadataSnapshot, attributes: Iterable[AttributeMetadata]
) -> list[ListedAttribute]:
    """Attributes, each with what a snapshot says of its path."""
    tree = AttributeTree(snapshot)
    return [
        ListedAttribute.model_construct(**dict(each), encryption_in_force=tree.policy(each.path).encryption)
        for each in attributes
    ]


def protection_in_force(snapshot: MetadataSnapshot, path: str) -> ProtectionInForce:
    """The protection of a path in a snapshot, declared or not."""
    policy = AttributeTree(snapshot).policy(path)
    because = tuple(_reasons(snapshot, path))
    if policy.is_protected and not because:
        # Between it and an attribute further below stand paths that nobody declared.
        because = (
            f"a value here may hold what nobody declared: the discovery default, {snapshot.defaults.encryption}",
        )
    return ProtectionInForce(policy, because)


def _reasons(snapshot: MetadataSnapshot, path: str) -> Iterator[str]:
    known = {attribute.path: attribute for attribute in snapshot.attributes}
    own = known.get(path)
    if own is not None and own.is_protected:
        yield _own_reason(snapshot, own)
    if own is None or own.status is AttributeStatus.DISCOVERED:
        above = _protected_above(known, path)
        if above is not None:
            yield f"inherited from {above}, as nobody declared this one"
        elif own is None and snapshot.defaults.encryption is not EncryptionLevel.NONE:
            yield f"the discovery default: {snapshot.defaults.encryption}"
    protected = {each.path for each in snapshot.attributes if each.is_protected}
    below = [each for each in protected - {path} if paths.is_within(each, path)]
    for each in sorted(below)[:MOST_BELOW]:
        yield f"a value here may hold what {each} does, which is protected"
    if len(below) > MOST_BELOW:
        yield f"so may it what {len(below) - MOST_BELOW} more below it do"


def _own_reason(snapshot: MetadataSnapshot, own: AttributeMetadata) -> str:
    if own.sealed_for_review:
        kind = own.proposal.kind if own.proposal else "sensitive"
        return f"it looks like {kind} to a detector, and no admin decided on it yet"
    if snapshot.levels.policy(own.classification).encryption is own.encryption:
        return f"its own encryption, which is what classification {own.classification} means"
    return f"its own encryption; classification {own.classification} by itself means another"


def _protected_above(known: Mapping[str, AttributeMetadata], path: str) -> str | None:
    for place in paths.ancestors(path):
        attribute = known.get(place)
        if attribute is not None and attribute.is_protected:
            return place
        if attribute is not None and attribute.status is not AttributeStatus.DISCOVERED:
            return None
    return None
