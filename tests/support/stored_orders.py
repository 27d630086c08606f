"""Orders of two persons that were stored before policy protected them, a store that lets others meddle, and an
index that goes away."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from idgraph.model.errors import ProfileIndexError
from idgraph.model.events import RawRecord
from idgraph.model.index import IndexDocument
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.store import FragmentWrite, ProfileStore
from tests.retail import Pipeline, order
from tests.support.memory.index import MemoryProfileIndex
from tests.support.memory.profiles import MemoryProfileStore

ORDERS = (order(1), order(2, 2))


class Meddled(MemoryProfileStore):
    """Lets something happen between what is read and what is done."""

    before_write: Callable[[], object] | None = None
    before_withdrawal: Callable[[], object] | None = None

    def write(self, writes: Sequence[FragmentWrite]) -> set[str]:
        between, self.before_write = self.before_write, None
        if between is not None:
            between()
        return super().write(writes)

    def withdraw(self, versions: Mapping[str, int]) -> set[str]:
        between, self.before_withdrawal = self.before_withdrawal, None
        if between is not None:
            between()
        return super().withdraw(versions)


class AwayIndex(MemoryProfileIndex):
    """Takes nothing while it is away."""

    is_away = False

    def put(self, documents: Sequence[IndexDocument]) -> dict[str, str]:
        self._require()
        return super().put(documents)

    def erase(self, versions: Mapping[str, int]) -> int:
        self._require()
        return super().erase(versions)

    def _require(self) -> None:
        if self.is_away:
            raise ProfileIndexError("away")


def stored_orders(
    folder: Path, before: MetadataSnapshot, after: MetadataSnapshot, store: ProfileStore | None = None
) -> Pipeline:
    """A pipeline that has stored them under one snapshot, and continues under another."""
    found = Pipeline(folder, store=MemoryProfileStore() if store is None else store, snapshot=before)
    found.process(ORDERS)
    found.snapshot = after
    return found


def beside(pipeline: Pipeline, known: MetadataSnapshot) -> Pipeline:
    """Another process on the same stores."""
    return Pipeline(pipeline.folder, pipeline.key_store, pipeline.store, pipeline.index, snapshot=known)


def states(pipeline: Pipeline) -> dict[str, bytes]:
    """What is stored, by id."""
    return {each.id: each.state for each in pipeline.store.scan()}


def from_the_start(pipeline: Pipeline, after: MetadataSnapshot, *more: RawRecord) -> dict[str, bytes]:
    """What would be stored if the newer policy had been there from the start."""
    other = Pipeline(pipeline.folder, pipeline.key_store, snapshot=after)
    other.process([*ORDERS, *more])
    return states(other)
