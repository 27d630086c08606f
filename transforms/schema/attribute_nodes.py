"""The attributes of a snapshot by key, each with the policy that holds for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from idgraph.model import paths
from idgraph.model.attributes import AttributeMetadata, DataType, EncryptionLevel
from idgraph.model.classification import LevelPolicy, Proposal
from idgraph.model.fragments import Register
from idgraph.model.snapshots import DiscoveryDefaults

if TYPE_CHECKING:
    from transforms.schema.detection import ValueTests


class AttributePolicy(NamedTuple):
    """The handling of one attribute's values on their way to the store and the index."""

    encryption: EncryptionLevel
    indexable: bool
    authorization_level: int

    @property
    def is_protected(self) -> bool:
        return self.encryption is not EncryptionLevel.NONE

    @property
    def is_searchable(self) -> bool:
        """Protected, with a blind index for equality."""
        return self.encryption is EncryptionLevel.SEARCHABLE

    def stricter(self, other: AttributePolicy) -> AttributePolicy:
        """The policy that forbids all that either forbids."""
        return AttributePolicy(
            max(self.encryption, other.encryption, key=lambda level: level.strictness),
            self.indexable and other.indexable,
            max(self.authorization_level, other.authorization_level),
        )


def policy_of(stated: AttributeMetadata | DiscoveryDefaults | LevelPolicy) -> AttributePolicy:
    """The policy that somebody stated."""
    return AttributePolicy(stated.encryption, stated.indexable, stated.authorization_level)


class AttributeNode:
    """One key of the unified schema: an attribute, the way to attributes, or both after a clash."""

    __slots__ = (
        *(
            "_policy",
            "children",
            "declared",
            "depth",
            "is_kept",
            "is_searchable",
            "is_sealed",
            "is_undecided",
            "is_unknown",
        ),
        *("kinds", "path", "proposal", "protects", "tests"),
    )

    def __init__(
        self, path: str, depth: int, policy: AttributePolicy, protects: AttributePolicy | None
    ) -> None:
        self.children: dict[str, AttributeNode] = {}
        self.path = path
        self.depth = depth
        self.is_kept = True
        self.is_unknown = False
        """Whether it is kept only because an event or a stored value has it."""
        self.declared: AttributeMetadata | None = None
        self.policy = policy
        self.protects = protects
        """The policy that undeclared attributes below inherit, if one does."""
        self.kinds: frozenset[type] = frozenset()
        """Python types of values that no longer need to be reported."""
        self.is_undecided = False
        """Whether detectors look at values."""
        self.proposal: Proposal | None = None
        """The strongest proposal that no longer needs to be reported."""
        self.tests: ValueTests | None = None
        """The reports of detectors on values here, once there were any."""

    @property
    def policy(self) -> AttributePolicy:
        """The handling of a value at this path."""
        return self._policy

    @policy.setter
    def policy(self, policy: AttributePolicy) -> None:
        self._policy = policy
        # Asked for every leaf of every event.
        self.is_sealed = policy.is_protected
        self.is_searchable = policy.is_searchable

    def make_tests(self) -> ValueTests:
        """Only for attributes that show a value: most keys of a hostile event never do."""
        # Late: whoever reads profiles needs no detector of most attributes.
        from transforms.schema.detection import tests_of

        self.tests = tests_of(paths.split(self.path)[-2:])
        return self.tests


def protect_above(node: AttributeNode) -> AttributePolicy | None:
    """Protect what stands above protected attributes as they are; gives the strictest policy of those below."""
    strictest: AttributePolicy | None = None
    for child in node.children.values():
        for below in (
            protect_above(child),
            child.policy if child.policy.is_protected else None,
        ):
            if below is not None:
                strictest = below if strictest is None else strictest.stricter(below)
    if strictest is not None:
        node.policy = node.policy.stricter(strictest)
    return strictest


class ValueToSeal(NamedTuple):
    """A value that must be sealed before it leaves the stage, with a blind index or without."""

    path: str
    value: Any
    is_searchable: bool


class Unexpected(NamedTuple):
    """Findings on one leaf; `kinds` and `known` are what its attribute had shown until then."""

    node: AttributeNode
    data_type: DataType
    proposal: Proposal | None
    kinds: frozenset[type]
    known: Proposal | None


class Leaves(NamedTuple):
    """The leaves of one event: plain ones by path, those to seal, and findings for the
    schema did not expect."""

    plain: dict[str, Register]
    to_seal: list[ValueToSeal]
    unexpected: list[Unexpected]

    def __len__(self) -> int:
        return len(self.plain) + len(self.to_seal)
