"""What may be indexed under the newest snapshot, made once for each, and distinguished by what it lets into the index."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple

from idgraph.model import canonical
from idgraph.model.attributes import AttributeMetadata, AttributeStatus, EncryptionLevel, ReconciliationPolicy
from idgraph.model.index_rules import IndexRules
from idgraph.model.snapshots import DiscoveryDefaults, MetadataSnapshot
from transforms.schema.diff import AttributeTree


class IndexPolicy(NamedTuple):
    """The rules, and a hash of all in the snapshot that decides what documents are: equal hashes make the same ones."""

    rules: IndexRules
    fingerprint: str


class IndexPolicies:
    """Calling it gives the policy of now. One per thread."""

    def __init__(self, newest: Callable[[], MetadataSnapshot]) -> None:
        self._newest = newest
        self._snapshot: MetadataSnapshot | None = None
        self._policy: IndexPolicy | None = None

    def __call__(self) -> IndexPolicy:
        newest = self._newest()
        if self._policy is None or newest is not self._snapshot:
            self._snapshot = newest
            self._policy = IndexPolicy(AttributeTree(newest).index_rules, fingerprint(newest))
        return self._policy


def fingerprint(snapshot: MetadataSnapshot) -> str:
    """A hash of what decides what the index may know."""
    decides = [
        sorted(
            (
                each.path,
                str(each.encryption),
                str(each.status),
                each.indexable,
                str(each.policy),
                each.sources,
            )
            for each in snapshot.attributes
            if not _is_as_undeclared(each, snapshot.defaults)
        ),
        [str(snapshot.defaults.encryption), snapshot.defaults.indexable],
    ]
    return hashlib.sha256(canonical.encode(decides)).hexdigest()


def _is_as_undeclared(each: AttributeMetadata, defaults: DiscoveryDefaults) -> bool:
    # Flows discover attributes all the time: most change no document.
    return (
        each.status is AttributeStatus.DISCOVERED
        and each.encryption is EncryptionLevel.NONE
        and defaults.encryption is EncryptionLevel.NONE
        and each.indexable is defaults.indexable
        and each.policy is ReconciliationPolicy.LATEST
    )
