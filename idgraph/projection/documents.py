"""Persons to documents of the index, by the present policy, for the projection, a rebuild and a repair."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from idgraph.model import canonical
from idgraph.model.attributes import AttributeMetadata, AttributeStatus, EncryptionLevel, ReconciliationPolicy
from idgraph.model.behaviour import ActivityDocument, DerivedDocument
from idgraph.model.errors import DamagedStateError, IdgraphError, StoreError
from idgraph.model.index import IndexDocument, IndexRules
from idgraph.model.snapshots import DiscoveryDefaults, MetadataSnapshot
from idgraph.projection.behaviour import Behaviour
from merge.documents import NOTHING_DERIVED, document_of_all
from merge.identity.components import Person
from transforms.schema.diff import AttributeTree


class IndexPolicy(NamedTuple):
    """The rules, and a hash of all in the snapshot that decides the content of documents: equal hashes, equal documents."""

    rules: IndexRules
    fingerprint: str


class IndexPolicies:
    """Calling it returns the policy of the newest snapshot. One per thread."""

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
    """A hash of all in a snapshot that decides the content of documents."""
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
        snapshot.identity_rules.model_dump(mode="json"),
        *(
            [behaviour_hash(snapshot.activities, snapshot.derived_attributes)]
            if snapshot.derived_attributes
            else []
        ),
    ]
    return hashlib.sha256(canonical.encode(decides)).hexdigest()


def behaviour_hash(
    activities: Iterable[ActivityDocument], derived: Sequence[DerivedDocument], models: Iterable[str] = ()
) -> str:
    """A hash of all that decides derived attributes of the entries that are stored; `models` are digests of those that can be had."""
    read = {name for each in derived for name in each.activities}
    decides = {"name", "keep", "most", "fields", "generation", "since"}
    definitions = [each.model_dump(mode="json", include=decides) for each in activities if each.name in read]
    definitions += [each.model_dump(mode="json", exclude=_DECIDES_NO_VALUE) for each in derived]
    return hashlib.sha256(canonical.encode([definitions, sorted(models)])).hexdigest()


_DECIDES_NO_VALUE = {"version", "description", "data_type"}


def _is_as_undeclared(each: AttributeMetadata, defaults: DiscoveryDefaults) -> bool:
    # Flows discover attributes all the time: most change no document.
    return (
        each.status is AttributeStatus.DISCOVERED
        and each.encryption is EncryptionLevel.NONE
        and defaults.encryption is EncryptionLevel.NONE
        and each.indexable is defaults.indexable
        and each.policy is ReconciliationPolicy.LATEST
    )


NO_BEHAVIOUR: Mapping[str, Behaviour] = {}


class Documents(NamedTuple):
    """Documents of persons; and by id of the profile why no document could be made of the others, without any value."""

    documents: list[IndexDocument]
    unreadable: dict[str, str]


def documents_of(
    persons: Iterable[Person], rules: IndexRules, behaviour: Mapping[str, Behaviour] = NO_BEHAVIOUR
) -> Documents:
    """A document for each person, with what the index may know; `behaviour` by id of the person. Raises StoreError for a
    state of a later idgraph."""
    found = Documents([], {})
    for person in persons:
        try:
            states = [each.state for each in person.members]
            derived = behaviour[person.id].values() if behaviour else NOTHING_DERIVED
            found.documents.append(document_of_all(person.id, person.version, states, rules, derived))
        except DamagedStateError:
            found.unreadable[person.id] = "its stored state is damaged"
        except (StoreError, MemoryError):
            raise
        except Exception as error:
            # Only the type: the message of a stranger's exception may quote a value.
            found.unreadable[person.id] = type(error).__name__
    return found


class DocumentTaker(Protocol):
    """A receiver of documents: an index, or a version of one that is being made."""

    def put(self, documents: Sequence[IndexDocument]) -> dict[str, str]: ...


def put(index: DocumentTaker, documents: Sequence[IndexDocument]) -> dict[str, str]:
    """`ProfileIndex.put`, past documents that it fails on: those are refused with the type of the error."""
    try:
        return index.put(documents)
    except Exception as error:
        # A state that is damaged shows when the document made of it is read.
        if isinstance(error, IdgraphError | MemoryError) and not isinstance(error, DamagedStateError):
            raise
        if len(documents) == 1:
            return {documents[0].id: type(error).__name__}
    half = len(documents) // 2
    return put(index, documents[:half]) | put(index, documents[half:])
