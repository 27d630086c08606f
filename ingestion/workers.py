"""What a worker process is told, and what it opens for itself.

Commands open the same. Nothing here needs Arrow or Spark, so that they need not wait for these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ingestion.configuration import FlowConfig, SourceConfig
from ingestion.decryption import Decryptors
from ingestion.key_guard import KeyGuard
from ingestion.leftover_keys import LeftoverKeys
from ingestion.payload_formats import PayloadFormats
from ingestion.set_aside import PayloadSealer
from merge.index import ProfileIndex
from merge.store import ProfileStore
from model.dead_letters import DeadLetters
from transforms.blind_index import BlindIndex
from transforms.parcel_sealing import ParcelKeys
from transforms.sealing import DataKeys


@dataclass(slots=True)
class WorkerResources:
    """What a worker process opens for itself."""

    store: ProfileStore
    index: ProfileIndex
    dead_letters: DeadLetters
    data_keys: DataKeys
    blind_index: BlindIndex
    sealer: PayloadSealer
    parcel_keys: ParcelKeys
    formats: PayloadFormats = field(default_factory=PayloadFormats)
    decryptors: Decryptors = field(default_factory=Decryptors)
    read_range: Callable[[str, int, int | None, int], Iterable[Any]] | None = None
    """As `ingestion.kafka_records.ReadRange`; None where nothing can."""
    consumed: Callable[[], tuple[float, float]] = lambda: (0.0, 0.0)
    """Read and write units that the stores have charged for since this was last asked."""

    def key_guard(self) -> KeyGuard:
        """Of the store and its data keys."""
        return KeyGuard(self.store, self.data_keys)

    def leftover_keys(self) -> LeftoverKeys:
        """Of the store, its data keys and its dead letters."""
        return LeftoverKeys(self.store, self.data_keys, self.dead_letters)


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """What the driver tells a worker: configuration and how to open resources, never keys or tokens.

    `open_resources(settings)` runs once a worker process for each distinct `settings`, a JSON text. With
    `letters_by_driver` workers have no way to the dead letters' store: letters go to the driver with the reports.
    """

    flow: FlowConfig
    sources: Mapping[str, SourceConfig]
    settings: str
    open_resources: Callable[[str], WorkerResources]
    indexes: bool = True
    """Whether what is committed is indexed by the task as well; else it waits in the outbox for who does."""
    letters_by_driver: bool = False
