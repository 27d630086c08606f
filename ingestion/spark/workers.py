"""The configuration and the resources of a worker process.

Commands open the same. Nothing here needs Arrow or Spark, so that they need not wait for these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from idgraph.model.counts import BatchCounts
from idgraph.model.dead_letters import DeadLetters
from idgraph.model.index import IndexRules, ProfileIndex
from idgraph.model.sources import FlowConfig, SourceConfig
from idgraph.model.store import ProfileStore
from idgraph.model.tombstones import Tombstone
from idgraph.projection.parts import Tasks
from idgraph.projection.projection import Projection
from ingestion.sources.payload_formats import PayloadFormats
from ingestion.stages.decrypt import Decryptors
from ingestion.stages.orphaned_keys import KeyGuard, OrphanedKeys
from transforms.privacy.blind_index import BlindIndex
from transforms.privacy.record_sealing import DeadLetterSealer, ShuffleBlockKeys
from transforms.privacy.sealing import DataKeys


class OtherTombstones(Protocol):
    """The tombstones of another store, by the ids that events have here."""

    def tombstones(self, ids: Iterable[str]) -> Mapping[str, Tombstone]: ...
    def close(self) -> None: ...


@dataclass(slots=True)
class WorkerResources:
    """The resources that a worker process opens."""

    store: ProfileStore
    index: ProfileIndex
    dead_letters: DeadLetters
    data_keys: DataKeys
    blind_index: BlindIndex
    sealer: DeadLetterSealer
    block_keys: ShuffleBlockKeys
    formats: PayloadFormats = field(default_factory=PayloadFormats)
    decryptors: Decryptors = field(default_factory=Decryptors)
    read_range: Callable[[str, int, int | None, int], Iterable[Any]] | None = None
    """As `ingestion.sources.kafka.records.ReadRange`; None where nothing can."""
    consumed: Callable[[], BatchCounts] = BatchCounts
    """Read and write units that the stores have charged for since this was last asked."""
    elsewhere: OtherTombstones | None = None
    """Those that refuse events beside the store's: in a sandbox, production's."""

    def tombstones(self, ids: Iterable[str]) -> Mapping[str, Tombstone]:
        """Tombstones that refuse events of these fragments, which were named just now."""
        if self.elsewhere is None:
            return self.store.tombstones(ids)
        wanted = list(ids)
        own, others = self.store.tombstones(wanted), self.elsewhere.tombstones(wanted)
        # Only when they end: the version is that of the other store's fragment.
        ends = {name: Tombstone(each.until, 0) for name, each in others.items()}
        return own | {name: each.joined(own.get(name, each)) for name, each in ends.items()}

    def projection(self, rules: Callable[[], IndexRules], tasks: Tasks | None = None) -> Projection:
        """A projection of the store to its index; `rules` returns those of the newest snapshot, `tasks` as of `Projection`."""
        return Projection(self.store, self.index, rules, tasks=tasks)

    def key_guard(self) -> KeyGuard:
        """A guard of the store's data keys."""
        return KeyGuard(self.store, self.data_keys)

    def orphaned_keys(self) -> OrphanedKeys:
        """The orphaned keys of the store and its dead letters."""
        return OrphanedKeys(self.store, self.data_keys, self.dead_letters)


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """The driver's message to a worker: configuration and how to open resources, never keys or tokens.

    `open_resources(settings)` runs once a worker process for each distinct `settings`, a JSON text."""

    flow: FlowConfig
    sources: Mapping[str, SourceConfig]
    settings: str
    open_resources: Callable[[str], WorkerResources]
    closed: tuple[Path, ...] = ()
    """Files, and folders with all below them, that are no events, whatever a source's directory holds or links to."""
