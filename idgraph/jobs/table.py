"""All kinds of jobs: a new kind is one module and one line here, under its name in `JobKind`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from idgraph.jobs.access import ACCESS
from idgraph.jobs.backfill import BACKFILL
from idgraph.jobs.erase.persons import ERASE
from idgraph.jobs.export import EXPORT
from idgraph.jobs.features.job import FEATURES
from idgraph.jobs.preview import PREVIEW
from idgraph.jobs.reconcile import RECONCILE
from idgraph.jobs.reencrypt.policy_change import REENCRYPT
from idgraph.jobs.reindex import REINDEX
from idgraph.jobs.replay import REPLAY
from idgraph.jobs.resolve import RESOLVE
from idgraph.jobs.rotate import ROTATE
from idgraph.jobs.suggestions import SUGGEST
from idgraph.model.jobs import JobKind, JobType

JOBS: Mapping[JobKind, JobType[Any, Any]] = {
    JobKind.REINDEX: REINDEX,
    JobKind.RECONCILE: RECONCILE,
    JobKind.REENCRYPT: REENCRYPT,
    JobKind.EXPORT: EXPORT,
    JobKind.FEATURES: FEATURES,
    JobKind.REPLAY: REPLAY,
    JobKind.BACKFILL: BACKFILL,
    JobKind.RESOLVE: RESOLVE,
    JobKind.ROTATE: ROTATE,
    JobKind.ACCESS: ACCESS,
    JobKind.ERASE: ERASE,
    JobKind.PREVIEW: PREVIEW,
    JobKind.SUGGEST: SUGGEST,
}
