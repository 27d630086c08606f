"""One store with its companions, and what a flow does to it in the machine of law 1."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from idgraph.model.backoff import Backoff
from idgraph.model.batch_size import BatchSize
from idgraph.model.errors import IdgraphError
from idgraph.model.identifiers import Identifier
from idgraph.model.sources import FileSource, FlowConfig
from idgraph.projection.projection import Projection
from ingestion.spark.worker_errors import may_pass_again
from ingestion.spark.workers import WorkerResources
from ingestion.stages.commit import CommitStage
from ingestion.stages.dead_letters import BatchAttempt, DeadLetterWriter
from ingestion.stages.map_output import MapOutput
from ingestion.stages.map_stage import MapStage
from ingestion.stages.orphaned_keys import KeyGuard, OrphanedKeys
from sinks.sqlite.dead_letters import SqliteDeadLetters
from sinks.tombstone_file import TombstoneFile
from tests.convergence.adapters import Adapters, memory, provider
from tests.convergence.events import IDENTIFIERS, PERSONS
from tests.convergence.faults import Faults, ReachedKeys
from tests.convergence.ledger import Pair
from tests.convergence.ways import Way, runs
from tests.retail import NOW
from transforms.privacy.blind_index import BlindIndex
from transforms.privacy.record_sealing import DeadLetterSealer, ShuffleBlockKeys
from transforms.privacy.sealing import DataKeys
from transforms.spec.mapping import CompiledSnapshot

AT_ONCE = Backoff(12, 0.0)
"""Retries do not wait."""
A_FEW = FlowConfig(combine_events=6, commit_fragments=2)
WITHOUT_KEYS = A_FEW.model_copy(update={"on_key_service_failure": "dead_letter"})
BATCH = BatchAttempt("main/0", "attempt")
PATIENCE = 100
"""A batch is retried so often; more often than whatever may be away is."""


class Held(NamedTuple):
    """What a task has mapped of a micro-batch and not yet written."""

    pairs: Sequence[Pair]
    outputs: Sequence[MapOutput] | None = None
    """None where it is mapped when it is written."""
    is_again: bool = False


class FlowSite:
    """`flow_keys` and `operator_keys` are of two processes: each keeps in its cache what the other may have erased."""

    def __init__(
        self,
        open_adapters: Callable[[Path], Adapters],
        folder: Path,
        sources: Mapping[str, FileSource],
        compiled: Callable[[int], CompiledSnapshot],
        taken: Callable[[int], CompiledSnapshot] | None = None,
    ) -> None:
        self.faults = Faults()
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._open_adapters = open_adapters
        self.is_durable = open_adapters is not memory
        self._sources = sources
        self._compiled = compiled
        self._taken = taken or compiled
        """What flows take here for a version."""
        self.dead_letters = SqliteDeadLetters(folder / "dead-letters.db")
        self._tombstones = TombstoneFile(folder / "tombstones.jsonl")
        self._blind_index = BlindIndex(provider())
        self._sealer = DeadLetterSealer(provider())
        self._block_keys = ShuffleBlockKeys(provider())
        self.held: list[Held] = []
        self.way = Way.QUICK
        self.flow = A_FEW
        self.open()

    def open(self) -> None:
        """As a process does at its start."""
        opened = self._open_adapters(self._folder)
        self.store, self.index, self.key_store = opened.store, opened.index, opened.key_store
        self.faults.disturb(opened)
        self._projections: dict[bool, Projection] = {}
        self._heard = {False: 0, True: 0}
        self.begin_processes()

    def begin_processes(self) -> None:
        """They know no data key yet."""
        self.flow_keys = DataKeys(ReachedKeys(self.faults), self.key_store)
        self.operator_keys = DataKeys(ReachedKeys(self.faults), self.key_store)

    def close(self) -> None:
        """Files stay."""
        for each in (self.store, self.index, self.key_store):
            each.close()

    def resources(self, keys: DataKeys) -> WorkerResources:
        """What a process with these keys in its cache works with."""
        return WorkerResources(
            self.store,
            self.index,
            self.dead_letters,
            keys,
            self._blind_index,
            self._sealer,
            self._block_keys,
        )

    def map(self, pairs: Sequence[Pair], is_again: bool = False) -> list[MapOutput]:
        """As a flow's tasks do; a micro-batch has one snapshot."""
        outputs: list[MapOutput] = []
        for version in sorted({pair.version for pair in pairs}):
            stage = MapStage(
                self._taken(version),
                self._sources,
                self.flow,
                BATCH._replace(is_again=is_again),
                self.flow_keys,
                self._blind_index,
                DeadLetterWriter(self._sealer),
                lambda: NOW,
                self.store.tombstones,
            )
            outputs += stage.run([pair.record for pair in pairs if pair.version == version])
        self.dead_letters.put([dead_letter for output in outputs for dead_letter in output.dead_letters])
        return outputs

    def commit(self, held: Held, share: int = 1) -> None:
        """Of each output one in `share` fragments. Where that fails the batch is retried, as a flow does: a key that
        sealed was erased meanwhile, or servers are away."""
        outputs: Sequence[MapOutput] | None = held.outputs
        for attempt in range(PATIENCE):
            try:
                mapped = self.map(held.pairs, held.is_again or attempt > 0) if outputs is None else outputs
                self._commit(held.pairs, mapped, share)
                return
            except IdgraphError as error:
                if attempt == PATIENCE - 1 or not may_pass_again(error):
                    raise
                outputs = None

    def _commit(self, pairs: Sequence[Pair], outputs: Sequence[MapOutput], share: int) -> None:
        version = max(pair.version for pair in pairs)
        guard = KeyGuard(self.store, self.flow_keys)
        stage = CommitStage(
            self.store,
            BatchSize(A_FEW.commit_fragments),
            guard,
            AT_ONCE,
        )
        for changes in runs(self.way, outputs, share):
            failed = stage.run(changes).failed
            dead_letters = DeadLetterWriter(self._sealer).of_failures(failed, version, BATCH)
            with guard.setting_aside(failed):
                self.dead_letters.put(dead_letters)
        refused = stage.refused.union(*(output.refused for output in outputs))
        OrphanedKeys(self.store, self.flow_keys, self.dead_letters).erase(refused)

    def give(self, pairs: Sequence[Pair], at_once: int, is_again: bool = False) -> None:
        """Map and commit."""
        for start in range(0, len(pairs), at_once):
            self.commit(Held(pairs[start : start + at_once], None, is_again))

    def release(self) -> None:
        """Write what was held back: of several tasks one by one, or what they left to be shuffled together."""
        held, self.held = self.held, []
        if self.way is Way.SHUFFLED and held:
            pairs = [pair for each in held for pair in each.pairs]
            held = [Held(pairs, [output for each in held for output in each.outputs or ()])]
        for each in reversed(held):
            self.commit(each)

    def names(self, persons: Iterable[str] = PERSONS) -> list[str]:
        """All ids that their fragments may have."""
        return self._forms(map(Identifier.parse, persons))

    def identifiers(self) -> list[str]:
        """All identifiers that a fragment may be found by."""
        return self._forms(IDENTIFIERS)

    def _forms(self, plain: Iterable[Identifier]) -> list[str]:
        return [str(form) for each in plain for form in (each, self._blind_index.identifier(each))]
