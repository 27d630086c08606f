"""Jobs over persons that are done at once: access requests and erasures by script, previews of rules for real."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from idgraph.app.jobs.rules_preview import comparison, preview_document
from idgraph.model.identifiers import Identifier
from idgraph.model.identity_rules import IdentityRules
from idgraph.model.jobs import JobKind, JobRecord, JobState, Progress, Requester
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.specs import SpecDefinition
from tests.metadata_service.ui.operations import ScriptedDownload
from tests.retail import Pipeline

DOCUMENT = b'{"profile":{"id":"user_id:3474"}}'
RECEIPT = {"hash": "sha256:7f2c", "complete_from": "2024-05-02", "counts": {"fragments": 2}}


class ScriptedPersonJobs:
    """`PersonJobs`, without an erasure."""

    def __init__(self, pipeline: Pipeline, snapshot: Callable[[], MetadataSnapshot]) -> None:
        self._pipeline = pipeline
        self._snapshot = snapshot
        self._jobs: dict[str, JobRecord] = {}
        self._previews: dict[str, dict[str, Any]] = {}
        self.erased: list[Identifier] = []
        self.suggested: list[tuple[str, str]] = []

    def _done(self, kind: JobKind, origin: Requester, progress: Progress, **what: Any) -> JobRecord:
        name, now = f"{len(self._jobs):012x}", int(time.time() * 1000)
        self._jobs[name] = JobRecord(name, kind, "", what, origin, JobState.DONE, now, now, progress)
        return self._jobs[name]

    def start_access(self, identifier: Identifier, origin: Requester) -> JobRecord | None:
        del identifier
        return self._done(JobKind.ACCESS, origin, Progress(1, done=1))

    def preview_erasure(self, identifiers: Sequence[Identifier]) -> tuple[dict[str, int], str | None] | None:
        return {"fragments": len(identifiers), "identifiers": 3}, "2024-05-02"

    def start_erasure(self, identifiers: Sequence[Identifier], origin: Requester) -> JobRecord | None:
        self.erased += identifiers
        return self._done(JobKind.ERASE, origin, Progress(1, done=1))

    def start_rules_preview(self, rules: IdentityRules, sample: int | None, origin: Requester) -> JobRecord:
        here, progress = self._pipeline, Progress()
        job = comparison(here.store, here.blind_index, self._snapshot(), rules, sample)
        progress.total = job.plan({}).total
        list(job.pages(progress, {}))
        record = self._done(JobKind.PREVIEW, origin, progress)
        self._previews[record.id] = {**preview_document(job, progress), "notes": []}
        return record

    def start_spec_preview(
        self, definition: SpecDefinition, sample: int, reveals: bool, origin: Requester
    ) -> JobRecord:
        return self._done(JobKind.PREVIEW, origin, Progress(sample, done=sample), spec=definition.name)

    def start_suggestions(
        self,
        attributes: Sequence[str],
        blocking: Sequence[Sequence[str]],
        least_weight: float,
        clearance: int,
        origin: Requester,
    ) -> JobRecord:
        del blocking, clearance
        record = self._done(JobKind.SUGGEST, origin, Progress(4, done=4))
        parts = {path: 3.0 if number else -1.5 for number, path in enumerate(attributes)}
        items = [{"pair": list(pair), "weight": least_weight, "parts": parts} for pair in self.suggested]
        self._previews[record.id] = {"items": items}
        return record

    def preview(self, job_id: str) -> dict[str, Any] | None:
        return self._previews.get(job_id)

    def record(self, job_id: str) -> JobRecord | None:
        return self._jobs.get(job_id)

    def download(self, job_id: str) -> ScriptedDownload | None:
        is_access = self._jobs[job_id].kind is JobKind.ACCESS
        return ScriptedDownload(DOCUMENT, int(time.time() * 1000) + 3_600_000, "") if is_access else None

    def receipt(self, job_id: str) -> dict[str, Any] | None:
        return RECEIPT if self._jobs[job_id].kind is JobKind.ERASE else None
