"""A metadata snapshot made ready to process events with."""

from __future__ import annotations

from model.errors import SpecError
from model.snapshots import MetadataSnapshot
from model.specs import SpecDocument
from model.stamps import SpecRef
from transforms.mapping import MappingSpec
from transforms.protected_names import ProtectedNames
from transforms.schema import AttributeTree

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
        if previous is not None:
            current = {spec.ref for spec in snapshot.specs}
            self._specs = {ref: spec for ref, spec in previous._specs.items() if ref in current}
        self._routes: dict[tuple[str, str], MappingSpec | SpecError | None] = {}

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
            try:
                known = MappingSpec(document)
            except SpecError as error:
                known = error
            self._specs[document.ref] = known
        return known
