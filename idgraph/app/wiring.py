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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from idgraph.app.adapters.indexes import open_index
from idgraph.app.adapters.key_providers import keys_config, open_provider, provider_of
from idgraph.app.adapters.stores import (
    charged,
    open_data_keys,
    open_dead_letters,
    open_profiles,
    require_whole,
    worker_config,
)
from idgraph.model.errors import ConfigError, MetadataError, UnauthorizedError
from idgraph.model.identifiers import Identifier

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings
    from idgraph.jobs.downloads import Downloads
    from idgraph.jobs.erase.dead_letter_search import DeadLetterSearch
    from idgraph.jobs.erase.erasure import Erasure
    from idgraph.jobs.job import Job, JobRunner
    from idgraph.model.attributes import Catalogue
    from idgraph.model.index import IndexRules, ProfileIndex
    from idgraph.model.jobs import JobLog, JobRecord
    from idgraph.model.store import ProfileStore
    from idgraph.signatures import PinnedKey
    from idgraph.snapshot_file import PinnedSnapshot
    from idgraph.web.audit import AuditLog
    from idgraph.web.openid import OpenId
    from ingestion.spark.workers import WorkerPlan, WorkerResources
    from profile_service.reader import ProfileReader
    from sinks.http.metadata import MetadataClient
    from sinks.sqlite.households import SqliteHouseholdLog
    from transforms.privacy.blind_index import BlindIndex
    from transforms.privacy.keys import DataKeyStore, RotatingKeyProvider
    from transforms.privacy.sealing import DataKeys

log = logging.getLogger(__name__)

QUICK_SECONDS = 2.0
"""The longest wait of a command that only reads for the metadata service, before it uses the last
snapshot."""


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
    from idgraph.model.spark import is_local
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
        # For other machines, which do not have the flow's folder.
        dead_letters_by_driver=not is_local(settings.flow.master),
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


def metadata_client(settings: Settings, timeout: float = 10.0) -> MetadataClient:
    """The metadata service's client, for a person's command. Raises ConfigError when there is no token."""
    return _metadata_client(settings, metadata_token(settings), timeout)


def flow_client(settings: Settings) -> MetadataClient:
    """The same with the flow's own token, for a flow's requests."""
    return _metadata_client(settings, flow_token(settings), 10.0)


def profiles_client(settings: Settings) -> MetadataClient:
    """The same with the profile service's own token."""
    return _metadata_client(settings, profiles_token(settings), 10.0)


def reading_client(settings: Settings, timeout: float = 10.0) -> MetadataClient:
    """The same with any token that there is, for commands that only read."""
    return _metadata_client(settings, _reading_token(settings), timeout)


def _metadata_client(settings: Settings, token: str, timeout: float) -> MetadataClient:
    from sinks.http.metadata import MetadataClient

    stated = settings.metadata
    return MetadataClient(stated.url, token, timeout, stated.ca_file, pinned_key(settings))


def single_sign_on(settings: Settings) -> OpenId | None:
    """The issuer of `[oidc]`, if there is one. Raises ConfigError."""
    from idgraph.model.callers import Role
    from idgraph.web.openid import ClaimRule, OpenId, OpenIdConfig
    from sinks.credentials import secret
    from sinks.http.openid import HttpIssuer

    stated = settings.oidc
    if stated.issuer is None:
        return None
    rules = [
        ClaimRule(
            each.claim, each.value, Role(each.role), each.clearance, each.reveal, frozenset(each.scopes)
        )
        for each in stated.rules
    ]
    file = stated.client_secret_file
    own = secret("IDGRAPH_OIDC_CLIENT_SECRET", None if file is None else str(file))
    config = OpenIdConfig(
        stated.issuer,
        stated.client_id,
        rules,
        stated.audience,
        own,
        stated.name_claim,
        stated.redirect_url,
        stated.title,
    )
    return OpenId(config, HttpIssuer(stated.ca_file))


def pinned_key(settings: Settings) -> PinnedKey:
    """The metadata service's key, as it is known here."""
    from idgraph.signatures import PinnedKey

    return PinnedKey(settings.directory / "metadata.pub", settings.metadata.public_key)


def metadata_token(settings: Settings) -> str:
    """A person's token, from the configuration, the environment or its file. Each of these raises ConfigError
    when there is none, UnauthorizedError for a text that cannot be a token: no service is asked with it."""
    return _token(settings, settings.metadata.token, settings.token_file(), _METADATA_TOKEN, "admin")


def flow_token(settings: Settings) -> str:
    """The flow's token."""
    return _token(settings, settings.metadata.token, settings.flow_token_file(), _METADATA_TOKEN, "pipeline")


def _reading_token(settings: Settings) -> str:
    of_person = settings.token_file().exists() or not settings.flow_token_file().exists()
    return metadata_token(settings) if of_person else flow_token(settings)


def profiles_token(settings: Settings) -> str:
    """The token of the profile service, by which it reads the metadata and who its callers are."""
    return _token(
        settings,
        settings.profiles.token,
        settings.profiles_token_file(),
        "IDGRAPH_PROFILES__TOKEN",
        "service",
    )


_METADATA_TOKEN = "IDGRAPH_METADATA__TOKEN"  # noqa: S105 - a variable's name


def _token(settings: Settings, stated: str | None, file: Path, variable: str, role: str) -> str:
    place, found = variable, stated
    if not found:
        place = str(file)
        try:
            found = file.read_text(encoding="ascii")
        except FileNotFoundError:
            settings.require_folder()
            raise ConfigError(
                f"no token for the metadata service: there is no file {file}. The first start of `idgraph serve metadata` "
                f"makes one; later `idgraph tokens add NAME --role {role} > {file}` does; or set {variable}"
            ) from None
        except UnicodeDecodeError:
            found = "\0"
        except OSError as error:
            raise ConfigError(f"{file}: {error.strerror}") from None
    token = found.strip()
    if not token or not all("!" <= each <= "~" for each in token):
        wrong = (
            "is more than a token"
            if token
            else "the token is empty"
            if place == variable
            else "the token file is empty"
        )
        raise UnauthorizedError(
            f"{place}: {wrong}; `idgraph tokens add NAME --role {role}` prints one"
            + ("" if place == variable else f", and `> {file}` writes it there")
        )
    return token


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


def snapshot_file(settings: Settings) -> Path:
    """The file in which the flow keeps its last snapshot."""
    return settings.flow_state() / "snapshot.json"


def schema_journal(settings: Settings) -> Path:
    """The file in which the flow keeps schema changes that the metadata service has not taken yet."""
    return settings.flow_state() / "schema-changes.jsonl"


def newest_snapshot(settings: Settings) -> PinnedSnapshot | None:
    """The service's snapshot, or when it is away the flow's last one; the first with a catalogue that is read when it is needed."""
    from functools import cache, partial

    from idgraph.snapshot_file import PinnedSnapshot, kept_snapshot
    from sinks.http.snapshot import fetch_snapshot

    try:
        place = settings.metadata.url, _reading_token(settings)
        found = fetch_snapshot(*place, QUICK_SECONDS, settings.metadata.ca_file, pinned_key(settings))
        if found is None:
            # The client says what is wrong.
            with reading_client(settings, QUICK_SECONDS) as client:
                answer = client.snapshot(None, 0)
                if answer is not None:
                    found = PinnedSnapshot(answer.etag, answer.snapshot)
        if found is not None:
            return found._replace(catalogue=cache(partial(_catalogue, settings)))
    except ConfigError as error:
        log.debug("%s", error)
    except MetadataError as error:
        log.warning(
            "%s; continuing with what the flow saw last, which has no attributes that nobody declared", error
        )
    return kept_snapshot(snapshot_file(settings))


def _catalogue(settings: Settings) -> Catalogue:
    from idgraph.model.attributes import Catalogue
    from sinks.http.snapshot import fetch_catalogue

    place = settings.metadata.url, _reading_token(settings)
    content = fetch_catalogue(*place, QUICK_SECONDS, settings.metadata.ca_file)
    try:
        return Catalogue.model_validate_json(content)
    except ValueError:
        raise MetadataError("the metadata service's answer is no catalogue") from None


def snapshot_to_read_by(settings: Settings) -> PinnedSnapshot:
    """The newest snapshot, or if there is none at all one under which every value is protected."""
    from idgraph.model.attributes import EncryptionLevel
    from idgraph.model.snapshots import DiscoveryDefaults, MetadataSnapshot
    from idgraph.snapshot_file import PinnedSnapshot

    found = newest_snapshot(settings)
    if found is None:
        sealed = DiscoveryDefaults(encryption=EncryptionLevel.PROTECTED, indexable=False)
        found = PinnedSnapshot("", MetadataSnapshot(version=0, defaults=sealed))
    return found


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

    pinned = pinned or snapshot_to_read_by(settings)
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


def downloads(settings: Settings) -> Downloads:
    """Documents of access requests and exports until they expire."""
    from idgraph.jobs.downloads import Downloads
    from transforms.privacy.protected_names import TombstoneNames
    from transforms.privacy.record_sealing import DeadLetterSealer

    provider = provider_of(settings)
    folder = settings.directory / "downloads"
    return Downloads(folder, DeadLetterSealer(provider), TombstoneNames(provider))


def audit_file(settings: Settings) -> Path:
    """The file of that log."""
    return settings.directory / "audit.jsonl"


def audit_log(settings: Settings) -> AuditLog:
    """The log of reads and acts of people and programs."""
    from idgraph.web.audit import PURPOSE, AuditLog

    return AuditLog(audit_file(settings), provider_of(settings).purpose_key(PURPOSE))


def household_log(settings: Settings) -> SqliteHouseholdLog:
    """The log of acts of persons to share attributes."""
    from sinks.sqlite.households import SqliteHouseholdLog

    return SqliteHouseholdLog(settings.directory / "households.db")


def keyed_hash(resources: WorkerResources | ReadResources) -> Callable[[str], str]:
    """The function that hashes the id of a fragment."""
    return lambda name: str(resources.blind_index.identifier(Identifier.parse(name)))


def erasure(settings: Settings, resources: WorkerResources, pinned: PinnedSnapshot | None = None) -> Erasure:
    """Erases from the embedded adapters, by default under the newest snapshot to be had."""
    from idgraph.jobs.erase.erasure import Erasure
    from sinks.tombstone_file import TombstoneFile
    from transforms.privacy.protected_names import TombstoneNames

    def dead_letters() -> DeadLetterSearch:
        return dead_letter_search(settings, resources, pinned or newest_snapshot(settings))

    def rules() -> IndexRules:
        return index_rules(settings, pinned)

    def erase_elsewhere(fragments: Collection[str]) -> None:
        downloads(settings).erase(fragments)
        if (settings.directory / "households.db").exists():
            with closing(household_log(settings)) as households:
                households.erase([keyed_hash(resources)(each) for each in fragments])

    names = TombstoneNames(provider_of(settings))
    file = TombstoneFile(tombstone_file(settings))
    return Erasure(resources, file, names, dead_letters, rules, erase_elsewhere)


def index_rules(settings: Settings, pinned: PinnedSnapshot | None = None) -> IndexRules:
    """The rules of a projection, by default under the newest snapshot to be had."""
    from transforms.schema.diff import AttributeTree

    return AttributeTree((pinned or snapshot_to_read_by(settings)).snapshot).index_rules


@contextmanager
def job_log(settings: Settings) -> Iterator[JobLog]:
    """All jobs of this installation, closed at the end."""
    from sinks.sqlite.jobs import SqliteJobLog

    with closing(SqliteJobLog(settings.directory / "jobs.db", settings.directory / "jobs")) as log:
        yield log


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


def tombstone_file(settings: Settings) -> Path:
    """The file of tombstones apart from the store."""
    return settings.directory / "tombstones.jsonl"


def sandbox_names(settings: Settings) -> list[str]:
    """The sandboxes of production, which have copies of persons; a sandbox has none."""
    from metadata_service.sandboxes.folder import SandboxFolder

    place = settings.sandboxes()
    return [] if place is None else SandboxFolder(place).names()
