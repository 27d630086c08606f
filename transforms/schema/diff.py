"""Schema diff: the leaves of a mapped output, each with the policy that holds for it.

A clash of shapes cannot uncover what policy protects, since what protects is inherited (`transforms/schema/policy_tree.py`). A
value that looks sensitive, at a path on which no admin decided, is protected by what its level means.

An undeclared key that itself looks sensitive is refused, with its event: a path cannot be sealed.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from idgraph import native
from idgraph.model import canonical, paths
from idgraph.model.attributes import AttributeMetadata
from idgraph.model.classification import Proposal
from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import EventError
from idgraph.model.fragments import Kind, Origin, Register
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.specs import RESERVED_KEY
from transforms.schema import detection
from transforms.schema.attribute_nodes import AttributeNode, Leaves, Unexpected, ValueToSeal
from transforms.schema.data_types import DATA_TYPES, canonical_value, problem
from transforms.schema.policy_tree import MAX_CACHED_UNKNOWN, PolicyTree

# The constructor of a NamedTuple, without its call: there is one for most leaves of most events.
_new: Callable[[type[Register], tuple[Origin, Kind, Any]], Register] = tuple.__new__

if native.built_leaves is not None:
    native.built_leaves.bind(
        Register, (Kind.DELETED, Kind.PLAIN), AttributeNode, ValueToSeal, *detection.KNOWN_ANSWERS
    )

_WORD = 2**63
_READ_OTHERWISE = frozenset({list, Decimal})

_PLAIN = Kind.PLAIN  # to look it up in its enum is dear

MAX_LEAVES = 10_000

REPORT_SECONDS = 60.0
"""Seconds after which a path that the snapshot does not have is reported again, if events have it. Most discovered
attributes are such paths."""


class AttributeTree(PolicyTree):
    """The attributes of one snapshot, and what events show that they do not have. One per thread."""

    def __init__(self, snapshot: MetadataSnapshot) -> None:
        self._seen: set[AttributeNode] = set()
        super().__init__(snapshot)
        self._expected: dict[AttributeNode, tuple[frozenset[type], Proposal | None]] = {}
        self._day = self._minute = 0
        self._value_keys = snapshot.defaults.value_keys

    def look_again(self, seconds: float) -> None:
        """Set the time since the epoch. Attributes that the snapshot does not have are reported once a minute, as a
        report may be lost; on another day in UTC each attribute is reported by its first event."""
        day, minute = int(seconds // 86400), int(seconds // REPORT_SECONDS)
        if minute != self._minute:
            self.report_again(is_lost=day != self._day)
            self._day, self._minute = day, minute
            self.forget_unknown()

    def _declare(self, node: AttributeNode, attribute: AttributeMetadata) -> None:
        super()._declare(node, attribute)
        self._seen.add(node)

    def leaves(self, output: dict[str, Any], origin: Origin) -> Leaves:
        """The leaves of a mapped output, of an event of this origin. Raises EventError for one out of bounds.

        A leaf that the schema does not expect is reported once, until `report_again`.

        An empty object sets nothing. An array is one leaf.
        """
        found = Leaves({}, [], [])
        try:
            if native.leaves is not None and type(output) is dict:
                native.leaves.walk(self._root, output, RESERVED_KEY, origin, found, *found[:2], self._walk)
            else:
                if RESERVED_KEY in output:
                    output = {key: value for key, value in output.items() if key != RESERVED_KEY}
                self._walk(self._root, output, origin, found)
            _check_number(found)
        except EventError:
            self.take_back(found)
            raise
        return found

    def native_state(self) -> tuple[Any, ...] | None:
        """The arguments of native code that turns an event's leaves into the bytes of a state: the function, its
        arguments beside an event's own, and the bound of leaves per event."""
        if native.leaves is None:
            return None
        known = self._root, RESERVED_KEY, self.policies, self._walk, canonical.encode
        return native.leaves.state, *known, MAX_LEAVES

    def take_back(self, leaves: Leaves) -> None:
        """The event was refused: what it showed is unexpected still, for the next event that shows it."""
        for unexpected in reversed(leaves.unexpected):
            unexpected.node.kinds = unexpected.kinds
            unexpected.node.proposal = unexpected.known

    def _walk(self, parent: AttributeNode, tree: dict[str, Any], origin: Origin, found: Leaves) -> None:
        # Reference of `walk` in native/leaves.c, which does the common leaves itself and gives each other to this.
        plain = found.plain
        children = parent.children
        for key, value in tree.items():
            node = children.get(key) or self._unknown_node(parent, key)
            kind = type(value)
            if kind is dict:
                self._walk(node, value, origin, found)
                continue
            if value is None:
                plain[node.path] = Register(origin, Kind.DELETED, None)
                continue
            # Most are short integers and ASCII: not worth a call.
            if (kind is str and value.isascii()) or (kind is int and -_WORD < value < _WORD):
                kept = value
            else:
                kept = _storable(node.path, value)
            proposal = None
            if node.is_undecided:
                test = (node.tests or node.make_tests()).get(kind)
                if test is not None:
                    proposal = test(kept)
            if kind not in node.kinds or (proposal is not None and proposal.is_stronger(node.proposal)):
                found.unexpected.append(
                    Unexpected(node, DATA_TYPES[kind], proposal, node.kinds, node.proposal)
                )
                self._expect(node, kind, proposal)
            if node.is_sealed or proposal is not None:
                policy = self._policy_of_value(node, proposal)
                if policy.is_protected:
                    found.to_seal.append(ValueToSeal(node.path, kept, policy.is_searchable))
                    continue
            plain[node.path] = _new(Register, (origin, _PLAIN, kept))

    def _expect(self, node: AttributeNode, kind: type, proposal: Proposal | None) -> None:
        if node.is_kept:
            if node.declared is not None and not node.kinds:
                self._declare(node, node.declared)
            self._expected.setdefault(node, (node.kinds, node.proposal))
            seen = DATA_TYPES[kind]
            node.kinds |= {other for other, its in DATA_TYPES.items() if its is seen}
            if proposal is not None and proposal.is_stronger(node.proposal):
                node.proposal = proposal

    def report_again(self, is_lost: bool = False) -> None:
        """Report again what events showed. Sights of this day only if reports are known to be lost, as those of a task that
        failed."""
        for node, (kinds, proposal) in self._expected.items():
            node.kinds = node.kinds and kinds  # none: a sight that was taken back
            node.proposal = proposal
        self._expected.clear()
        if is_lost:
            for node in self._seen:
                node.kinds = frozenset()  # a value of any type is unexpected until one comes
            self._seen.clear()

    def refuse_value_keys(self, leaves: Leaves, test: Callable[[], Callable[[str], bool]]) -> None:
        """Raises EventError if a path that the snapshot does not have holds a key of which the test says that it was
        made of a value, other than below a path where an admin allowed it."""
        if not leaves.unexpected:
            return
        is_value = test()
        for unexpected in leaves.unexpected:
            for key, at in self.undeclared_keys(unexpected.node.path):
                if is_value(key) and not any(paths.is_within(at, allowed) for allowed in self._value_keys):
                    above = paths.ancestors(at)
                    raise EventError(
                        DeadLetterReason.VALUE_KEY,
                        f"a key below {above[0] if above else 'the root'} of the mapped output was made of a value of "
                        "the event, and paths are never sealed; have the spec make a value of it, or allow the path by "
                        "value_keys of the discovery defaults",
                    )

    def _refuse_sensitive(self, parent: AttributeNode, key: str) -> None:
        # Keys become paths, and paths are never sealed: not in the store, the catalogue, the index, a log.
        detection = self.sensitive(key)
        if detection is not None:
            raise EventError(
                DeadLetterReason.SENSITIVE_KEY,
                f"a key below {parent.path or 'the root'} of the mapped output looks sensitive ({detection.kind}) and "
                "no attribute of that path is declared; have the spec make a value of it",
            )

    def _unknown_node(self, parent: AttributeNode, key: str) -> AttributeNode:
        self._refuse_sensitive(parent, key)
        # Hostile keys must not fill the memory of a worker: beyond the bound nodes are not kept.
        keep = self._unknown < MAX_CACHED_UNKNOWN
        self._unknown += keep
        node = self._add(parent, key, parent.children if keep else {})
        node.is_kept = node.is_unknown = keep
        return node


def _check_number(found: Leaves) -> None:
    if len(found.plain) + len(found.to_seal) > MAX_LEAVES:
        raise EventError(
            DeadLetterReason.TRANSFORM_FAILED, f"the mapped output has more than {MAX_LEAVES} leaves"
        )


def _storable(path: str, value: Any) -> Any:
    reason = problem(value)
    if reason is not None:
        raise EventError(DeadLetterReason.TRANSFORM_FAILED, f"the mapped value at {path} is {reason}")
    return canonical_value(value) if type(value) in _READ_OTHERWISE else value
