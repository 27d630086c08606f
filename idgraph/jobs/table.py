"""All kinds of jobs: a new kind is one module and one line here, under its name in `JobKind`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from idgraph.jobs.export import EXPORT
from idgraph.jobs.kind import JobType
from idgraph.jobs.reconcile import RECONCILE
from idgraph.jobs.reencrypt.policy_change import REENCRYPT
from idgraph.jobs.reindex import REINDEX
from idgraph.jobs.replay import REPLAY
from idgraph.model.jobs import JobKind

JOBS: Mapping[JobKind, JobType[Any, Any]] = {
    JobKind.REINDEX: REINDEX,
    JobKind.RECONCILE: RECONCILE,
    JobKind.REENCRYPT: REENCRYPT,
    JobKind.EXPORT: EXPORT,
    JobKind.REPLAY: REPLAY,
}
