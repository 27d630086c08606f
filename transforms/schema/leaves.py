"""What one event sets, leaf by leaf: what may be stored as it is, what must be sealed, what nobody expected."""

from __future__ import annotations

from typing import Any, NamedTuple

from idgraph import native
from idgraph.model.attributes import DataType
from idgraph.model.fragments import Kind, Register
from idgraph.model.proposals import Proposal
from transforms.schema.attribute_nodes import AttributeNode
from transforms.schema.detection import detection


class ValueToSeal(NamedTuple):
    """A value that must be sealed before it leaves the stage, with a blind index or without."""

    path: str
    value: Any
    is_searchable: bool


if native.built_leaves is not None:
    native.built_leaves.bind(
        Register, (Kind.DELETED, Kind.PLAIN), AttributeNode, ValueToSeal, *detection.KNOWN_ANSWERS
    )


class Unexpected(NamedTuple):
    """What one leaf showed; `kinds` and `known` are what its attribute had shown until then."""

    node: AttributeNode
    data_type: DataType
    proposal: Proposal | None
    kinds: frozenset[type]
    known: Proposal | None


class Leaves(NamedTuple):
    """What one event sets: what may be stored as it is, by path; what must be sealed first; and what the
    schema did not expect."""

    plain: dict[str, Register]
    to_seal: list[ValueToSeal]
    unexpected: list[Unexpected]

    def __len__(self) -> int:
        return len(self.plain) + len(self.to_seal)
