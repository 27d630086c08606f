"""Jobs: bounded work over many profiles, as whoever starts, watches or cancels one sees it.

A job is done in pages. After each page its progress and its resume point are kept, so a job that was interrupted or
cancelled resumes there: `state` goes from RUNNING to one of the others, and by a resumption to RUNNING again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from idgraph.model.callers import Scope
    from idgraph.model.documents import StrictDocument

P = TypeVar("P", bound="StrictDocument")
J = TypeVar("J")

Point = Mapping[str, Any]
"""The place at which a job resumes, as JSON data; empty for its beginning."""

START = "POST /v1/jobs"
"""The request that starts most kinds."""

SHOWN = 5
"""The number of examples in a note that may mean more."""


class JobKind(StrEnum):
    """The work of a job."""

    BACKFILL = "backfill"
    REPLAY = "replay"
    REINDEX = "reindex"
    RECONCILE = "reconcile"
    REENCRYPT = "re-encrypt"
    ROTATE = "rotate"
    ERASE = "erase"
    EXPORT = "export"
    FEATURES = "features"
    PREVIEW = "preview"
    RESOLVE = "resolve"
    ACCESS = "access"
    SUGGEST = "suggest"


class JobState(StrEnum):
    """The state of a job."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    """It was asked to stop, or its process ended."""


class Requester(NamedTuple):
    """The person or flow that starts a job, and the reason."""

    who: str
    why: str = ""


def moment_text(at_ms: int, precision: str = "seconds") -> str:
    """A moment in epoch milliseconds as RFC 3339 has it, in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec=precision)


def download_of(who: str) -> str:
    """The target of a caller's exports: one runs at a time."""
    return f"a download of {who}"


@dataclass(slots=True)
class Progress:
    """The progress of a job. `done` of `total` units are looked at; more than `total` may come to be. `counts` are by
    name; a name may have parts, as `values/payroll.salary`. `notes` are examples by name, and may name persons."""

    total: int = 0
    unit: str = "profile"
    done: int = 0
    resumed: bool = False
    begun_at: int = 0
    begun_done: int = 0
    """The beginning of this run in milliseconds since 1970, and the amount done then."""
    counts: Counter[str] = field(default_factory=Counter)
    notes: dict[str, list[str]] = field(default_factory=dict)

    def begin_again(self) -> None:
        """Forget what was done."""
        self.done, self.resumed, self.begun_done = 0, False, 0
        self.counts.clear()
        self.notes.clear()

    def per_second(self, now: int) -> float | None:
        """The rate of this run until `now`, in milliseconds since 1970; None if it cannot be computed."""
        seconds = (now - self.begun_at) / 1000
        done = self.done - self.begun_done
        return done / seconds if self.begun_at and seconds > 0 and done > 0 else None

    def count(self, name: str, parts: Mapping[str, int] | Sequence[str] | set[str]) -> None:
        """Count by part: how many of each, or one of each."""
        for part, number in Counter(parts).items():
            self.counts[f"{name}/{part}"] += number

    def parts(self, name: str) -> Counter[str]:
        """The counts by part under a name."""
        beginning = f"{name}/"
        return Counter(
            {key.removeprefix(beginning): n for key, n in self.counts.items() if key.startswith(beginning)}
        )

    def note(self, name: str, examples: Sequence[str]) -> None:
        """Keep the first few examples."""
        if examples:
            known = self.notes.setdefault(name, [])
            known += examples[: SHOWN - len(known)]


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One job in the log. Moments are in milliseconds since 1970.

    `target` is what it works on: of one kind and target, one job runs at a time. `what` are its parameters, without
    personal data. `private` is sealed: the resume point, the notes and the error.
    """

    id: str
    kind: JobKind
    target: str
    what: Mapping[str, Any]
    origin: Requester
    state: JobState
    started: int
    updated: int
    progress: Progress
    private: bytes = b""
    is_cancel_requested: bool = False

    def document(self, precision: str) -> dict[str, Any]:
        """JSON data without fields that can name persons, its moments in UTC with this precision."""
        progress = self.progress
        return {
            "id": self.id,
            "kind": str(self.kind),
            "state": str(self.state),
            "who": self.origin.who,
            "why": self.origin.why,
            "what": dict(self.what),
            "started": moment_text(self.started, precision),
            "updated": moment_text(self.updated, precision),
            "done": progress.done,
            "total": progress.total,
            "unit": progress.unit,
            "counts": dict(sorted(progress.counts.items())),
        }


def _as_recorded(record: JobRecord) -> Mapping[str, Any]:
    return record.what


def _by_command_only(_record: JobRecord, _who: str) -> Mapping[str, Any] | None:
    return None


@dataclass(frozen=True)
class JobType(Generic[P, J]):
    """A kind of job with parameters P. `idgraph.jobs.table` has all kinds."""

    does: str
    """One line, for the documentation."""
    command: str
    """The command that starts it."""
    parameters: type[P]
    prepare: Callable[[P, Any], J | None]
    """Returns the job, ready to run with the parts of a `JobContext`; None if there is nothing to do."""
    request: str = ""
    """The request that starts it over HTTP; empty where only the command does."""
    scope: Scope | None = None
    """The scope of callers who may start it over HTTP; None: everybody may, within their clearance."""
    preview: Callable[[P, Any], Mapping[str, Any] | None] | None = None
    """The effects that a job of these parameters would have, as JSON data; changes nothing. None if there is
    nothing to do."""
    shown: Callable[[JobRecord], Mapping[str, Any]] = _as_recorded
    """The parameters as callers see them."""
    resumed: Callable[[JobRecord, str], Mapping[str, Any] | None] = _by_command_only
    """The parameters by which a caller of this name resumes a job over HTTP; None where only its command does."""


class Download(NamedTuple):
    """A document that a job left. `rules` is what it was kept with; `expires_ms` is in epoch milliseconds."""

    parts: Callable[[], Iterator[bytes]]
    """Reads it from its file. Raises SealError."""
    expires_ms: int
    rules: str

    @property
    def content(self) -> bytes:
        """All of it."""
        return b"".join(self.parts())


class JobIdentity(NamedTuple):
    """The fields that distinguish jobs; `JobRecord` has them too. `reopens` says whether a job that is done is taken up
    again when there is more to do."""

    kind: JobKind
    target: str
    what: Mapping[str, Any]
    reopens: bool = False


class JobLog(Protocol):
    """All jobs of one installation. A job whose process ended is shown as INTERRUPTED. Raises StoreError."""

    def running(
        self, work: JobIdentity, origin: Requester, again: bool = False
    ) -> AbstractContextManager[JobRecord]:
        """The job, which nobody else runs within the block: the last one of its kind, target and parameters if that is
        not done or `reopens`, else, or with `again`, a new one. Leaving the block without ending the job interrupts it.

        Raises AlreadyRunningError while one of its kind and target runs.
        """
        ...

    def keep(self, job_id: str, progress: Progress, private: bytes) -> bool:
        """Keep how far it is; says whether somebody asked to cancel it."""
        ...

    def reseal(self, job_id: str, private: bytes) -> None:
        """Replace what is sealed of a job that is not running."""
        ...

    def end(self, job_id: str, state: JobState, progress: Progress, private: bytes) -> None: ...

    def cancel(self, job_id: str) -> bool:
        """Ask a job that is running to end at its next page; False if it is not running."""
        ...

    def get(self, job_id: str) -> JobRecord | None: ...

    def scan(self, kind: JobKind | None = None) -> Iterator[JobRecord]:
        """The jobs, the newest first."""
        ...

    def close(self) -> None: ...
