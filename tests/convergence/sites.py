"""One store with its companions, and what flows and operators do to it in the machine of law 1."""

from __future__ import annotations

import difflib
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

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
from merge import codec
from merge.backoff import Backoff
from merge.batch_size import BatchSize
from merge.index import IndexDocument, ProfileIndex
from merge.store import FragmentWrite, ProfileStore
from model import canonical
from model.errors import ConflictError, IdgraphError, ProfileIndexError, StoreError
from model.identifiers import Identifier
from profile_service.profiles import ProfileReader
from sinks.keyring import KeyringFile
from sinks.memory_data_keys import MemoryDataKeys
from sinks.memory_index import MemoryProfileIndex
from sinks.memory_profiles import MemoryProfileStore
from sinks.sqlite_data_keys import SqliteDataKeys
from sinks.sqlite_dead_letters import SqliteDeadLetters
from sinks.sqlite_index import SqliteProfileIndex
from sinks.sqlite_profiles import SqliteProfileStore
from sinks.tombstone_file import TombstoneFile
from tests.convergence.events import DEVICES, PERSONS
from tests.convergence.ledger import Pair
from tests.convergence.ways import Way, runs
from tests.retail import NOW
from tests.servers.dynamodb import emptied_place, place
from transforms.blind_index import BlindIndex
from transforms.compiled import CompiledSnapshot
from transforms.dead_letter_sealing import DeadLetterSealer
from transforms.keys import DataKeyStore, WrappedKey
from transforms.sealing import DataKeys
from transforms.tombstone_names import TombstoneNames

T = TypeVar("T")

AT_ONCE = Backoff(12, 0.0)
"""Retries do not wait."""
EVERY_TWO = FlowConfig(combine_events=2, commit_fragments=2)


@cache
def provider() -> KeyringFile:
    """One keyring for all runs: other keys seal to other bytes."""
    folder = _kept_folder()
    return KeyringFile.create(Path(folder.name) / "keyring.json")


@cache
def _kept_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()


@dataclass(frozen=True)
class Adapters:
    """What a site is made of."""

    store: ProfileStore
    index: ProfileIndex
    key_store: DataKeyStore


def memory(_: Path) -> Adapters:
    """All of it in memory."""
    return Adapters(MemoryProfileStore(TombstoneNames(provider())), MemoryProfileIndex(), MemoryDataKeys())


def sqlite(folder: Path) -> Adapters:
    """All of it in files."""
    names = TombstoneNames(provider())
    return Adapters(
        SqliteProfileStore(folder / "profiles.db", names),
        SqliteProfileIndex(folder / "index.db", names),
        SqliteDataKeys(folder / "data-keys.db"),
    )


def dynamodb(folder: Path) -> Adapters:
    """Fragments and keys in DynamoDB Local, emptied for the first that is opened there, the index in a file."""
    from sinks.dynamo_data_keys import DynamoDataKeys
    from sinks.dynamo_profiles import DynamoProfileStore

    index, names = folder / "index.db", TombstoneNames(provider())
    at = (place if index.exists() else emptied_place)(Path(_kept_folder().name))
    return Adapters(DynamoProfileStore(at, names), SqliteProfileIndex(index, names), DynamoDataKeys(at))


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
    ) -> None:
        self.between: Callable[[], object] | None = None
        """Run once, between what somebody reads and what he writes."""
        self.index_away = False
        self.keys_away = False
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._open_adapters = open_adapters
        self.is_durable = open_adapters is not memory
        self._sources = sources
        self._compiled = compiled
        self.letters = SqliteDeadLetters(folder / "dead-letters.db")
        self._tombstones = TombstoneFile(folder / "tombstones.jsonl")
        self._blind_index = BlindIndex(provider())
        self._sealer = DeadLetterSealer(provider())
        self.held: list[Held] = []
        self.way = Way.QUICK
        self.open()

    def open(self) -> None:
        """As a process does at its start."""
        opened = self._open_adapters(self._folder)
        self.store, self.index, self.key_store = opened.store, opened.index, opened.key_store
        self._disturb()
        self.flow_keys = DataKeys(provider(), self.key_store)
        self.operator_keys = DataKeys(provider(), self.key_store)

    def close(self) -> None:
        """Files stay."""
        for each in (self.store, self.index, self.key_store):
            each.close()

    def _disturb(self) -> None:
        """Let others in between, and servers be away."""
        write, withdraw = self.store.write, self.store.withdraw
        put, erase = self.index.put, self.index.erase
        delete, hold = self.key_store.delete, self.key_store.hold

        def met_write(writes: Sequence[FragmentWrite]) -> set[str]:
            self.meet()
            return write(writes)

        def met_withdraw(versions: Mapping[str, int]) -> set[str]:
            self.meet()
            return withdraw(versions)

        def reached_put(documents: Sequence[IndexDocument]) -> dict[str, str]:
            self._reach("index_away", ProfileIndexError)
            return put(documents)

        def reached_erase(versions: Mapping[str, int]) -> int:
            self._reach("index_away", ProfileIndexError)
            return erase(versions)

        def reached_delete(ids: Sequence[str], kept: Callable[[], Collection[str]] = frozenset) -> int:
            self._reach("keys_away", StoreError)
            return delete(ids, kept)

        def met_hold(ids: Sequence[str], work: Callable[[dict[str, WrappedKey]], T]) -> T:
            # While the keys are held everybody else waits for them.
            self.meet()
            return hold(ids, work)

        for owner, name, method in (
            (self.store, "write", met_write),
            (self.store, "withdraw", met_withdraw),
            (self.index, "put", reached_put),
            (self.index, "erase", reached_erase),
            (self.key_store, "delete", reached_delete),
            (self.key_store, "hold", met_hold),
        ):
            setattr(owner, name, method)

    def meet(self) -> None:
        """Let the other one in, if nobody has yet."""
        between, self.between = self.between, None
        if between is not None:
            between()

    def _reach(self, away: str, error: type[IdgraphError]) -> None:
        if getattr(self, away):
            raise error("is away")

    def resources(self, keys: DataKeys) -> WorkerResources:
        """What a process with these keys in its cache works with."""
        return WorkerResources(self.store, self.index, self.letters, keys, self._blind_index, self._sealer)

    def map(self, pairs: Sequence[Pair]) -> list[MapOutput]:
        """As a flow's tasks do; a micro-batch has one snapshot."""
        outputs: list[MapOutput] = []
        for version in sorted({pair.version for pair in pairs}):
            stage = MapStage(
                self._compiled(version),
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
            self._compiled(max(pair.version for pair in held.pairs)).attributes.index_rules,
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
        if not self.index_away:
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

    def told_beside(self, other: Site) -> str:
        """What differs from another site's state, for people."""
        return "\n".join(difflib.unified_diff(self._told(), other._told(), "site", "tidy", n=0, lineterm=""))

    def _told(self) -> list[str]:
        told: list[str] = []
        for name, encoded in sorted(self.states().items()):
            state = codec.decode(encoded)
            told += [f"{name} {path}: {each}" for path, each in sorted(state.registers.items())]
            for path, cells in sorted(state.cells.items()):
                for policy, cell in sorted(cells.items()):
                    told += [f"{name} {path} {policy}: floor {cell.floor}"]
                    told += [f"{name} {path} {policy}: {each}" for each in sorted(cell.entries.items())]
                    told += [f"{name} {path} {policy} best: {each}" for each in sorted(cell.best.items())]
            told += [
                f"{name} {each}"
                for each in sorted(map(str, [*state.markers.items(), *state.identifiers.items()]))
            ]
        return told

    def export(self, version: int, reveal: bool) -> bytes:
        """What `idgraph export --provenance` writes, by a process of its own."""
        read = self._reader(version).scan(reveal)
        return b"\n".join(canonical.encode(profile.canonical(True)) for profile in read)

    def shown(self, version: int, path: str) -> dict[str, Any]:
        """What the profiles of persons show of a path, where they show anything."""
        persons = {name: person for person in PERSONS for name in self._forms("u", [person])}
        return {
            persons[profile.id]: leaf.value
            for profile in self._reader(version).scan(reveal=True)
            for leaf in profile.leaves
            if leaf.path == path
        }

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
