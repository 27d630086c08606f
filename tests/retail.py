"""The retail example as the stages see it, without Spark: its real specs, attributes and events."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from idgraph.app.settings.document import load
from idgraph.model import canonical
from idgraph.model.attributes import AttributeDefinition, AttributeMetadata
from idgraph.model.errors import ProfileIndexError
from idgraph.model.events import RawRecord
from idgraph.model.identity_rules import DEFAULT_RULES
from idgraph.model.index import IndexRules, ProfileIndex
from idgraph.model.snapshots import DetectionMode, DiscoveryDefaults, MetadataSnapshot
from idgraph.model.sources import FlowConfig
from idgraph.model.specs import SpecDefinition, SpecDocument
from idgraph.model.store import ProfileStore
from idgraph.projection.parts import Projected
from idgraph.projection.projection import Projection
from ingestion.sources.files.lines import DamagedRecord
from ingestion.sources.payload_formats import PayloadFormats
from ingestion.spark.workers import WorkerPlan, WorkerResources
from ingestion.stages.commit import CommitOutput, CommitStage
from ingestion.stages.dead_letters import BatchAttempt, DeadLetterWriter
from ingestion.stages.map_output import MapOutput
from ingestion.stages.map_stage import MapStage
from ingestion.stages.orphaned_keys import KeyGuard, OrphanedKeys
from merge.fragments import FragmentState
from merge.identity.components import Person
from merge.identity.persons import Persons
from merge.identity.rules import Rules
from profile_service.reader import ProfileReader
from sinks.keyring.content import BARE, Envelope
from sinks.keyring.provider import KeyringFile
from sinks.sqlite.data_keys import SqliteDataKeys
from sinks.sqlite.dead_letters import SqliteDeadLetters
from tests.support.memory.data_keys import MemoryDataKeys
from tests.support.memory.index import MemoryProfileIndex
from tests.support.memory.profiles import MemoryProfileStore
from transforms.privacy.blind_index import BlindIndex
from transforms.privacy.keys import DataKeyStore
from transforms.privacy.record_sealing import DeadLetterSealer, ShuffleBlockKeys
from transforms.privacy.sealing import DataKeys
from transforms.spec.mapping import CompiledSnapshot

EXAMPLE = Path(__file__).parents[1] / "examples" / "retail"
CREATED = datetime(2024, 1, 1, tzinfo=UTC)
NOW = datetime(2024, 4, 1, tzinfo=UTC).timestamp()
SOURCES = load(EXAMPLE / "idgraph.toml").sources_by_name()


def spec(example: str, /, version: int = 1, **changed: Any) -> SpecDocument:
    """A spec of the example (`segment`, `amplitude`, `orders`), as the metadata service would give it."""
    content = json.loads((EXAMPLE / "specs" / f"{example}.json").read_bytes())
    return SpecDocument(**{**content, "version": version, "created": CREATED, **changed})


def attribute(path: str, data_type: str = "string", **stated: Any) -> AttributeMetadata:
    """An attribute as the metadata service would give it."""
    content = {"path": path, "data_type": data_type, **stated, "version": 1, "created": CREATED}
    return AttributeMetadata.model_validate(content)


def attributes() -> list[AttributeMetadata]:
    """The attributes that the example declares."""
    return [attribute(**content) for content in json.loads((EXAMPLE / "attributes.json").read_bytes())]


def snapshot(
    version: int = 1,
    specs: Sequence[SpecDocument] | None = None,
    declared: Sequence[AttributeMetadata] | None = None,
    defaults: DiscoveryDefaults | None = None,
) -> MetadataSnapshot:
    """A snapshot; what is left out is the example's own."""
    return MetadataSnapshot(
        version=version,
        specs=tuple(specs if specs is not None else [spec(name) for name in SOURCES]),
        attributes=tuple(declared if declared is not None else attributes()),
        defaults=defaults or DiscoveryDefaults(),
    )


UNDETECTED = DiscoveryDefaults(detection=DetectionMode.OFF)
"""Nothing is sealed that nobody declared, whatever it looks like."""


@lru_cache
def lines(source: str, count: int) -> tuple[bytes, ...]:
    """The first lines of a source's data."""
    with gzip.open(EXAMPLE / "data" / f"{source}.jsonl.gz") as stream:
        return tuple(line.rstrip(b"\n") for line in islice(stream, count))


def records(count: int) -> list[RawRecord]:
    """About so many events of all three systems, as they would be read from files."""
    share = {"segment": count // 2, "amplitude": count // 4, "orders": count - count // 2 - count // 4}
    return [
        RawRecord(source, f"file:{source}/x.jsonl#{number}", line)
        for source, some in share.items()
        for number, line in enumerate(lines(source, some), 1)
    ]


def order(number: int = 1, line: int = 1, **changed: Any) -> RawRecord:
    """An order that maps well, but for what is changed."""
    content: dict[str, Any] = {
        "order_id": f"R{number}",
        "created_at": "2024-03-01T00:00:00Z",
        "customer": {"email": f"p{number}@example.com", "name": {"first": "Ann", "last": "Lee"}},
        "shipping": {"line1": "1 Main St", "city": "Springfield", "country": "US"},
        "cart": {"total": "12.50", "items": 1},
        "guest": False,
        **changed,
    }
    return raw(content, line)


def raw(content: Any, line: int = 1, source: str = "orders") -> RawRecord:
    """Any record of a source; bytes are taken as they are."""
    value = content if isinstance(content, bytes) else canonical.encode(content)
    return RawRecord(source, f"file:{source}/x.jsonl#{line}", value)


def states_of(output: MapOutput) -> dict[str, FragmentState]:
    """The states of an output's fragments."""
    found = {}
    for name, encoded, erasure_epoch in output.encoded():
        found[name] = FragmentState(encoded)
        found[name].erasure_epoch = erasure_epoch
    return found


@dataclass
class Pipeline:
    """The stages with a real keyring; the stores are in memory unless others are given."""

    folder: Path
    key_store: DataKeyStore = field(default_factory=MemoryDataKeys)
    store: ProfileStore = field(default_factory=MemoryProfileStore)
    index: ProfileIndex = field(default_factory=MemoryProfileIndex)
    sources: dict[str, Any] = field(default_factory=lambda: dict(SOURCES))
    flow: FlowConfig = field(default_factory=FlowConfig)
    snapshot: MetadataSnapshot = field(default_factory=snapshot)
    batch: BatchAttempt = field(default_factory=lambda: BatchAttempt("main/0", "attempt"))
    now: Callable[[], float] = lambda: NOW
    formats: PayloadFormats = field(default_factory=PayloadFormats)
    envelope: Envelope = BARE
    """What the keyring's secrets are in."""
    compiled: Callable[[MetadataSnapshot], CompiledSnapshot] = CompiledSnapshot

    def __post_init__(self) -> None:
        file = self.folder / "keyring.json"
        if not file.exists():
            KeyringFile.create(file, self.envelope)
        self.provider = KeyringFile(file, envelope=self.envelope)
        self.data_keys = DataKeys(self.provider, self.key_store)
        self.blind_index = BlindIndex(self.provider)
        self.sealer = DeadLetterSealer(self.provider)
        self.block_keys = ShuffleBlockKeys(self.provider)

    def map_stage(self, is_again: bool = False) -> MapStage:
        return MapStage(
            self.compiled(self.snapshot),
            self.sources,
            self.flow,
            self.batch._replace(is_again=is_again),
            self.data_keys,
            self.blind_index,
            DeadLetterWriter(self.sealer),
            self.now,
            self.store.tombstones,
            self.formats,
        )

    def commit_stage(self) -> CommitStage:
        return CommitStage(self.store, guard=KeyGuard(self.store, self.data_keys))

    def rules(self) -> IndexRules:
        """Those of the present snapshot."""
        return CompiledSnapshot(self.snapshot).attributes.index_rules

    def project(self) -> Projected:
        """Project what waits."""
        return Projection(self.store, self.index, self.rules).sweep()

    def map(self, *given: RawRecord | DamagedRecord) -> MapOutput:
        """The one output of a few records."""
        (output,) = self.map_stage().run(given)
        return output

    def process(self, given: Iterable[RawRecord | DamagedRecord], is_again: bool = False) -> CommitOutput:
        """Both stages, as one task without a shuffle runs them, and the projection."""
        outputs = list(self.map_stage(is_again).run(given))
        stage = self.commit_stage()
        done = stage.run(item for output in outputs for item in output.encoded())
        self.erase_leftover_keys(stage.refused.union(*(output.refused for output in outputs)))
        with suppress(ProfileIndexError):
            self.project()
        return done

    def erase_leftover_keys(self, refused: Iterable[str]) -> int:
        """As the driver does, once a micro-batch is done."""
        with closing(SqliteDeadLetters(self.folder / "dead-letters.db")) as dead_letters:
            return OrphanedKeys(self.store, self.data_keys, dead_letters).erase(refused)

    def reader(self) -> ProfileReader:
        return ProfileReader(self.store, self.index, self.data_keys, self.blind_index, self.snapshot)

    def export(self, reveal: bool = False) -> bytes:
        """What `idgraph export --provenance` writes."""
        return b"\n".join(canonical.encode(profile.canonical(True)) for profile in self.reader().scan(reveal))

    def profile(self, name: str, reveal: bool = True) -> dict[str, Any]:
        """The attributes of one profile."""
        (found,) = [profile for profile in self.reader().scan(reveal) if profile.id == name]
        return found.attributes()

    def plan(self) -> WorkerPlan:
        """A plan whose resources are this pipeline's."""
        return WorkerPlan(self.flow, self.sources, "", lambda _: self.resources())

    def resources(self) -> WorkerResources:
        """This pipeline's adapters, with dead letters in a file."""
        return WorkerResources(
            self.store,
            self.index,
            SqliteDeadLetters(self.folder / "dead-letters.db"),
            self.data_keys,
            self.blind_index,
            self.sealer,
            self.block_keys,
        )


def durable_keys(folder: Path) -> SqliteDataKeys:
    return SqliteDataKeys(folder / "data-keys.db")


def definition(example: str, /, **changed: Any) -> SpecDefinition:
    """A spec of the example as its author writes it."""
    content = json.loads((EXAMPLE / "specs" / f"{example}.json").read_bytes())
    return SpecDefinition(**{**content, **changed})


def declared() -> list[AttributeDefinition]:
    """The attributes of the example as their author writes them."""
    content = json.loads((EXAMPLE / "attributes.json").read_bytes())
    return [AttributeDefinition.model_validate(item) for item in content]


def persons_of(store: ProfileStore, rules: Rules | None = None) -> list[Person]:
    """All persons of a store, by the default rules."""
    persons = Persons(store, rules or Rules(DEFAULT_RULES))
    return [person for named in persons.scan(resolves_all=False) for person in named.persons]
