"""What is stored, to documents of the index, and into it again: what the outbox, a rebuild and a repair share."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from idgraph.model import canonical
from idgraph.model.attributes import AttributeMetadata, AttributeStatus, EncryptionLevel, ReconciliationPolicy
from idgraph.model.batch_size import BatchSize
from idgraph.model.errors import DamagedStateError, StoreError
from idgraph.model.index import IndexDocument, IndexRules, ProfileIndex
from idgraph.model.snapshots import DiscoveryDefaults, MetadataSnapshot
from idgraph.model.store import OutboxEntry, ProfileStore, StoredFragment, read_pages
from merge import isolation
from merge.documents import document
from merge.fragments import FragmentState
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


log = logging.getLogger(__name__)

AT_ONCE = 1000
"""Light fragments that are read and indexed at once; of heavy ones fewer, see `BatchSize`."""


class Documents(NamedTuple):
    """Documents of stored fragments, and the ids of those that none can be made of."""

    documents: list[IndexDocument]
    unreadable: set[str]


def documents_of(fragments: Iterable[StoredFragment], rules: IndexRules) -> Documents:
    """What the index may know of each. Raises StoreError for a state of a later idgraph."""
    found = Documents([], set())
    for fragment in fragments:
        try:
            state = FragmentState.decode(fragment.state)
            found.documents.append(document(fragment.id, fragment.version, state, rules))
        except DamagedStateError:
            log.warning("%s cannot be indexed: its stored state is damaged", fragment.id)
            found.unreadable.add(fragment.id)
        except (StoreError, MemoryError):
            raise
        except Exception as error:
            # Only the type: the message of a stranger's exception may quote a value.
            log.log(logging.ERROR, "%s cannot be indexed: %s", fragment.id, type(error).__name__)
            found.unreadable.add(fragment.id)
    return found


def index_again(
    store: ProfileStore,
    index: ProfileIndex,
    rules: IndexRules,
    entries: Sequence[OutboxEntry],
    size: BatchSize | None = None,
) -> set[str]:
    """Index what the store has of these fragments and settle them, and erase up to the version of its entry what it
    has no more; gives the ids that the index refused. `size` bounds each read of the store; who calls again and again
    gives the same one, which knows by then what fragments weigh.

    Raises ProfileIndexError when the index is away, StoreError when the store is: to be done again.
    """
    versions = dict(entries)
    refused: set[str] = set()
    for ids, stored in read_pages(store, versions, size or BatchSize(AT_ONCE)):
        some = {each: versions[each] for each in ids}
        refused |= _index_again(store, index, rules, some, stored)
    return refused


def _index_again(
    store: ProfileStore,
    index: ProfileIndex,
    rules: IndexRules,
    entries: Mapping[str, int],
    stored: Mapping[str, StoredFragment],
) -> set[str]:
    documents, unreadable = documents_of(stored.values(), rules)
    refused = isolation.put(index, documents).keys() | unreadable
    # By version: one that came back meanwhile, and was indexed, stays.
    if gone := {name: version for name, version in entries.items() if name not in stored}:
        index.erase(gone)
    # With the versions that were indexed: one that was written meanwhile stays.
    versions = {
        name: stored[name].version if name in stored else version for name, version in entries.items()
    }
    store.settle([OutboxEntry(name, versions[name]) for name in versions if name not in refused])
    return refused
