"""Events taken by the same stages as in the flow, into embedded stores, in this process: nothing gets in their way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace

import pyarrow as pa

from idgraph.app import metadata_access, wiring
from idgraph.app.settings.document import load
from ingestion.spark.sent_snapshots import SentSnapshot, packed
from ingestion.spark.shuffle_blocks import decode_reports
from ingestion.spark.tasks import quick_task
from ingestion.spark.worker_process import BatchOrder
from ingestion.stages.dead_letters import BatchAttempt
from ingestion.stages.outcomes import StageReport
from tests.installation import Installation
from transforms.schema.diff import AttributeTree


def take(installation: Installation, lines: Mapping[str, Iterable[bytes]]) -> StageReport:
    """Publish lines by source as files, and take them as one task; the flow has no part in it."""
    paths = [installation.publish(source, some).as_uri() for source, some in lines.items()]
    settings = load(installation.config)
    wiring.prepare_directory(settings)
    pinned = metadata_access.newest_snapshot(settings)
    assert pinned
    snapshot = SentSnapshot(pinned.etag, SimpleNamespace(value=packed(pinned.snapshot)))
    order = BatchOrder(BatchAttempt("undisturbed/0", "1"), snapshot, is_last=True)
    task = quick_task(wiring.worker_plan(settings), order)
    files = pa.record_batch([pa.array(paths)], names=["path"])
    report = decode_reports(body for rows in task([files]) for body in rows.column(1).to_pylist())
    with wiring.opened(settings) as resources:
        resources.projection(lambda: AttributeTree(pinned.snapshot).index_rules).sweep()
    return report
