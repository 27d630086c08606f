"""The attributes of a snapshot as a tree of keys, and what they say of any path.

Protection is inherited. Below a protected attribute everything is protected, unless an admin declared (status
`active`) otherwise. A value at a path *above* a protected attribute is protected too, since it may hold the
attribute's value. Authorization levels are inherited in both directions too, whatever is declared below, and an
attribute that nobody declared has at least the level of the discovery defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from idgraph.model import paths
from idgraph.model.attributes import (
    AttributeMetadata,
    AttributeStatus,
    DataType,
    Reconciliation,
    ReconciliationPolicy,
)
from idgraph.model.behaviour import ActivityDefinition, ActivityDocument, BehaviourRules, DerivedDocument
from idgraph.model.classification import Classification, Proposal
from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.durations import TimeForm
from idgraph.model.errors import EventError, SpecError
from idgraph.model.index import IndexRules
from idgraph.model.queries import Clause, Exists, leaves
from idgraph.model.snapshots import DetectionMode, MetadataSnapshot
from idgraph.model.specs import RESERVED_KEY
from transforms.schema.attribute_nodes import AttributeNode, AttributePolicy, policy_of, protect_above
from transforms.schema.data_types import DATA_TYPES, declared_type, is_text

MAX_DEPTH = 64
MAX_PATH = 1024
MAX_CACHED_UNKNOWN = 300_000
"""More than the discovery defaults let a catalogue hold: most discovered attributes are in no snapshot."""


class PolicyTree:
    """All attributes of one snapshot by key. Grows by a bounded cache of unknown paths; one per thread."""

    def __init__(self, snapshot: MetadataSnapshot) -> None:
        self._default = policy_of(snapshot.defaults)
        mode = snapshot.defaults.detection
        self._detects = mode is not DetectionMode.OFF
        self._sealing_levels = {
            level: policy_of(snapshot.levels.policy(level))
            for level in (Classification if mode is DetectionMode.SEAL else ())
        }
        self.sealing_level = max(
            (each.authorization_level for each in self._sealing_levels.values() if each.is_protected),
            default=0,
        )
        """The highest level of what a detector seals."""
        own = (each.own_segment() for each in snapshot.triggers)
        self._segments = (*(each.segment() for each in snapshot.segments), *filter(None, own))
        self._identity = snapshot.identity_rules, snapshot.identity_rules_version
        self._root = AttributeNode("", 0, self._default, None)
        self.policies: dict[str, Reconciliation] = {}
        """Reconciliation by path, for paths whose policy is not `latest`."""
        self.times: dict[str, TimeForm] = {}
        """The forms of attributes that are times, by path."""
        self.declared_types: dict[str, DataType] = {}
        """As `transforms.schema.data_types.declared_types` gives them."""
        self._unknown = 0
        self._default_level = snapshot.defaults.authorization_level
        self._levels: dict[str, int] = {}
        """Those that are declared, by path, but 0."""
        self._levels_below: dict[str, int] = {}
        """By path the highest that is declared below it."""
        # Parents come before children, so that a child finds what it inherits.
        for attribute in sorted(snapshot.attributes, key=_keys):
            way = self._way(attribute.path)
            if way:
                self._declare(way[-1], attribute)
                self._protect(way[-1], _own_policy(attribute, way[-1].protects))
        protect_above(self._root)
        self.activities = tuple(filter(self._is_in_force, snapshot.activities))
        """Those in use that read no time and ask for nothing that policy protects."""
        self._behaviour = self._behaviour_rules(snapshot)
        self.index_rules = self._index_rules()

    def _index_rules(self) -> IndexRules:
        # The value of a protected attribute is nothing that a segment may ask for: it would stand in the snapshot.
        usable = (each for each in self._segments if all(map(self._is_open, leaves(each.condition))))
        indexable = _Indexable(self).__getitem__
        segments = tuple(usable)
        return IndexRules(indexable, self.policies, *self._identity, segments, self._behaviour, self.times)

    def _behaviour_rules(self, snapshot: MetadataSnapshot) -> BehaviourRules:
        """The definitions in force. A derived attribute has at least the level of all that it is made of."""
        activities = {each.name: each for each in self.activities}
        derived = [each for each in snapshot.derived_attributes if activities.keys() >= set(each.activities)]
        # Each after those that it may read: expressions read what is derived from timelines, models read both.
        for each in sorted(derived, key=lambda each: (each.model is not None, each.expression is not None)):
            level = max((self._level_of_source(path) for path in _sources(each, activities)), default=0)
            if level > self._levels.get(each.path, 0):
                self._set_level(each.path, level)
        return BehaviourRules(
            tuple(map(self._with_open_fields, self.activities)),
            tuple(derived),
            lambda path: not self.policy(path).is_protected,
            snapshot.behaviour_version,
            snapshot.models,
        )

    def _is_in_force(self, activity: ActivityDocument) -> bool:
        if activity.status != "active":
            return False
        try:
            return not any(path and self.policy(path).is_protected for path in entry_sources(activity))
        except SpecError:
            # The metadata service refuses it; one of an older idgraph hurts only itself.
            return False

    def _with_open_fields(self, activity: ActivityDocument) -> ActivityDocument:
        protected = {name for name, path in activity.fields.items() if self.policy(path).is_protected}
        if not protected:
            return activity
        fields = {name: path for name, path in activity.fields.items() if name not in protected}
        return activity.model_copy(update={"fields": fields})

    def _level_of_source(self, path: str) -> int:
        return self.level(path) if path else self.highest_level

    def _is_open(self, clause: Clause) -> bool:
        if clause.path is None:
            return True
        policy = self.policy(clause.path)
        return not policy.is_protected or (policy.is_searchable and isinstance(clause, Exists))

    def _way(self, path: str) -> list[AttributeNode]:
        """The nodes from the root to a path that is declared; none if no mapped output can have this path: what was
        declared of it must not stop the others."""
        way = [self._root]
        try:
            for key in paths.split(path):
                node = way[-1].children.get(key) or self._add(way[-1], key, way[-1].children)
                way.append(node)
        except EventError:
            return []
        return way

    def _declare(self, node: AttributeNode, attribute: AttributeMetadata) -> None:
        """An attribute's own policy, without inheritance."""
        node.declared = attribute
        if level := attribute.authorization_level:
            self._set_level(node.path, level)
        node.kinds = frozenset(kind for kind, seen in DATA_TYPES.items() if attribute.accepts(seen))
        node.is_undecided = self._detects and attribute.status is AttributeStatus.DISCOVERED
        node.proposal = attribute.proposal
        if attribute.time is not None:
            self.times[attribute.path] = attribute.time
        if attribute.policy is not ReconciliationPolicy.LATEST:
            self.policies[attribute.path] = Reconciliation(attribute.policy, attribute.sources)
        read_as = declared_type(attribute)
        if read_as is not None:
            self.declared_types[attribute.path] = read_as

    def _set_level(self, path: str, level: int) -> None:
        self._levels[path] = level
        for above in paths.ancestors(path):
            self._levels_below[above] = max(level, self._levels_below.get(above, 0))

    def _protect(self, node: AttributeNode, own: AttributePolicy) -> None:
        node.policy = own
        node.protects = own if own.is_protected else None

    def policy(self, path: str) -> AttributePolicy:
        """The policy that holds for a path, declared or not."""
        return self._at_level(self._policy(path), self.level(path))

    def _policy(self, path: str) -> AttributePolicy:
        node = self._root
        for key in paths.split(path):
            child = node.children.get(key)
            if child is None:
                return node.protects or self._default
            node = child
        return node.policy

    def level(self, path: str) -> int:
        """The authorization level that holds for a path, declared or not: nobody else decides it."""
        if not self._levels and not self._default_level:
            return 0
        own = self._levels
        level = max(own.get(path, 0), self._levels_below.get(path, 0))
        level = max(level, *(own.get(above, 0) for above in paths.ancestors(path)), 0)
        return level if level >= self._default_level or self._is_declared(path) else self._default_level

    def forget_unknown(self) -> None:
        """Make room for other paths where the cache of unknown ones is full: what was seen once need not be seen again."""
        if self._unknown < MAX_CACHED_UNKNOWN:
            return
        known = [self._root]
        while known:
            node = known.pop()
            node.children = {key: each for key, each in node.children.items() if not each.is_unknown}
            known += node.children.values()
        self._unknown = 0

    def level_of_sealed(self, path: str) -> int:
        """The level of a value that is sealed. If no decision seals it, a detector did, and the catalogue may not
        have its finding yet: then the highest level of any detector's finding."""
        level = self.level(path)
        if level >= self.sealing_level or self._policy(path).is_protected or self._is_decided(path):
            return level
        return self.sealing_level

    @property
    def highest_level(self) -> int:
        """The highest level of any path."""
        return max((self._default_level, *self._levels.values()))

    @property
    def levels(self) -> Mapping[str, int]:
        """The levels that are declared, by path, but 0."""
        return self._levels

    def _declared(self, path: str) -> AttributeMetadata | None:
        node: AttributeNode | None = self._root
        for key in paths.split(path):
            node = node.children.get(key) if node is not None else None
        return node.declared if node is not None else None

    def _is_declared(self, path: str) -> bool:
        return self._declared(path) is not None

    def _is_decided(self, path: str) -> bool:
        declared = self._declared(path)
        return declared is not None and declared.status is not AttributeStatus.DISCOVERED

    @staticmethod
    def _at_level(policy: AttributePolicy, level: int) -> AttributePolicy:
        return policy if policy.authorization_level >= level else policy._replace(authorization_level=level)

    def policy_of_value(self, path: str, value: Any) -> AttributePolicy:
        """The policy that `leaves` would apply to a stored value. A value that looks sensitive is examined by itself, if
        no admin decided on its path. No schema change is reported, and no path is refused."""
        return self._at_level(self.policy_at(self.stored_node(path), value), self.level(path))

    def stored_node(self, path: str) -> AttributeNode:
        """The node of a path that is stored already."""
        node = self._root
        for key in paths.split(path):
            node = node.children.get(key) or self._stored_node(node, key)
        return node

    def undeclared_keys(self, path: str) -> Iterator[tuple[str, str]]:
        """The keys of a path that the snapshot does not have, each with the path that ends with it."""
        known: AttributeNode | None = self._root
        at = ""
        for key in paths.split(path):
            at = f"{at}.{paths.escape(key)}" if at else paths.escape(key)
            known = known.children.get(key) if known is not None and not known.is_unknown else None
            if known is None or known.is_unknown:
                yield key, at

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
            shows = node.is_undecided and (shows or self.sensitive(key) is not None)
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
        # Kept nodes are known to events too: none is a reason to refuse an event.
        node.is_kept = (
            parent.is_kept
            and self._unknown < MAX_CACHED_UNKNOWN
            and _is_within_bounds(node)
            and self.sensitive(key) is None
        )
        if node.is_kept:
            node.is_unknown = True
            self._unknown += 1
            parent.children[key] = node
        return node

    def sensitive(self, key: str) -> Proposal | None:
        """The kind that a readable name (a key or a source) seems to be, if values like it are sealed."""
        from transforms.schema.detection import shaped_key

        detection = shaped_key(key)
        level = self._sealing_levels.get(detection.classification) if detection is not None else None
        return detection if level is not None and level.is_protected else None

    def _policy_of_value(self, node: AttributeNode, proposal: Proposal | None) -> AttributePolicy:
        level = self._sealing_levels.get(proposal.classification) if proposal is not None else None
        return node.policy if level is None else node.policy.stricter(level)


def _sources(derived: DerivedDocument, activities: Mapping[str, ActivityDocument]) -> Iterator[str]:
    """The paths of the attributes that a derived attribute is made of; the empty one: any."""
    for name in derived.activities:
        yield from activities[name].fields.values()
        yield from entry_sources(activities[name])
    if derived.expression is not None:
        yield from expression_sources(derived.expression)
    if derived.model is not None:
        yield from (each.path for each in derived.model.inputs)


def _own_policy(attribute: AttributeMetadata, inherited: AttributePolicy | None) -> AttributePolicy:
    own = policy_of(attribute)
    if attribute.status is AttributeStatus.RETIRED:
        own = own._replace(indexable=False)
    if inherited and attribute.status is AttributeStatus.DISCOVERED:
        own = own.stricter(inherited)
    return own


def _keys(attribute: AttributeMetadata) -> tuple[str, ...]:
    return paths.split(attribute.path)


def _is_within_bounds(node: AttributeNode) -> bool:
    return 0 < len(node.path) <= MAX_PATH and node.depth <= MAX_DEPTH and is_text(node.path)


class _Indexable(dict[str, bool]):
    """Answers by path, remembered within bounds: asked for every leaf of every fragment."""

    def __init__(self, tree: PolicyTree) -> None:
        super().__init__()
        self._tree = tree

    def __missing__(self, path: str) -> bool:
        policy = self._tree.policy(path)
        answer = policy.indexable and not policy.is_protected
        if len(self) < MAX_CACHED_UNKNOWN:
            self[path] = answer
        return answer


def entry_sources(activity: ActivityDefinition) -> dict[str, str]:
    """The paths of the attributes that decide whether an event leaves an entry, and with which time; the empty one: any. Each with
    its place in the definition. Raises SpecError."""
    found = (
        {}
        if activity.condition is None
        else dict.fromkeys(expression_sources(activity.condition), "/condition")
    )
    if activity.time is not None and paths.split(activity.time)[0] != RESERVED_KEY:
        found[activity.time] = "/time"
    return found


@lru_cache(maxsize=1024)
def expression_sources(expression: str) -> frozenset[str]:
    """The paths at or below which all stands that an expression reads; the empty one: anywhere. Raises SpecError."""
    # Reading profiles needs no compiler otherwise.
    from transforms.spec.jmespath.operation import all_sources

    return frozenset(all_sources({"value": expression}))
