"""Jobs for tests of routes and pages: those over all profiles go on when a test says so, all others are done at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from idgraph.jobs.rules_preview import RulesPreviewParameters, comparison, preview_document
from idgraph.jobs.table import JOBS
from idgraph.model.errors import AlreadyRunningError
from idgraph.model.jobs import Download, JobKind, JobRecord, JobState, Progress, Requester, download_of
from idgraph.model.snapshots import MetadataSnapshot
from profile_service.visibility import restrictions
from tests.retail import Pipeline

CONTENT = b'{"id":"user_id:3474"}\n'
DOCUMENT = b'{"profile":{"id":"user_id:3474"}}'
RECEIPT = {"hash": "sha256:7f2c", "complete_from": "2024-05-02", "counts": {"fragments": 2}}
AT_ONCE = {JobKind.ACCESS, JobKind.ERASE, JobKind.PREVIEW, JobKind.SUGGEST}


class ScriptedJobs:
    """`Jobs` without work, but for previews of rules."""

    kinds = JOBS

    def __init__(self, pipeline: Pipeline, snapshot: Callable[[], MetadataSnapshot]) -> None:
        self._pipeline = pipeline
        self._snapshot = snapshot
        self._jobs: dict[str, JobRecord] = {}
        self._results: dict[str, dict[str, Any]] = {}
        self.error = ""
        self.dead_letters: list[str] = []
        self.erased: list[str] = []
        self.suggested: list[tuple[str, str]] = []

    def start(
        self, kind: JobKind, parameters: Mapping[str, Any], origin: Requester, clearance: int = 100
    ) -> JobRecord:
        if any(each.kind is kind and each.state is JobState.RUNNING for each in self._jobs.values()):
            raise AlreadyRunningError(f"this {kind} is running already")
        is_export = kind is JobKind.EXPORT
        what: dict[str, Any] = {"repair": parameters.get("repair", False)}
        progress = Progress(total=200, unit="profile" if is_export else "fragment")
        if is_export:
            what = {
                "format": parameters.get("form"),
                "segment": parameters.get("segment"),
                "clearance": clearance,
            }
        elif kind in AT_ONCE:
            what, progress = self._done(kind, parameters)
        now = int(time.time() * 1000)
        progress.begun_at = now - 1000
        record = JobRecord(
            self._next_id(),
            kind,
            download_of(origin.who) if is_export else "",
            what,
            origin,
            JobState.DONE if kind in AT_ONCE else JobState.RUNNING,
            now,
            now,
            progress,
        )
        self.dead_letters = list(parameters.get("dead_letters", ()))
        self._jobs[record.id] = record
        return record

    def _next_id(self) -> str:
        return f"{len(self._jobs):012x}"

    def _done(self, kind: JobKind, parameters: Mapping[str, Any]) -> tuple[dict[str, Any], Progress]:
        if "spec" in parameters:
            stated = parameters["spec"]
            size = stated["sample"]
            return {"spec": stated["definition"].name}, Progress(size, done=size)
        if kind is JobKind.PREVIEW:
            rules, here = RulesPreviewParameters(**parameters["rules"]), self._pipeline
            job = comparison(here.store, here.blind_index, self._snapshot(), rules.rules, rules.sample)
            progress = Progress(job.plan({}).total)
            list(job.pages(progress, {}))
            self._results[self._next_id()] = {**preview_document(job, progress), "notes": []}
            return {}, progress
        if kind is JobKind.SUGGEST:
            weight, paths = parameters["least_weight"], parameters["attributes"]
            parts = {path: 3.0 if number else -1.5 for number, path in enumerate(paths)}
            items = [{"pair": list(pair), "weight": weight, "parts": parts} for pair in self.suggested]
            self._results[self._next_id()] = {"items": items}
            return {}, Progress(4, done=4)
        if kind is JobKind.ERASE:
            self.erased += parameters["identifiers"]
            self._results[self._next_id()] = RECEIPT
        return {}, Progress(1, done=1)

    def preview(
        self, kind: JobKind, parameters: Mapping[str, Any], origin: Requester, clearance: int = 100
    ) -> Mapping[str, Any]:
        del kind, origin, clearance
        counts = {"fragments": len(parameters["identifiers"]), "identifiers": 3}
        return {"counts": counts, "complete_from": "2024-05-02"}

    def step(self, done: int, state: JobState = JobState.RUNNING) -> None:
        """The newest job has done so much."""
        record = self.records()[0]
        progress = replace(record.progress, done=done)
        self._jobs[record.id] = replace(
            record, state=state, progress=progress, updated=int(time.time() * 1000)
        )

    def records(self) -> list[JobRecord]:
        return list(self._jobs.values())[::-1]

    def record(self, job_id: str) -> JobRecord | None:
        return self._jobs.get(job_id)

    def result(self, job_id: str) -> Mapping[str, Any] | None:
        return self._results.get(job_id)

    def private(self, record: JobRecord) -> Mapping[str, Any]:
        return {"error": self.error if record.state is JobState.FAILED else "", "notes": {}}

    def cancel(self, job_id: str) -> bool:
        record = self._jobs[job_id]
        if record.state is JobState.RUNNING:
            self._jobs[job_id] = replace(record, is_cancel_requested=True)
        return record.state is JobState.RUNNING

    def download(self, job_id: str) -> Download | None:
        expires = int(time.time() * 1000) + 3_600_000
        match self._jobs[job_id].kind:
            case JobKind.ACCESS:
                return Download(lambda: iter([DOCUMENT]), expires, "")
            case JobKind.ERASE:
                return None
        return Download(lambda: iter([CONTENT]), expires, restrictions(self._snapshot()))
