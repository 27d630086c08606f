"""What is wrong with an installation, looked at from outside: nothing is made, migrated or repaired."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from http import HTTPStatus
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from idgraph.app import metadata_access, wiring
from idgraph.app.adapters import indexes, stores
from idgraph.app.adapters.inputs import open_pulsar_admin
from idgraph.app.adapters.key_providers import ensure_keyring
from idgraph.app.adapters.shared_state import is_embedded, shared_flows
from idgraph.app.java import require_java
from idgraph.app.settings.document import Settings
from idgraph.model.errors import (
    ConfigError,
    IdgraphError,
    KeyServiceError,
    MetadataError,
    SnapshotSignatureError,
    SourceUnavailableError,
    UnauthorizedError,
)
from idgraph.model.flows import Flows
from idgraph.model.formats import UPGRADES, FormatRange, formats_of
from idgraph.model.kafka import kafka_sources
from idgraph.model.pulsar import pulsar_sources
from idgraph.model.queries import Query
from sinks.http.connection import ask_once

SQLITE_FILES = stores.PROFILES, stores.DATA_KEYS, stores.DEAD_LETTERS, stores.DEAD_LETTER_KEYS
LEAST_FREE_BYTES = 256 << 20
CLOCK_SECONDS = 60.0
"""A file may be so much younger than now."""
TOOL_SECONDS = 5.0


class Finding(NamedTuple):
    """One thing that is `missing`, `foreign`, `open to others`, `older`, `newer`, `damaged`, `full`, `unreachable`, `waiting`, `slow`
    or `wrong`. `command` mends it. With `is_fault` something does not work, or will not; else it is good to know."""

    kind: str
    place: Path | str
    text: IdgraphError | str
    command: str
    is_fault: bool = True


Check = Callable[[Settings], Iterator[Finding]]


def _directory(settings: Settings) -> Iterator[Finding]:
    directory = settings.directory
    if not directory.exists():
        text = "nothing is stored here yet"
        yield Finding("missing", directory, text, "idgraph keys init && idgraph up", is_fault=False)
        return
    for each in (directory, *sorted(directory.iterdir())):
        state = each.stat()
        if state.st_uid != os.geteuid():
            text = f"it belongs to user {state.st_uid}, and this process runs as {os.geteuid()}"
            yield Finding("foreign", each, text, f"sudo chown -R $(id -un) {directory}")
        elif state.st_mode & 0o077:
            yield _open_to_others(each)
    if not os.access(directory, os.W_OK | os.X_OK):
        yield Finding("foreign", directory, "it cannot be written to", f"mount, or chmod u+w {directory}")


def _disk(settings: Settings) -> Iterator[Finding]:
    folder = next(each for each in (settings.directory, *settings.directory.parents) if each.exists())
    free = shutil.disk_usage(folder).free
    if free < LEAST_FREE_BYTES:
        text = f"{free >> 20} MiB are free, and a flow stops when none is"
        yield Finding("full", folder, text, f"du -xsh {folder}/* (remove, or enlarge the disk)")
        return
    largest = max((each.stat().st_size for each in settings.directory.glob("*.db")), default=0)
    if free < 2 * largest:
        text = f"{free >> 20} MiB are free; an erasure or `idgraph seal` needs {2 * largest >> 20} MiB to rewrite a file"
        yield Finding("full", folder, text, "enlarge the disk", is_fault=False)


def _keyring(settings: Settings) -> Iterator[Finding]:
    place = settings.keyring_file()
    if place.exists() and place.stat().st_mode & 0o077:
        if place.parent != settings.directory:  # Else it is the directory's finding.
            yield _open_to_others(place)
        return
    error = _fault_of_keyring(settings)
    if isinstance(error, KeyServiceError):
        yield Finding("unreachable", place, error, "aws kms describe-key (see docs/security.md)")
    elif error is not None and place.exists():
        yield Finding("damaged", place, error, f"cp COPY {place}")
    elif error is not None:
        is_needed = settings.store.kind == "sqlite" and stores.holds_data_keys(settings.directory)
        yield Finding("missing", place, error, f"cp COPY {place}" if is_needed else "idgraph keys init")


def _fault_of_keyring(settings: Settings) -> IdgraphError | None:
    try:
        ensure_keyring(settings)
    except IdgraphError as error:
        return error
    return None


def _open_to_others(place: Path) -> Finding:
    return Finding("open to others", place, "other users of this machine can read it", f"chmod go= {place}")


def _stores(settings: Settings) -> Iterator[Finding]:
    """Formats first: to open an older file upgrades it."""
    wrong = list(for_version(settings, version("idgraph")))
    yield from wrong
    if settings.store.kind == "dynamodb":
        wrong = list(_tables(settings))
        yield from wrong
    elif not wrong:
        try:
            stores.require_profiles(settings.directory)
        except IdgraphError as error:
            place = settings.directory / stores.PROFILES
            wrong = [Finding("missing", place, error, "idgraph restore BACKUP")]
            yield from wrong
        if not (settings.directory / stores.PROFILES).exists():
            return
    if wrong or _fault_of_keyring(settings) is not None:
        return  # Without the keyring, whose finding it is, nothing more can be said.
    try:
        with wiring.opened_keys(settings, own=True):
            pass
    except KeyServiceError:
        return  # The keyring's finding.
    except IdgraphError as error:
        yield Finding("foreign", settings.keyring_file(), error, "restore keyring and data keys of one time")


def _tables(settings: Settings) -> Iterator[Finding]:
    place = f"DynamoDB in {settings.store.region}"
    try:
        for table in stores.missing_tables(settings):
            yield Finding("missing", f"{place}, {table}", "there is no such table", "idgraph store create")
    except IdgraphError as error:
        yield Finding("unreachable", place, error, "aws dynamodb list-tables (docs/dynamodb.md)")


def stored_formats(settings: Settings) -> Iterator[tuple[str, Path | str, Callable[[], Iterable[int]]]]:
    """All that is stored: its name in the table of formats, its place, and a function that reads its formats. That raises
    IdgraphError for what cannot be read."""
    for name in (*SQLITE_FILES, "jobs.db", "households.db"):
        file = settings.directory / name
        if file.exists() and file.stat().st_size:
            yield name, file, partial(_format_of_file, file)
    if settings.metadata.database or (settings.directory / "metadata.db").exists():
        read = partial(_format_of_metadata, settings.database_url())
        yield "metadata.db", "database of the metadata service", read
    if settings.index.kind == "elasticsearch":
        place = f"Elasticsearch index {settings.index.name}"
        yield "elasticsearch", place, partial(indexes.layouts, settings)
    elif (settings.directory / indexes.FOLDER / "versions.json").exists():
        folder = settings.directory / indexes.FOLDER
        yield "index", folder, partial(_layout_of_index, folder)


def _format_of_file(file: Path) -> Iterable[int]:
    from sinks.sqlite.schema import format_of

    return [format_of(file)]


def _format_of_metadata(url: str) -> Iterable[int]:
    from metadata_service.storage.database import stored_format

    return [stored_format(url) or 0]


def _layout_of_index(folder: Path) -> Iterable[int]:
    from sinks.tantivy.folder import layout_of

    return [layout_of(folder)]


def for_version(settings: Settings, of_idgraph: str) -> Iterator[Finding]:
    """What this version of idgraph does not read as it is. Raises ConfigError for a version that is not known."""
    reads = formats_of(of_idgraph, version("idgraph"))
    for name, place, read in stored_formats(settings):
        try:
            for found in read():
                yield from _of_format(name, place, found, reads, of_idgraph)
        except IdgraphError as error:
            if isinstance(place, Path):
                yield Finding("damaged", place, error, "idgraph restore BACKUP")
            else:
                yield Finding("unreachable", place, error, "start its server, or correct its address")


def _of_format(
    name: str, place: Path | str, found: int, reads: Mapping[str, FormatRange], of_idgraph: str
) -> Iterator[Finding]:
    if name not in reads:
        text = f"idgraph {of_idgraph} does not know it, and ignores it"
        yield Finding("newer", place, text, f"none ({UPGRADES})", is_fault=False)
        return
    oldest, newest = reads[name]
    kind = "newer" if found > newest else "older"
    said = f"it has format {found}"
    if oldest <= found < newest:
        text = f"{said}, which idgraph {of_idgraph} upgrades to {newest} when it opens it; from then on no older one reads it"
        yield Finding(kind, place, text, "idgraph backup BACKUP, before its first start", is_fault=False)
    elif found != newest and name in ("index", "elasticsearch"):
        remove = f"rm -r {place} && " if name == "index" else ""
        text = f"{said}; idgraph {of_idgraph} reads {newest} only"
        yield Finding(kind, place, text, f"{remove}idgraph reindex")
    elif found != newest:
        text = f"{said}, and idgraph {of_idgraph} reads {oldest} to {newest}: it does not start"
        command = f"restore a backup that {of_idgraph} wrote, or keep the newer idgraph ({UPGRADES})"
        yield Finding(kind, place, text, command)


def _index(settings: Settings) -> Iterator[Finding]:
    if settings.index.kind == "elasticsearch" or not (settings.directory / stores.PROFILES).exists():
        return  # A missing index in Elasticsearch has no format.
    folder = settings.directory / indexes.FOLDER
    if not (folder / "versions.json").exists():
        yield Finding("missing", folder, "profiles are stored, and not searchable", "idgraph reindex")
    elif _fault_of_keyring(settings) is None and not list(for_version(settings, version("idgraph"))):
        with wiring.opened_to_read(settings) as resources:
            if not resources.index.count(Query()) and resources.store.scan(limit=1):
                text = "profiles are stored, and none is searchable, as after `idgraph restore`"
                yield Finding(
                    "missing",
                    folder,
                    text,
                    "idgraph up, whose flow makes the index again, or idgraph reindex",
                )


def _metadata(settings: Settings) -> Iterator[Finding]:
    place = settings.metadata.url
    if _is_foreign(place):
        text = "another program answers there, and no metadata service of idgraph"
        yield Finding("foreign", place, text, "end that program, or set another port in [metadata] url")
        return
    try:
        with metadata_access.reading_client(settings, metadata_access.QUICK_SECONDS) as client:
            answer = client.snapshot(None, 0)
        if answer is not None and answer.snapshot.models and find_spec("onnxruntime") is None:
            text = "derived attributes use models, and onnxruntime is missing here: they have no values"
            yield Finding("missing", place, text, "pip install 'idgraph[models]', and start again")
    except SnapshotSignatureError as error:
        file = settings.directory / "metadata.pub"
        yield Finding("foreign", place, error, f"rm {file}, if its key was changed on purpose")
    except UnauthorizedError as error:
        file = settings.token_file()
        yield Finding("foreign", place, error, f"idgraph tokens add NAME --role admin > {file}")
    except ConfigError as error:
        yield Finding("missing", place, error, "idgraph up")
    except MetadataError as error:
        yield Finding("unreachable", place, error, "idgraph up, or idgraph serve metadata")


def _is_foreign(url: str) -> bool:
    """Whether something that is no service of idgraph answers at a URL of plain HTTP."""
    if not url.startswith("http://"):
        return False
    try:
        answer = ask_once(f"{url}/health/live", metadata_access.QUICK_SECONDS)
        if answer is None:
            return False  # Nothing, or something that takes its time.
        status, body = answer
        if status != HTTPStatus.OK:
            return status < HTTPStatus.INTERNAL_SERVER_ERROR
        return bool(json.loads(body) != {"status": "ok"})
    except ValueError:
        return True


def _kafka(settings: Settings) -> Iterator[Finding]:
    from idgraph.app.adapters.extras import needing

    sources = kafka_sources(settings.sources_by_name())
    if not sources:
        return
    servers = settings.kafka.bootstrap_servers
    try:
        with needing("kafka", "Kafka needs confluent-kafka"):
            from sinks.kafka.topics import names
        there = names(servers, settings.kafka.producer_options())
    except ConfigError as error:
        yield Finding("missing", servers, error, "see the message")
        return
    except SourceUnavailableError as error:
        yield Finding("unreachable", servers, error, "start Kafka, or correct [kafka] bootstrap_servers")
        return
    for name, source in sources.items():
        for topic in set(source.topics) - there:
            command = f"kafka-topics.sh --bootstrap-server {servers} --create --topic {topic}"
            yield Finding("missing", f"{servers}, {topic}", f"source {name} has no such topic", command)


def _pulsar(settings: Settings) -> Iterator[Finding]:
    sources, url = pulsar_sources(settings.sources_by_name()), settings.pulsar.admin_url
    if not sources:
        return
    try:
        with closing(open_pulsar_admin(settings.pulsar)) as admin:
            topics = {topic: name for name, source in sources.items() for topic in source.topics}
            missing = [topic for topic in topics if admin.ledgers(topic) is None]
    except (ConfigError, SourceUnavailableError) as error:
        yield Finding("unreachable", url, error, "start Pulsar, or correct [pulsar] admin_url")
        return
    for topic in missing:
        text = f"source {topics[topic]} has no such topic"
        yield Finding("missing", f"{url}, {topic}", text, f"pulsar-admin topics create {topic}")


def _flows(settings: Settings) -> Iterator[Finding]:
    if not is_embedded(settings) and list(_tables(settings)):
        return  # The stores' finding, without waiting for them again.
    with shared_flows(settings) as flows:
        for name in flows.names():
            yield from _flow(settings, flows, name)


def _flow(settings: Settings, flows: Flows, name: str) -> Iterator[Finding]:
    report = flows.report(name)
    place = str(settings.directory / "flows" / name) if is_embedded(settings) else f"flow {name}"
    if report is not None and report.is_silent(time.time()):
        text = f"the flow {name} was killed or hangs: it said {report.state} last"
        yield Finding("waiting", place, text, "idgraph up, or idgraph run")
    if (pause := flows.pause_of(name)) is not None:
        text = f"the flow {name} was paused by {pause.who}: {pause.why}"
        yield Finding("waiting", place, text, f"idgraph flows resume {name}", is_fault=False)
    for hold in flows.held(name).holds():
        command = f"idgraph dead-letters list; idgraph flows resume {name} --source {hold.source}"
        yield Finding("waiting", place, f"source {hold.source} waits: {hold.why}", command)


def _java(settings: Settings) -> Iterator[Finding]:
    if settings.sources:
        try:
            require_java()
        except ConfigError as error:
            text, _, command = str(error).partition("\n")
            place = os.environ.get("JAVA_HOME", "PATH")
            yield Finding("missing", place, text, command.strip() or "see the message")


def _native(_settings: Settings) -> Iterator[Finding]:
    from idgraph import native

    if native.states is None:
        text = f"native code: {native.state}; events take some three times longer"
        command = "python setup.py build_ext --inplace, or install idgraph again beside a C compiler"
        yield Finding("slow", Path(native.__file__).parent, text, command, is_fault=False)


def _clock(settings: Settings) -> Iterator[Finding]:
    ahead = max((each.stat().st_mtime for each in settings.directory.glob("*")), default=0.0) - time.time()
    command = "timedatectl set-ntp true"
    if ahead > CLOCK_SECONDS:
        text = f"the clock is {ahead:,.0f} s behind what was written here: events would be of the future"
        yield Finding("foreign", "clock", text, command)
        return
    tool = shutil.which("timedatectl")
    try:
        words = [str(tool), "show", "--property", "NTPSynchronized", "--value"]
        done = tool and subprocess.run(  # noqa: S603 - our own words
            words, capture_output=True, text=True, check=False, timeout=TOOL_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    if done and done.stdout.strip() == "no":
        text = "the clock follows no time server"
        yield Finding("foreign", "clock", text, command, is_fault=False)


CHECKS: Mapping[str, Check] = {
    "directory": _directory,
    "disk": _disk,
    "keyring": _keyring,
    "stores": _stores,
    "index": _index,
    "metadata service": _metadata,
    "Kafka": _kafka,
    "Pulsar": _pulsar,
    "flows": _flows,
    "Java": _java,
    "native code": _native,
    "clock": _clock,
}
"""By name, in the order of the output."""
