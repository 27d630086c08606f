"""A metadata snapshot made ready to process events with."""

from __future__ import annotations

from copy import copy

from idgraph.model.errors import SpecError
from idgraph.model.snapshot_changes import SnapshotChanges
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.specs import SpecDocument
from idgraph.model.stamps import SpecRef
from transforms.privacy.protected_names import ProtectedNames
from transforms.schema.diff import AttributeTree
from transforms.spec.mapping import MappingSpec

MAX_CACHED_ROUTES = 10_000


class CompiledSnapshot:
    """Specs compiled when first needed and kept; attributes as a tree. One per thread.

    Specs that did not change since `previous` keep their compiled form.
    """

    def __init__(self, snapshot: MetadataSnapshot, previous: CompiledSnapshot | None = None) -> None:
        self.snapshot = snapshot
        self.version = snapshot.version
        self.attributes = AttributeTree(snapshot)
        self.protected_names = ProtectedNames(snapshot)
        self._specs: dict[SpecRef, MappingSpec | SpecError] = {}
        self._by_operations: dict[str, MappingSpec] = {}
        self._routes: dict[tuple[str, str], MappingSpec | SpecError | None] = {}
        if previous is not None:
            self._keep_specs(previous)

    def after(self, changes: SnapshotChanges) -> CompiledSnapshot:
        """The snapshot after these changes, made of this one, which is of no use then. It costs what the attributes
        that changed cost, as long as they say nothing of others.

        Raises MetadataError for changes of another snapshot."""
        snapshot = changes.applied_to(self.snapshot)
        are_alike = snapshot.defaults == self.snapshot.defaults and snapshot.levels == self.snapshot.levels
        if not are_alike or not self.attributes.take(changes.attributes):
            return CompiledSnapshot(snapshot, self)
        newer = copy(self)
        newer.snapshot, newer.version = snapshot, snapshot.version
        if changes.has_specs or any(self.protected_names.depend_on(each.path) for each in changes.attributes):
            newer.protected_names = ProtectedNames(snapshot)
        if changes.has_specs:
            newer._keep_specs(self)
        return newer

    def _keep_specs(self, previous: CompiledSnapshot) -> None:
        current = {spec.ref for spec in self.snapshot.specs}
        # Also of those that are gone: most edits leave the operations as they are.
        made = set(previous._specs.values())
        self._by_operations = {text: spec for text, spec in previous._by_operations.items() if spec in made}
        self._specs = {ref: spec for ref, spec in previous._specs.items() if ref in current}
        self._routes = {}

    def spec_for(self, source: str, event_type: str) -> MappingSpec | None:
        """The spec for events of a source and type, if any. Raises SpecError if it does not compile:
        the service refuses such specs, but one from an older idgraph must hurt only its own events."""
        route = (source, event_type)
        if route in self._routes:
            found = self._routes[route]
        else:
            document = self.snapshot.spec_for(source, event_type)
            found = self._compile(document) if document else None
            if len(self._routes) < MAX_CACHED_ROUTES:
                self._routes[route] = found
        if isinstance(found, SpecError):
            raise found
        return found

    def _compile(self, document: SpecDocument) -> MappingSpec | SpecError:
        known = self._specs.get(document.ref)
        if known is None or (isinstance(known, MappingSpec) and known.document != document):
            operations = _operations(document)
            try:
                known = MappingSpec(document, self._by_operations.get(operations))
                self._by_operations[operations] = known
            except SpecError as error:
                known = error
            self._specs[document.ref] = known
        return known


def _operations(document: SpecDocument) -> str:
    # Unlike equality this reports 1 from True, and the order of keys, by which Jolt works.
    return repr(document.operations)
