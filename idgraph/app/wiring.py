"""Wiring: the adapter behind each protocol. Nothing else in idgraph chooses one.

Adapters are imported where they are opened, so that a command waits for none that it does not use.
"""

from __future__ import annotations

import getpass
import json
import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from idgraph.app import metadata_access
from idgraph.app.adapters.indexes import open_index
from idgraph.app.adapters.key_providers import keys_config, open_provider, provider_of
from idgraph.app.adapters.shared_state import (
    audit_lines,
    existing_household_log,
    job_log,
    open_documents,
    require_moved,
    tombstone_keeper,
)
from idgraph.app.adapters.stores import (
    charged,
    open_data_keys,
    open_dead_letters,
    open_profiles,
    require_whole,
    worker_config,
)
from idgraph.model.errors import ConfigError
from idgraph.model.identifiers import Identifier

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings
    from idgraph.jobs.downloads import Downloads
    from idgraph.jobs.erase.dead_letter_search import DeadLetterSearch
    from idgraph.jobs.erase.erasure import Erasure
    from idgraph.jobs.features.served import ServedHashes
    from idgraph.jobs.job import Job, JobRunner
    from idgraph.model.index import IndexRules, ProfileIndex
    from idgraph.model.jobs import JobRecord
    from idgraph.model.shared_documents import SharedDocuments
    from idgraph.model.snapshots import PinnedSnapshot
    from idgraph.model.store import ProfileStore
    from idgraph.web.audit import AuditLog
    from ingestion.spark.workers import WorkerPlan, WorkerResources
    from profile_service.reader import ProfileReader
    from transforms.privacy.blind_index import BlindIndex
    from transforms.privacy.keys import DataKeyStore, RotatingKeyProvider
    from transforms.privacy.sealing import DataKeys

log = logging.getLogger(__name__)


def prepare_directory(settings: Settings) -> None:
    """Make the directory that idgraph writes to, and those within, for their owner only."""
    state = settings.flow_state()
    try:
        settings.directory.mkdir(parents=True, exist_ok=True)
        for folder in (settings.directory, state.parent, state):
            folder.mkdir(exist_ok=True)
            # Not by mkdir's mode: those that are there already may be open to others.
            folder.chmod(0o700)
    except OSError as error:
        raise ConfigError(f"{settings.directory}: {error.strerror}") from None


def worker_plan(settings: Settings) -> WorkerPlan:
    """The configuration of Spark workers: places, never keys or tokens."""
    from idgraph.app.adapters.inputs import decryptors_config, formats_config, ranges_config
    from ingestion.spark.workers import WorkerPlan

    config = {
        **worker_config(settings),
        **keys_config(settings),
        **formats_config(settings),
        **decryptors_config(settings),
        **ranges_config(settings),
    }
    if settings.production is not None:
        config["production"] = worker_config(settings.production) | keys_config(settings.production)
    return WorkerPlan(
        settings.flow,
        settings.sources_by_name(),
        json.dumps(config),
        open_resources,
        closed=(settings.directory, settings.keyring_file()),
    )


def open_resources(settings: str) -> WorkerResources:
    """Open the adapters; runs in workers as well as in commands."""
    from idgraph.app.adapters.inputs import open_decryptors, open_formats, open_ranges
    from idgraph.app.adapters.production import ErasedInProduction, SandboxBlindIndex
    from ingestion.spark.workers import WorkerResources
    from transforms.privacy.blind_index import BlindIndex
    from transforms.privacy.protected_names import TombstoneNames
    from transforms.privacy.record_sealing import DeadLetterSealer, ShuffleBlockKeys
    from transforms.privacy.sealing import DataKeys

    config = json.loads(settings)
    provider = open_provider(config)
    names = TombstoneNames(provider)
    store, key_store = open_profiles(config, names), open_data_keys(config)
    erased = ErasedInProduction(config["production"]) if "production" in config else None
    return WorkerResources(
        store=store,
        index=open_index(config, names),
        dead_letters=open_dead_letters(config, provider),
        data_keys=DataKeys(provider, key_store),
        blind_index=SandboxBlindIndex(provider, erased) if erased else BlindIndex(provider),
        sealer=DeadLetterSealer(provider),
        block_keys=ShuffleBlockKeys(provider),
        formats=open_formats(config),
        decryptors=open_decryptors(config),
        read_range=open_ranges(config),
        consumed=charged(store, key_store),
        elsewhere=erased,
    )


@contextmanager
def opened(settings: Settings) -> Iterator[WorkerResources]:
    """The adapters for a command, closed at its end. Raises StoreError when the data keys are lost."""
    require_moved(settings)
    resources = open_resources(worker_plan(settings).settings)
    with ExitStack() as stack:
        for opened_one in (
            resources.store,
            resources.index,
            resources.dead_letters,
            resources.data_keys,
            resources.formats,
            resources.decryptors,
        ):
            stack.callback(opened_one.close)
        if resources.elsewhere is not None:
            stack.callback(resources.elsewhere.close)
        with closing(open_data_keys(worker_config(settings))) as key_store:
            require_whole(worker_config(settings), resources.store, key_store)
        yield resources


@contextmanager
def opened_keys(settings: Settings, own: bool = False) -> Iterator[tuple[RotatingKeyProvider, DataKeyStore]]:
    """The key provider and the data keys alone. Raises KeyProviderError, with `own` also when the keyring is another
    one's; StoreError when the data keys are lost: an empty file in their place would count none in use."""
    from idgraph.app.adapters import lost_keys
    from transforms.privacy.protected_names import TombstoneNames

    provider = provider_of(settings)
    config = worker_config(settings)
    with closing(open_data_keys(config)) as key_store:
        with closing(open_profiles(config, TombstoneNames(provider))) as store:
            require_whole(config, store, key_store)
            if own:
                lost_keys.require_own_keyring(provider, store, key_store)
        yield provider, key_store


def require_own_keyring(
    settings: Settings, resources: WorkerResources | ReadResources, notes: bool = True
) -> None:
    """Check the keyring before anything is written or erased by its names. Raises KeyProviderError when it is
    another one. With `notes` it is noted with the profiles."""
    from idgraph.app.adapters import lost_keys

    provider = provider_of(settings)
    with closing(open_data_keys(worker_config(settings))) as key_store:
        lost_keys.require_own_keyring(provider, resources.store, key_store)
    if notes:
        lost_keys.note_keyring(provider, resources.store)


def adopt_keyring(settings: Settings) -> None:
    """The keyring is that of the profiles from now on. Raises KeyProviderError when it opens none of their data keys."""
    from idgraph.app.adapters import lost_keys

    with opened(settings) as resources, closing(open_data_keys(worker_config(settings))) as key_store:
        lost_keys.adopt_keyring(provider_of(settings), resources.store, key_store)


def local_user() -> str:
    """The person who works on this machine."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def operator_name() -> str:
    """The name of the person who works on this machine, as the audit log has it: no account of the services
    is called so."""
    return f"shell:{local_user()}"


@dataclass(frozen=True, slots=True)
class ReadResources:
    """The adapters that reading profiles needs; a part of `WorkerResources`."""

    store: ProfileStore
    index: ProfileIndex
    data_keys: DataKeys
    blind_index: BlindIndex


@contextmanager
def opened_to_read(settings: Settings, retry_seconds: float | None = None) -> Iterator[ReadResources]:
    """As `opened`, for a reader: nothing of a flow is loaded. `retry_seconds` as of `worker_config`."""
    from transforms.privacy.blind_index import BlindIndex
    from transforms.privacy.protected_names import TombstoneNames
    from transforms.privacy.sealing import DataKeys

    require_moved(settings)
    provider, config = provider_of(settings), worker_config(settings, retry_seconds)
    names = TombstoneNames(provider)
    with (
        closing(open_profiles(config, names)) as store,
        closing(open_index(config, names)) as index,
        closing(open_data_keys(config)) as key_store,
    ):
        require_whole(config, store, key_store)
        yield ReadResources(store, index, DataKeys(provider, key_store), BlindIndex(provider))


def profile_reader(
    settings: Settings, resources: WorkerResources | ReadResources, pinned: PinnedSnapshot | None = None
) -> ProfileReader:
    """Reads profiles from the embedded adapters, by default under the newest snapshot to be had."""
    from profile_service.reader import ProfileReader

    pinned = pinned or metadata_access.snapshot_to_read_by(settings)
    tools = resources.store, resources.index, resources.data_keys, resources.blind_index
    return ProfileReader(*tools, pinned.snapshot, pinned.catalogue)


def dead_letter_search(
    settings: Settings, resources: WorkerResources, pinned: PinnedSnapshot | None
) -> DeadLetterSearch:
    """Looks through dead letters under a snapshot."""
    from idgraph.jobs.erase.dead_letter_search import DeadLetterSearch

    return DeadLetterSearch(
        settings.sources_by_name(),
        pinned.snapshot if pinned else None,
        resources.blind_index,
        resources.sealer.open,
        resources.formats,
        resources.decryptors,
    )


def downloads(settings: Settings, documents: SharedDocuments) -> Downloads:
    """Documents of access requests and exports until they expire."""
    from idgraph.jobs.downloads import Downloads
    from transforms.privacy.protected_names import TombstoneNames
    from transforms.privacy.record_sealing import DeadLetterSealer

    provider = provider_of(settings)
    return Downloads(documents, DeadLetterSealer(provider), TombstoneNames(provider))


def audit_log(settings: Settings) -> AuditLog:
    """The log of reads and acts of people and programs."""
    from idgraph.web.audit import PURPOSE, AuditLog

    return AuditLog(audit_lines(settings), provider_of(settings).purpose_key(PURPOSE))


def served_hashes(settings: Settings) -> ServedHashes:
    """The hashes in notes of served look-ups."""
    from idgraph.jobs.features.served import PURPOSE, ServedHashes
    from transforms.privacy.protected_names import TombstoneNames

    provider = provider_of(settings)
    return ServedHashes(provider.purpose_key(PURPOSE), TombstoneNames(provider))


def keyed_hash(resources: WorkerResources | ReadResources) -> Callable[[str], str]:
    """The function that hashes the id of a fragment."""
    return lambda name: str(resources.blind_index.identifier(Identifier.parse(name)))


def erasure(settings: Settings, resources: WorkerResources, pinned: PinnedSnapshot | None = None) -> Erasure:
    """Erases from the embedded adapters, by default under the newest snapshot to be had."""
    from idgraph.jobs.erase.erasure import Erasure
    from transforms.privacy.protected_names import TombstoneNames

    @cache
    def to_read_by() -> PinnedSnapshot:
        return pinned or metadata_access.snapshot_to_read_by(settings)

    def dead_letters() -> DeadLetterSearch:
        found = to_read_by()
        # Without an ETag it is none of a service.
        return dead_letter_search(settings, resources, found if found.etag else None)

    def rules() -> IndexRules:
        return index_rules(settings, to_read_by())

    def erase_elsewhere(fragments: Collection[str]) -> None:
        from profile_service.trigger_ledger import request_erasure

        with closing(open_documents(settings)) as documents:
            downloads(settings, documents).erase(fragments)
            request_erasure(documents, [names(each).hex() for each in fragments])
        if (log := existing_household_log(settings)) is not None:
            with closing(log):
                log.erase([keyed_hash(resources)(each) for each in fragments])

    names = TombstoneNames(provider_of(settings))
    return Erasure(resources, tombstone_keeper(settings), names, dead_letters, rules, erase_elsewhere)


def index_rules(settings: Settings, pinned: PinnedSnapshot | None = None) -> IndexRules:
    """The rules of a projection, by default under the newest snapshot to be had."""
    from transforms.schema.diff import AttributeTree

    return AttributeTree((pinned or metadata_access.snapshot_to_read_by(settings)).snapshot).index_rules


@contextmanager
def job_runner(settings: Settings, is_command: bool = False) -> Iterator[JobRunner]:
    """Runs jobs, and keeps them in the log. Those of a command are in the audit log; a service notes who starts one itself."""
    from idgraph.jobs.job import JobRunner
    from transforms.privacy.record_sealing import DeadLetterSealer

    def note(job: Job, record: JobRecord) -> None:
        entry: dict[str, Any] = {
            "action": f"start {job.kind}",
            "caller": operator_name(),
            "subject": record.id,
        }
        reveals = {"reveal": True} if job.what.get("reveal") else {}
        audit_log(settings).append(entry | {"purpose": record.origin.why} | reveals)

    with job_log(settings) as log:
        sealer = DeadLetterSealer(provider_of(settings))
        yield JobRunner(log, sealer, note) if is_command else JobRunner(log, sealer)


def sandbox_names(settings: Settings) -> list[str]:
    """The sandboxes of production, which have copies of persons; a sandbox has none."""
    from metadata_service.sandboxes.folder import SandboxFolder

    place = settings.sandboxes()
    return [] if place is None else SandboxFolder(place).names()
