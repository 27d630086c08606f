"""The sources of a flow that wait: each has failed beyond the limit of dead letters, and the others flow on.

The shared document `held/SOURCE.json` of the flow says why. To have the source tried again, it becomes
`held/SOURCE.again`, which stays until the flow has taken some of the source again. So a hold outlives the flow and its
crashes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pydantic import ValidationError

from idgraph.model.errors import StoreError
from idgraph.model.flows import SourceHold
from idgraph.model.shared_documents import SharedDocuments
from idgraph.model.snapshots import MetadataSnapshot, pattern_matches
from idgraph.model.sources import SourceConfig

FOLDER = "held"
_WAITS, _AGAIN = ".json", ".again"


def specs_for(snapshot: MetadataSnapshot, source: SourceConfig) -> tuple[str, ...]:
    """The active specs that may map events of a configured source, as `NAME@VERSION`."""
    place = source.source
    name = source.name if place is None else None if place.const is None else str(place.const)
    found = (spec for spec in snapshot.specs if name is None or pattern_matches(spec.source, name))
    return tuple(sorted(str(spec.ref) for spec in found))


class HeldSources:
    """The waiting sources of one flow, whose documents' names begin with `flow`. The flow holds, others only let be tried
    again."""

    def __init__(self, documents: SharedDocuments, flow: str) -> None:
        self._documents = documents
        self._folder = f"{flow}{FOLDER}/"
        self._is_new = False
        self.waiting: dict[str, SourceHold] = {}
        """Those that the running query leaves out, by source."""
        self.tried_again: dict[str, SourceHold] = {}
        """Those that it takes again, and has not taken any record of yet."""

    def holds(self) -> list[SourceHold]:
        """The sources that wait now, by name. Raises StoreError."""
        return [hold for _, hold in sorted(self._read(_WAITS).items())]

    def load(self, sources: Collection[str]) -> None:
        """Load the sources that the next query leaves out, and those that it takes again. A source that is configured
        no more is taken again, too. Raises StoreError."""
        for name in self._read(_WAITS).keys() - sources:
            self.try_again(name)
        self.waiting = self._read(_WAITS)
        self.tried_again = {
            name: each for name, each in self._read(_AGAIN).items() if name not in self.waiting
        }
        self._is_new = False

    def hold(self, hold: SourceHold) -> None:
        """Let a source wait from now on. Durable when it returns. Raises StoreError."""
        self._documents.write(self._name(hold.source, _WAITS), hold.model_dump_json().encode())
        self._documents.remove(self._name(hold.source, _AGAIN))
        self._is_new = True

    def try_again(self, source: str) -> bool:
        """Let a source be taken again. False if it does not wait. Raises StoreError."""
        hold = self._documents.read(self._name(source, _WAITS))
        if hold is None:
            return False
        # One that has both waits still.
        self._documents.write(self._name(source, _AGAIN), hold)
        return self._documents.remove(self._name(source, _WAITS))

    def follow(self, snapshot: MetadataSnapshot, sources: Mapping[str, SourceConfig]) -> list[str]:
        """Let those be tried again for which other specs are in force than when they failed; returns their names."""
        changed = [
            name
            for name, hold in self._read(_WAITS).items()
            if name in sources and specs_for(snapshot, sources[name]) != hold.specs
        ]
        return [name for name in changed if self.try_again(name)]

    def let_go(self, sources: Collection[str]) -> None:
        """The checkpoint is as the next query of these sources is to find it: sources that are configured no more are
        forgotten. Raises StoreError."""
        for name in self.tried_again.keys() - sources:
            self.was_taken(name)

    def was_taken(self, source: str) -> None:
        """Some of a source that is tried again was taken. Raises StoreError."""
        self.tried_again.pop(source, None)
        self._documents.remove(self._name(source, _AGAIN))

    def is_new(self) -> bool:
        """Whether a source waits that the running query does not leave out."""
        return self._is_new

    def has_changed(self) -> bool:
        """Whether the running query should be another: some source waits that did not, or the other way round."""
        return self._is_new or any(
            self._documents.read(self._name(each, _WAITS)) is None for each in self.waiting
        )

    def _name(self, source: str, suffix: str) -> str:
        return f"{self._folder}{source}{suffix}"

    def _read(self, suffix: str) -> dict[str, SourceHold]:
        found = {}
        for name in self._documents.names(f"{self._folder}*{suffix}"):
            content = self._documents.read(name)
            try:
                if content is not None:
                    source = name.removeprefix(self._folder).removesuffix(suffix)
                    found[source] = SourceHold.model_validate_json(content)
            except ValidationError:
                raise StoreError(f"{name}: is damaged, or of another version of idgraph") from None
        return found
