"""Running the configured flow in this process."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

from idgraph.app import metadata_access, wiring
from idgraph.app.adapters.inputs import input_stream, needed_jars, require_formats
from idgraph.app.adapters.key_providers import ensure_keyring
from idgraph.app.adapters.shared_state import shared_flows
from idgraph.app.java import class_archives, require_java
from idgraph.app.observation.flow_observation import observed
from idgraph.app.observation.flow_report import reporting
from idgraph.app.settings.document import Settings
from idgraph.files import exclusive_lock, owner_only
from idgraph.jobs.reencrypt.policy_change import PolicyChanges
from idgraph.model.errors import ConfigError, FlowInterruptedError, FlowStoppedError, ProfileIndexError
from idgraph.model.flows import Flows, HeldSources
from idgraph.model.queries import Query
from idgraph.model.sources import file_sources, is_glob
from idgraph.model.spark import is_local
from idgraph.model.topics import topic_sources
from idgraph.projection.documents import IndexPolicies
from idgraph.projection.process import ProjectionProcess
from idgraph.projection.runner import ProjectionRunner
from ingestion.metadata.follower import SnapshotFollower
from ingestion.metadata.schema_buffer import SchemaBuffer, SchemaSender
from ingestion.metadata.schema_journal import SchemaJournal
from ingestion.metadata.spec_usage import SpecUsage
from ingestion.sources.files.taken import folder_of, path_below
from ingestion.sources.stream import InputStream, Intake
from ingestion.spark import checkpoints
from ingestion.spark.micro_batch import MicroBatches, MicroBatchRunner
from ingestion.spark.projection_tasks import ProjectionTasks
from ingestion.spark.query import Flow
from ingestion.spark.sent_snapshots import BatchPins
from ingestion.spark.session import Session, start_session, stop_session
from ingestion.spark.workers import WorkerResources
from ingestion.stages.outcomes import BatchReport
from sinks.http.metadata import MetadataClient


def require_shared(settings: Settings) -> None:
    """Raises ConfigError for resources that executors on other machines could not reach or share."""
    if is_local(settings.flow.master):
        return
    cluster = f"[flow] master {settings.flow.master} is a cluster"
    if settings.store.kind == "sqlite":
        raise ConfigError(
            f"{cluster}, whose machines cannot share SQLite files; set [store] kind to dynamodb (docs/dynamodb.md)"
        )
    if settings.index.kind == "sqlite":
        raise ConfigError(
            f"{cluster}, whose machines cannot share an SQLite file; set [index] kind to elasticsearch "
            "(docs/elasticsearch.md)"
        )
    if file_sources(settings.sources_by_name()) and not settings.spark.shared_files:
        raise ConfigError(
            f"{cluster}, whose machines must all see the sources' files; read from Kafka or Pulsar (docs/kafka.md, docs/pulsar.md), or set "
            "[spark] shared_files = true if the folders are on a file system that all have under the same paths"
        )
    archive = settings.spark.archive
    if archive is not None and not archive.is_file():
        raise ConfigError(f"[spark] archive: there is no {archive}; make it with `idgraph package {archive}`")


log = logging.getLogger(__name__)


def run_flow(
    settings: Settings,
    stop: threading.Event,
    intake: Intake,
    on_batch: Callable[[BatchReport], None],
    on_start: Callable[[], None] = lambda: None,
    sealed_by: str | None = None,
) -> None:
    """Run until `stop` is set, or with `until_done` until the input that is there at the start is done.
    `on_start` is called before Spark is started, once nothing else runs this flow. `sealed_by` is the
    protection of what the flow has stored before it first runs; without one, all that is stored is looked
    through.

    Raises ConfigError for a fault that must be repaired before anything runs, and UnauthorizedError or
    MetadataError when there is no snapshot to start with. Also raises the error that stopped the flow.
    """
    jars = _prepared(settings, stop)
    running: list[Flow] = []
    with ExitStack() as stack:
        stack.enter_context(_own_state(settings))
        client = stack.enter_context(closing(metadata_access.flow_client(settings)))
        resources = stack.enter_context(_ready(settings))
        kept, max_age = metadata_access.snapshot_file(settings), settings.metadata.max_snapshot_age_seconds
        snapshots = stack.enter_context(SnapshotFollower(client, kept, max_age))
        schema = stack.enter_context(_schema_changes(settings, client))
        flows = stack.enter_context(shared_flows(settings))
        held = _held(settings, flows)
        stream = input_stream(settings, held)

        def is_running() -> bool:
            return any(flow.is_running() for flow in running)

        tasks = _projection_tasks(settings, snapshots, is_running)
        projection = stack.enter_context(_projection(settings, resources, snapshots, tasks))
        watched = observed(
            settings, flows, resources, snapshots, projection, stream.waiting, running, on_batch
        )
        on_batch = stack.enter_context(watched)
        seen = reporting(settings, flows, snapshots, projection, stream.waiting, is_running, on_batch)
        on_batch = _noting_uses(stack.enter_context(seen), stack.enter_context(SpecUsage(client)))
        on_start()
        if projection is not None and tasks is None:
            stack.enter_context(projection)
        session = stack.enter_context(_session(settings, stop, jars))
        if projection is not None and tasks is not None:
            stack.enter_context(tasks.on(session))
            stack.enter_context(projection)
        metadata = snapshots, schema
        on_commit = projection.wake if projection else lambda: None
        flow = _flow(settings, flows, session, stream, held, metadata, resources, on_commit, on_batch)
        running.append(flow)
        stack.enter_context(_following_policy(settings, resources, snapshots, flow, sealed_by))
        try:
            flow.run(stop, intake)
        finally:
            running.clear()
        if intake.until_done and not stop.is_set():
            if projection is not None:
                projection.finish(stop)
            _require_no_wait(settings, held)


def _held(settings: Settings, flows: Flows) -> HeldSources:
    """The sources that wait; with a limit that none exceeds, all are tried again."""
    held = flows.held(settings.flow.name)
    if settings.flow.dead_letters.max_rate >= 1:
        for hold in held.holds():
            held.try_again(hold.source)
    return held


def _require_no_wait(settings: Settings, held: HeldSources) -> None:
    """Raises FlowStoppedError where sources wait: their input is not done."""
    known = settings.sources_by_name()
    waiting = [f"source {hold.source} waits: {hold.why}" for hold in held.holds() if hold.source in known]
    if waiting:
        raise FlowStoppedError(
            f"all else is done. {'; '.join(waiting)}. See `idgraph dead-letters list`, repair the cause, then run "
            f"again; `idgraph flows resume {settings.flow.name} --source SOURCE` lets it be tried again"
        )


def _noting_uses(on_batch: Callable[[BatchReport], None], usage: SpecUsage) -> Callable[[BatchReport], None]:
    def note(report: BatchReport) -> None:
        usage.add(report.counts.uses)
        on_batch(report)

    return note


def _prepared(settings: Settings, stop: threading.Event) -> Sequence[Path]:
    """Check the settings and make folders and keys before anything runs; returns the jars that Spark needs."""
    if not settings.sources:
        settings.require_folder()
        raise ConfigError("no sources are configured; add a [[sources]] table to idgraph.toml")
    require_shared(settings)
    with _reporting_of_interruption(stop):
        require_java()
    jars = needed_jars(settings)
    wiring.prepare_directory(settings)
    ensure_keyring(settings)
    _make_folders(settings)
    return jars


@contextmanager
def _own_state(settings: Settings) -> Iterator[None]:
    """The flow's folder for this process alone, its checkpoint whole.

    Spark asks for no modes for its checkpoint and its temporary files, so the process does. The sources' folders are for
    publishers and have the user's own."""
    state = settings.flow_state()
    with owner_only(), exclusive_lock(state):
        checkpoints.repair(state / "checkpoint", keeps_files=not topic_sources(settings.sources_by_name()))
        yield


@contextmanager
def _ready(settings: Settings) -> Iterator[WorkerResources]:
    """The adapters, once the keyring is theirs and an interrupted erasure is finished."""
    with wiring.opened(settings) as resources:
        wiring.require_own_keyring(settings, resources)
        require_formats(settings, resources.formats)
        wiring.erasure(settings, resources).repair()
        yield resources


def _schema_changes(settings: Settings, client: MetadataClient) -> SchemaBuffer:
    return SchemaBuffer(
        SchemaSender(client),
        SchemaJournal(metadata_access.schema_journal(settings)),
        settings.metadata.max_updates,
        settings.metadata.schema_update_interval,
    )


def _projection_tasks(
    settings: Settings, snapshots: SnapshotFollower, is_running: Callable[[], bool]
) -> ProjectionTasks | None:
    """The tasks of the projection, where all executors reach the index; the embedded one has one writer."""
    if settings.index.kind == "sqlite":
        return None
    return ProjectionTasks(wiring.worker_plan(settings), snapshots.current, is_running)


@contextmanager
def _projection(
    settings: Settings,
    resources: WorkerResources,
    snapshots: SnapshotFollower,
    tasks: ProjectionTasks | None,
) -> Iterator[ProjectionRunner | None]:
    """The projection that runs beside the flow, where the flow feeds the index: in `tasks`, or in a process of its own."""
    if settings.index.fed_by != "flow":
        yield None
        return
    _report_of_another_store(resources)
    if tasks is not None:
        policies = IndexPolicies(lambda: snapshots.current().snapshot)
        yield ProjectionRunner(resources.projection(lambda: policies().rules, tasks))
        return
    places = wiring.worker_plan(settings).settings
    with closing(ProjectionProcess("idgraph.app.projecting", places, snapshots.current)) as process:
        yield ProjectionRunner(process)


@contextmanager
def _session(settings: Settings, stop: threading.Event, jars: Sequence[Path]) -> Iterator[Session]:
    """A Spark session of the flow's own."""
    state = settings.flow_state()
    with _keeping_interrupt_handler(), _reporting_of_interruption(stop):
        session = start_session(
            settings.flow, settings.spark, state / "spark", state / "spark.log", class_archives(), jars
        )
    try:
        yield session
    finally:
        stop_session(session)


def _flow(
    settings: Settings,
    flows: Flows,
    session: Session,
    stream: InputStream,
    held: HeldSources,
    metadata: tuple[SnapshotFollower, SchemaBuffer],
    resources: WorkerResources,
    on_commit: Callable[[], None],
    on_batch: Callable[[BatchReport], None],
) -> Flow:
    state, plan = settings.flow_state(), wiring.worker_plan(settings)
    runner = MicroBatchRunner(session, plan, stream.without_secrets)
    orphaned_keys = resources.orphaned_keys()
    batches = MicroBatches(
        plan.flow,
        stream,
        runner,
        BatchPins(state),
        *metadata,
        resources.dead_letters,
        orphaned_keys,
        held,
        plan.sources,
        on_commit,
    )
    is_paused = partial(flows.is_paused, plan.flow.name)
    return Flow(session, plan.flow, stream, state / "checkpoint", batches, on_batch, held, is_paused)


@contextmanager
def _following_policy(
    settings: Settings,
    resources: WorkerResources,
    snapshots: SnapshotFollower,
    flow: Flow,
    sealed_by: str | None,
) -> Iterator[None]:
    """A change of policy starts its re-encryption while the flow runs."""
    with wiring.job_runner(settings) as jobs:
        name = settings.flow.name
        commits = (settings.flow_state() / "checkpoint" / "commits").glob("[0-9]*")
        last_batch = max((int(each.stat().st_mtime * 1000) for each in commits), default=0)
        # A projection runs beside the flow.
        is_projected = settings.index.fed_by == "flow"
        with PolicyChanges(
            name,
            jobs,
            resources,
            snapshots.current,
            flow.is_past,
            sealed_by,
            last_batch=last_batch,
            is_projected=is_projected,
        ):
            yield


@contextmanager
def _reporting_of_interruption(stop: threading.Event) -> Iterator[None]:
    """Around the start of Java: asked to end with the flow, it says that it cannot be started."""
    try:
        yield
    except (ConfigError, FlowStoppedError):
        if not stop.is_set():
            raise
        raise FlowInterruptedError("Java ended with it before the flow had begun") from None


def _report_of_another_store(resources: WorkerResources) -> None:
    """A store that is rebuilt begins its versions again, and the index takes no document of an earlier one."""
    try:
        is_other = not resources.store.scan(limit=1) and resources.index.count(Query()) > 0
    except ProfileIndexError:
        return
    if is_other:
        log.warning(
            "there is no profile in the store and some are in the search index, which keeps what it has: "
            "once the flow has built them again, run `idgraph reindex`"
        )


def _make_folders(settings: Settings) -> None:
    """A source's folder may come later than the flow, so it is made. Its name may be a mistake, so a folder
    that is made is reported. Raises ConfigError for one that would read files of the flow itself."""
    for source in file_sources(settings.sources_by_name()).values():
        folder = folder_of(source)
        for place in (settings.directory, settings.keyring_file()):
            if not is_glob(source.path) and _is_read_below(folder, place):
                raise ConfigError(
                    f"source {source.name}: {folder} holds {place}, and idgraph's own files are no events; give the "
                    "source a folder of its own"
                )
        if folder.is_dir():
            continue
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise ConfigError(f"source {source.name}: {folder}: {error.strerror}") from None
        log.warning("source %s: created %s, nothing there yet", source.name, folder)


def _is_read_below(folder: Path, place: Path) -> bool:
    """Whether a path lies below a folder, and not in hidden folders, which Spark leaves out."""
    below = path_below(folder, place)
    return below is not None and not any(part.startswith((".", "_")) for part in below.parts)


@contextmanager
def _keeping_interrupt_handler() -> Iterator[None]:
    """PySpark puts a handler of its own in place of the caller's: Ctrl-C would break off the micro-batch."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, kept)
