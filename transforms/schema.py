"""Schema diff: the leaves of a mapped output, each with the policy that holds for it.

What protects is inherited, so that a clash of shapes cannot uncover what policy protects:

- below a protected attribute everything is protected, unless an admin declared (status `active`) otherwise;
- a value that looks sensitive, at a path on which no admin decided, is protected by what its level means;
- a value at a path *above* a protected attribute (a string or an array where an object was) is protected
  too, since it may hold what the attribute held.

An undeclared key that itself looks sensitive is refused, with its event: a path cannot be sealed.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from model import canonical, native, paths
from model.attributes import (
    AttributeMetadata,
    AttributeStatus,
    Reconciliation,
    ReconciliationPolicy,
)
from model.classification import Classification
from model.dead_letters import DeadLetterReason
from model.errors import EventError
from model.fragments import Kind, Origin, Register
from model.identifiers import Identifier
from model.index_rules import IndexRules
from model.proposals import Proposal
from model.snapshots import DetectionMode, MetadataSnapshot
from transforms.attribute_nodes import AttributeNode, AttributePolicy, policy_of, protect_above
from transforms.data_types import DATA_TYPES
from transforms.detection.detection import shaped_key
from transforms.leaves import Leaves, Unexpected, ValueToSeal
from transforms.mapping import RESERVED_KEY
from transforms.storable import canonical_value, is_text, problem

# What a NamedTuple's own constructor does, without its call: there is one for most leaves of most events.
_new: Callable[[type[Register], tuple[Origin, Kind, Any]], Register] = tuple.__new__

_WORD = 2**63
_READ_OTHERWISE = frozenset({list, Decimal})

_PLAIN = Kind.PLAIN  # to look it up in its enum is dear

MAX_LEAVES = 10_000
MAX_DEPTH = 64
MAX_PATH = 1024
MAX_CACHED_UNKNOWN = 100_000


class AttributeTree:
    """All attributes of one snapshot by key. Grows by a bounded cache of unknown paths; one per thread."""

    def __init__(self, snapshot: MetadataSnapshot) -> None:
        self._default = policy_of(snapshot.defaults)
        mode = snapshot.defaults.detection
        self._detects = mode is not DetectionMode.OFF
        self._sealing_levels = {
            level: policy_of(snapshot.levels.policy(level))
            for level in (Classification if mode is DetectionMode.SEAL else ())
        }
        self._root = AttributeNode("", 0, self._default, None)
        self.policies: dict[str, Reconciliation] = {}
        """How values are reconciled, by path; of those that are not by `latest`."""
        self._unknown = 0
        self._expected: dict[AttributeNode, tuple[frozenset[type], Proposal | None]] = {}
        self.index_rules = IndexRules(_Indexable(self).__getitem__, self.policies)
        # Parents come before children, so that a child finds what it inherits.
        for attribute in sorted(snapshot.attributes, key=lambda attribute: paths.split(attribute.path)):
            self._declare(attribute)
        protect_above(self._root)

    def _declare(self, attribute: AttributeMetadata) -> None:
        node = self._root
        try:
            for key in paths.split(attribute.path):
                node = node.children.get(key) or self._add(node, key, node.children)
        except EventError:
            # No mapped output can have this path, so what was declared of it must not stop the others.
            return
        if attribute.policy is not ReconciliationPolicy.LATEST:
            self.policies[attribute.path] = Reconciliation(attribute.policy, attribute.sources)
        own = policy_of(attribute)
        if attribute.status is AttributeStatus.RETIRED:
            own = own._replace(indexable=False)
        if node.protects and attribute.status is AttributeStatus.DISCOVERED:
            own = own.stricter(node.protects)
        node.policy = own
        node.protects = own if own.is_protected else None
        node.kinds = frozenset(kind for kind, seen in DATA_TYPES.items() if attribute.accepts(seen))
        node.is_undecided = self._detects and attribute.status is AttributeStatus.DISCOVERED
        node.proposal = attribute.proposal

    def policy(self, path: str) -> AttributePolicy:
        """The policy that holds for a path, declared or not."""
        node = self._root
        for key in paths.split(path):
            child = node.children.get(key)
            if child is None:
                return node.protects or self._default
            node = child
        return node.policy

    def policy_of_value(self, path: str, value: Any) -> AttributePolicy:
        """What `leaves` would ask for this value, told of one that is stored already: a value that looks
        sensitive, at a path on which no admin decided, is judged by itself. Nothing is reported, and no path
        is refused: it is there already."""
        return self.policy_at(self.stored_node(path), value)

    def stored_node(self, path: str) -> AttributeNode:
        """The node of a path that is stored already."""
        node = self._root
        for key in paths.split(path):
            node = node.children.get(key) or self._stored_node(node, key)
        return node

    def policy_at(self, node: AttributeNode, value: Any) -> AttributePolicy:
        """`policy_of_value` of the node's path."""
        test = (node.tests or node.make_tests()).get(type(value)) if node.is_undecided else None
        return self._policy_of_value(node, None if test is None else test(value))

    def shows_in_a_key(self, path: str) -> bool:
        """Whether a path that is stored already has a key that looks sensitive and that no admin declared."""
        node = self._root
        shows = False
        for key in paths.split(path):
            node = node.children.get(key) or self._stored_node(node, key)
            shows = node.is_undecided and (shows or self._sensitive(key) is not None)
        return shows

    def _add(self, parent: AttributeNode, key: str, siblings: dict[str, AttributeNode]) -> AttributeNode:
        node = self._below(parent, key)
        if not _is_within_bounds(node):
            raise EventError(
                DeadLetterReason.TRANSFORM_FAILED,
                f"the mapped output has an attribute path that is empty, longer than {MAX_PATH} characters, "
                f"deeper than {MAX_DEPTH} keys, or not valid Unicode",
            )
        siblings[key] = node
        return node

    def _below(self, parent: AttributeNode, key: str) -> AttributeNode:
        path = f"{parent.path}.{paths.escape(key)}" if parent.depth else paths.escape(key)
        node = AttributeNode(path, parent.depth + 1, parent.protects or self._default, parent.protects)
        node.is_undecided = self._detects
        return node

    def _stored_node(self, parent: AttributeNode, key: str) -> AttributeNode:
        node = self._below(parent, key)
        # What is kept is known to events too: none of what they are refused for.
        node.is_kept = (
            parent.is_kept
            and self._unknown < MAX_CACHED_UNKNOWN
            and _is_within_bounds(node)
            and self._sensitive(key) is None
        )
        if node.is_kept:
            self._unknown += 1
            parent.children[key] = node
        return node

    def leaves(self, output: dict[str, Any], origin: Origin) -> Leaves:
        """The leaves of a mapped output, of an event of this origin. Raises EventError for one out of bounds.

        What the schema does not expect is told once, until `report_anew`.

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

    def leaves_and_state(
        self, output: dict[str, Any], origin: Origin, identifiers: tuple[Identifier, ...]
    ) -> tuple[Leaves, bytes | None]:
        """`leaves`, and the state that its plain ones make with an event's identifiers, as the JSON in what
        `merge.codec` writes: then none stands in `plain`. None for what is not of the common form, which has other
        policies than `latest` or names with other characters than ASCII: then they stand in `plain`."""
        if native.leaves is None or type(output) is not dict:
            return self.leaves(output, origin), None
        found = Leaves({}, [], [])
        try:
            state = native.leaves.state(
                self._root,
                output,
                RESERVED_KEY,
                origin,
                identifiers,
                self.policies,
                found,
                *found[:2],
                self._walk,
                canonical.encode,
            )
            _check_number(found)
        except EventError:
            self.take_back(found)
            raise
        return found, state

    def native_state(self) -> tuple[Any, ...] | None:
        """What native code calls for `leaves_and_state`: the function, what it is given beside an event's own, and
        how many leaves an event may have."""
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
        # Twin of `walk` in native/leaves.c, which does the common leaves itself and gives each other to this.
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

    def _policy_of_value(self, node: AttributeNode, proposal: Proposal | None) -> AttributePolicy:
        level = self._sealing_levels.get(proposal.classification) if proposal is not None else None
        return node.policy if level is None else node.policy.stricter(level)

    def _expect(self, node: AttributeNode, kind: type, proposal: Proposal | None) -> None:
        if node.is_kept:
            self._expected.setdefault(node, (node.kinds, node.proposal))
            seen = DATA_TYPES[kind]
            node.kinds |= {other for other, its in DATA_TYPES.items() if its is seen}
            if proposal is not None and proposal.is_stronger(node.proposal):
                node.proposal = proposal

    def report_anew(self) -> None:
        """Report again what events showed: what was reported for a task that failed must not be lost."""
        for node, (kinds, proposal) in self._expected.items():
            node.kinds = kinds
            node.proposal = proposal
        self._expected.clear()

    def _sensitive(self, key: str) -> Proposal | None:
        told = shaped_key(key)
        level = self._sealing_levels.get(told.classification) if told is not None else None
        return told if level is not None and level.is_protected else None

    def _refuse_sensitive(self, parent: AttributeNode, key: str) -> None:
        # Keys become paths, and paths are never sealed: not in the store, the catalogue, the index, a log.
        told = self._sensitive(key)
        if told is not None:
            raise EventError(
                DeadLetterReason.SENSITIVE_KEY,
                f"a key below {parent.path or 'the root'} of the mapped output looks sensitive ({told.kind}) and "
                "no attribute of that path is declared; have the spec make a value of it",
            )

    def _unknown_node(self, parent: AttributeNode, key: str) -> AttributeNode:
        self._refuse_sensitive(parent, key)
        # Hostile keys must not fill the memory of a worker: beyond the bound nodes are not kept.
        keep = self._unknown < MAX_CACHED_UNKNOWN
        self._unknown += keep
        node = self._add(parent, key, parent.children if keep else {})
        node.is_kept = keep
        return node


def _check_number(found: Leaves) -> None:
    if len(found.plain) + len(found.to_seal) > MAX_LEAVES:
        raise EventError(
            DeadLetterReason.TRANSFORM_FAILED, f"the mapped output has more than {MAX_LEAVES} leaves"
        )


def _is_within_bounds(node: AttributeNode) -> bool:
    return 0 < len(node.path) <= MAX_PATH and node.depth <= MAX_DEPTH and is_text(node.path)


def _storable(path: str, value: Any) -> Any:
    reason = problem(value)
    if reason is not None:
        raise EventError(DeadLetterReason.TRANSFORM_FAILED, f"the mapped value at {path} is {reason}")
    return canonical_value(value) if type(value) in _READ_OTHERWISE else value


class _Indexable(dict[str, bool]):
    """Answers by path, remembered within bounds: asked for every leaf of every fragment."""

    def __init__(self, tree: AttributeTree) -> None:
        super().__init__()
        self._tree = tree

    def __missing__(self, path: str) -> bool:
        policy = self._tree.policy(path)
        answer = policy.indexable and not policy.is_protected
        if len(self) < MAX_CACHED_UNKNOWN:
            self[path] = answer
        return answer
