"""One store with its companions, and what flows and operators do to it in the machine of law 1."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ingestion.commit_stage import CommitStage
from ingestion.configuration import FileSource, FlowConfig
from ingestion.erasure import Erasure
from ingestion.key_guard import KeyGuard
from ingestion.letter_search import LetterSearch
from ingestion.map_output import MapOutput
from ingestion.map_stage import MapStage
from ingestion.outbox import drain_outbox
from ingestion.replay import replay
from ingestion.set_aside import BatchAttempt, LetterWriter
from ingestion.stored_sealing import PAGE, StoredSealing
from ingestion.workers import WorkerPlan, WorkerResources
from merge.backoff import Backoff
from merge.batch_size import BatchSize
from model import canonical
from model.errors import ConflictError
from model.identifiers import Identifier
from profile_service.profiles import ProfileReader
from sinks.sqlite_dead_letters import SqliteDeadLetters
from sinks.tombstone_file import TombstoneFile
from tests.convergence.adapters import Adapters, memory, provider
from tests.convergence.events import DEVICES, PERSONS
from tests.convergence.faults import Faults
from tests.convergence.ledger import Pair
from tests.convergence.ways import Way, runs
from tests.retail import NOW
from transforms.blind_index import BlindIndex
from transforms.compiled import CompiledSnapshot
from transforms.dead_letter_sealing import DeadLetterSealer
from transforms.parcel_sealing import ParcelKeys
from transforms.sealing import DataKeys
from transforms.tombstone_names import TombstoneNames

AT_ONCE = Backoff(12, 0.0)
"""Retries do not wait."""
EVERY_TWO = FlowConfig(combine_events=2, commit_fragments=2)


class Held(NamedTuple):
    """What a task has mapped of a micro-batch and not yet written."""

    pairs: Sequence[Pair]
    outputs: Sequence[MapOutput]


class Site:
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
        self.letters = SqliteDeadLetters(folder / "dead-letters.db")
        self._tombstones = TombstoneFile(folder / "tombstones.jsonl")
        self._blind_index = BlindIndex(provider())
        self._sealer = DeadLetterSealer(provider())
        self._parcel_keys = ParcelKeys(provider())
        self.held: list[Held] = []
        self.way = Way.QUICK
        self.open()

    def open(self) -> None:
        """As a process does at its start."""
        opened = self._open_adapters(self._folder)
        self.store, self.index, self.key_store = opened.store, opened.index, opened.key_store
        self.faults.disturb(opened)
        self.flow_keys = DataKeys(provider(), self.key_store)
        self.operator_keys = DataKeys(provider(), self.key_store)

    def close(self) -> None:
        """Files stay."""
        for each in (self.store, self.index, self.key_store):
            each.close()

    def resources(self, keys: DataKeys) -> WorkerResources:
        """What a process with these keys in its cache works with."""
        return WorkerResources(
            self.store, self.index, self.letters, keys, self._blind_index, self._sealer, self._parcel_keys
        )

    def map(self, pairs: Sequence[Pair]) -> list[MapOutput]:
        """As a flow's tasks do; a micro-batch has one snapshot."""
        outputs: list[MapOutput] = []
        for version in sorted({pair.version for pair in pairs}):
            stage = MapStage(
                self._taken(version),
                self._sources,
                EVERY_TWO,
                BatchAttempt("main/0", "attempt"),
                self.flow_keys,
                self._blind_index,
                LetterWriter(self._sealer),
                lambda: NOW,
                self.store.tombstones,
            )
            outputs += stage.run([pair.record for pair in pairs if pair.version == version])
        self.letters.put([letter for output in outputs for letter in output.letters])
        return outputs

    def commit(self, held: Held, share: int = 1) -> None:
        """Of each output one in `share` fragments. Where a key that sealed was erased meanwhile, the batch is given
        again, as a flow does."""
        stage = CommitStage(
            self.store,
            self.index,
            self._taken(max(pair.version for pair in held.pairs)).attributes.index_rules,
            BatchSize(EVERY_TWO.commit_fragments),
            KeyGuard(self.store, self.flow_keys),
            AT_ONCE,
        )
        try:
            for changes in runs(self.way, held.outputs, share):
                stage.run(changes)
        except ConflictError:
            for changes in runs(self.way, self.map(held.pairs), share):
                stage.run(changes)

    def give(self, pairs: Sequence[Pair], at_once: int) -> None:
        """Map and commit."""
        for start in range(0, len(pairs), at_once):
            some = pairs[start : start + at_once]
            self.commit(Held(some, self.map(some)))

    def release(self) -> None:
        """Write what was held back: of several tasks one by one, or what they left to be shuffled together."""
        held, self.held = self.held, []
        if self.way is Way.SHUFFLED and held:
            held = [Held(*([each for some in them for each in some] for them in zip(*held, strict=True)))]
        for each in reversed(held):
            self.commit(each)

    def erasure(self, version: int) -> Erasure:
        """As `idgraph erase` makes it."""
        return Erasure(
            self.resources(self.operator_keys),
            self._tombstones,
            TombstoneNames(provider()),
            lambda: LetterSearch(
                self._sources, self._compiled(version).snapshot, self._blind_index, self._sealer.open
            ),
        )

    def seal(self, version: int, page: int = PAGE, is_cut_short: bool = False) -> None:
        """As `idgraph seal` does, or only its first page."""
        sealing = StoredSealing(self.resources(self.operator_keys), self._compiled(version), AT_ONCE)
        for progress in sealing.run(page):
            if is_cut_short and progress.looked_at:
                return
        if not self.faults.index_away:
            sealing.finish()

    def replay(self, version: int) -> None:
        """As `idgraph dead-letters replay --all` does."""
        plan = WorkerPlan(EVERY_TWO, self._sources, "", lambda _: self.resources(self.operator_keys))
        replay(
            [*self.letters.scan()],
            plan,
            self.resources(self.operator_keys),
            self._compiled(version).snapshot,
            self._sealer.open,
            lambda _: None,
        )

    def come_to_rest(self, version: int) -> None:
        """A flow starts and ends; all servers are there."""
        if self.store.unfinished():
            self.erasure(version).again()
        self.seal(version)
        drain_outbox(self.store, self.index, self._compiled(version).attributes.index_rules)

    def states(self) -> dict[str, bytes]:
        """What is stored, by id."""
        return {each.id: each.state for each in self.store.scan(limit=1000)}

    def export(self, version: int, reveal: bool) -> bytes:
        """What `idgraph export --provenance` writes, by a process of its own."""
        read = self._reader(version).scan(reveal)
        return b"\n".join(canonical.encode(profile.canonical(True)) for profile in read)

    def shown(self, version: int) -> dict[str, dict[str, Any]]:
        """What the profiles of persons show, to who may see all."""
        persons = {name: person for person in PERSONS for name in self._forms("u", [person])}
        return {persons[each.id]: each.attributes() for each in self._reader(version).scan(reveal=True)}

    def _reader(self, version: int) -> ProfileReader:
        return ProfileReader(
            self.store,
            self.index,
            DataKeys(provider(), self.key_store),
            self._blind_index,
            self._compiled(version).snapshot,
        )

    def with_keys_of(self, other: Site) -> Site:
        """This site, empty so far, with the data keys of another one."""
        self.key_store.put_absent(other.key_store.get(other.names()))
        return self

    def names(self) -> list[str]:
        """All ids that a fragment may have."""
        return self._forms("u", PERSONS)

    def identifiers(self) -> list[str]:
        """All identifiers that a fragment may be found by."""
        return self.names() + self._forms("d", DEVICES)

    def _forms(self, kind: str, values: Iterable[str]) -> list[str]:
        plain = [Identifier(kind, value) for value in values]
        return [str(form) for each in plain for form in (each, self._blind_index.identifier(each))]
