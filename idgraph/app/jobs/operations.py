"""Jobs over all profiles that callers of the profile service start, watch and cancel."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from idgraph.app import wiring
from idgraph.app.jobs import index_upkeep
from idgraph.app.jobs.dead_letter_replay import replay_job
from idgraph.app.jobs.exports import columns_of, count_other, expected, line_of, members, write_parquet_folder
from idgraph.app.jobs.threads import JobThreads, ReadyJob
from idgraph.jobs import reconcile, reindex
from idgraph.jobs.export_file import Export
from idgraph.jobs.reencrypt.policy_change import Reencryption
from idgraph.jobs.reencrypt.stored_sealing import PAGE as SEALING_PAGE
from idgraph.jobs.reencrypt.stored_sealing import StoredSealing
from idgraph.model.errors import StoreError
from idgraph.model.jobs import JobKind, JobRecord, JobState, Requester
from profile_service.api.operations import Work, download_of
from profile_service.visibility import restrictions
from transforms.spec.mapping import CompiledSnapshot

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings
    from idgraph.jobs.downloads import Download
    from idgraph.jobs.job import JobRunner, Run
    from idgraph.snapshot_file import PinnedSnapshot
    from ingestion.spark.workers import WorkerResources


class OperationThreads(JobThreads):
    """The jobs of one service over all profiles."""

    def __init__(self, settings: Settings, pinned: Callable[[], PinnedSnapshot]) -> None:
        super().__init__()
        self._settings = settings
        self._pinned = pinned
        self._downloads = wiring.downloads(settings)
        self._folder = settings.directory / "exports"
        """Of Parquet files until they are whole."""

    def __enter__(self) -> OperationThreads:
        for left in (*self._folder.glob("*"), *self._folder.glob(".*"), *self._downloads.unfinished()):
            # Of a service that was killed; another one may be running.
            record = self.record(left.name.strip(".").removesuffix(".part"))
            if record is None or record.state is not JobState.RUNNING:
                shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)
        return self

    def start(self, work: Work, origin: Requester) -> JobRecord:
        """Start a job, or resume the last one of its kind and parameters. Raises AlreadyRunningError, QueryError, and what
        stores raise."""
        prepare = _PREPARE[work.kind]
        return cast("JobRecord", self._started(partial(prepare, self, work, origin), origin))

    def records(self) -> list[JobRecord]:
        """All jobs of the installation, whoever started them, the newest first."""
        with wiring.job_log(self._settings) as log:
            return list(log.scan())

    def record(self, job_id: str) -> JobRecord | None:
        """One of them."""
        with wiring.job_log(self._settings) as log:
            return log.get(job_id)

    def private(self, record: JobRecord) -> dict[str, Any]:
        """Its examples (`notes`) and error, which may name persons and attributes."""
        with wiring.job_runner(self._settings) as runner:
            return runner.private(record)

    def cancel(self, job_id: str) -> bool:
        """Ask it to end at its next page; False if it is not running."""
        with wiring.job_log(self._settings) as log:
            return log.cancel(job_id)

    def download(self, job_id: str) -> Download | None:
        """The document of an export."""
        return self._downloads.read(job_id)

    def _reindex(self, work: Work, _origin: Requester, stack: ExitStack, _id: Callable[[], str]) -> ReadyJob:
        page = min(reindex.PAGE, work.rate or reindex.PAGE)
        opened = index_upkeep.reindexing(
            self._settings, page, again=False, newest=lambda: self._pinned().snapshot
        )
        return ReadyJob(*stack.enter_context(opened), rate=work.rate)

    def _reconcile(
        self, work: Work, _origin: Requester, stack: ExitStack, _id: Callable[[], str]
    ) -> ReadyJob:
        page = min(reconcile.PAGE, work.rate or reconcile.PAGE)
        opened = index_upkeep.reconciling(
            self._settings, work.repair, page, newest=lambda: self._pinned().snapshot
        )
        return ReadyJob(*stack.enter_context(opened), rate=work.rate)

    def _seal(self, work: Work, _origin: Requester, stack: ExitStack, _id: Callable[[], str]) -> ReadyJob:
        resources, runner = self._opened(stack)
        snapshot = self._pinned().snapshot
        page = min(SEALING_PAGE, work.rate or SEALING_PAGE)
        sealing = StoredSealing(resources, CompiledSnapshot(snapshot))
        return ReadyJob(runner, Reencryption(sealing, snapshot, resources.store, page=page), rate=work.rate)

    def _export(self, work: Work, origin: Requester, stack: ExitStack, job_id: Callable[[], str]) -> ReadyJob:
        resources, runner = self._opened(stack)
        pinned = self._pinned()
        reader = wiring.profile_reader(self._settings, resources, pinned).with_clearance(work.clearance)
        total, found = expected(resources.index), reader.scan()
        if work.segment is not None:
            total = reader.count_members(reader.segments()[work.segment])
            found = members(reader, work.segment, reveal=False)
        table = columns_of(reader, work.columns, work.key) if work.form == "parquet" else None
        options: dict[str, Any] = {
            "format": work.form,
            "segment": work.segment,
            "clearance": work.clearance,
        }
        options |= {"columns": work.columns, "key": work.key} if table is not None else {}

        def write(run: Run) -> None:
            for earlier in runner.log.scan(JobKind.EXPORT):
                if earlier.target == download_of(origin.who):
                    self._downloads.remove(earlier.id)
            erased = resources.store.all_tombstones()
            shown = Export.counted(run, found, lambda _: None)
            hours, rules = self._settings.profiles.download_hours, restrictions(pinned.snapshot)
            with self._downloads.writing(job_id(), None, hours, rules) as put:
                if table is not None:
                    folder = self._folder / job_id()
                    self._folder.mkdir(mode=0o700, exist_ok=True)
                    stack.callback(shutil.rmtree, folder, ignore_errors=True)
                    write_parquet_folder(folder, shown, table)
                    count_other(run.progress, table)
                    for content in _contents(folder):
                        put(content)
                else:
                    for profile in shown:
                        put(line_of(profile, provenance=False))
            run.progress.counts["damaged"] = len(reader.damaged)
            if resources.store.all_tombstones() != erased:
                self._downloads.remove(job_id())
                raise StoreError("a person was erased meanwhile; start the export again")

        return ReadyJob(runner, Export(total, download_of(origin.who), options), write)

    def _replay(self, work: Work, _origin: Requester, stack: ExitStack, _id: Callable[[], str]) -> ReadyJob:
        resources, runner = self._opened(stack)
        job = replay_job(self._settings, resources, self._pinned().snapshot, work.dead_letters)
        return ReadyJob(runner, job)

    def _opened(self, stack: ExitStack) -> tuple[WorkerResources, JobRunner]:
        resources = stack.enter_context(wiring.opened(self._settings))
        wiring.require_own_keyring(self._settings, resources)
        return resources, stack.enter_context(wiring.job_runner(self._settings))


_PREPARE: dict[JobKind, Callable[..., ReadyJob]] = {
    JobKind.REINDEX: OperationThreads._reindex,
    JobKind.RECONCILE: OperationThreads._reconcile,
    JobKind.REENCRYPT: OperationThreads._seal,
    JobKind.EXPORT: OperationThreads._export,
    JobKind.REPLAY: OperationThreads._replay,
}


def _contents(folder: Path) -> Iterator[bytes]:
    """Of the one file that an export without partitions has."""
    (file,) = folder.iterdir()
    with file.open("rb") as stream:
        while content := stream.read(1 << 20):
            yield content
