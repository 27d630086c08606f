"""The job that adds features to a file of labels."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from idgraph.jobs.export import members
from idgraph.jobs.export_file import require_place, write_export
from idgraph.jobs.job import Job, Plan, Run
from idgraph.jobs.kind import JobContext
from idgraph.model.documents import StrictDocument
from idgraph.model.errors import ConfigError
from idgraph.model.jobs import JobKind, JobType, Point

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

LABELS_AT_ONCE = 100_000
SPREAD_AT_ONCE = 1_000_000
"""The same where Spark's tasks share them."""


class FeaturesParameters(StrictDocument):
    """A file of labels, and the columns to add: as of `Features`."""

    labels: Path
    output: Path
    columns: list[str]
    segment: str | None = None
    clearance: int = Field(default=100, ge=0, le=100)
    complete: bool = False


class FeaturesJob(Job):
    """Labels with features, in a new file. It cannot resume: a file is written whole or not at all."""

    kind = JobKind.FEATURES

    def __init__(self, parameters: FeaturesParameters, context: JobContext) -> None:
        """Raises ConfigError, QueryError."""
        # Arrow is slow to load, and the table of jobs is read for each command.
        from idgraph.jobs.features.columns import Features, require_labels
        from idgraph.jobs.features.files import LabelFile, form_of
        from idgraph.jobs.features.spread import AskedFeatures

        self.target = str(parameters.output.absolute())
        self._output, self._form = parameters.output, form_of(parameters.output)
        require_place(parameters.output)
        self._labels = LabelFile(parameters.labels)
        self._reader = context.reader.with_clearance(parameters.clearance)
        self._context, self._clearance = context, parameters.clearance
        segment = parameters.segment
        among = (
            None if segment is None else {each.id for each in members(self._reader, segment, reveal=False)}
        )
        names = list(dict.fromkeys(parameters.columns))
        require_labels(self._labels.schema, names)
        self._asked = AskedFeatures(names, among, parameters.complete)
        self._features = Features(self._reader, *self._asked)
        self.what = parameters.model_dump(mode="json", exclude={"output"}) | {"output": self.target}

    def plan(self, _point: Point) -> Plan:
        return Plan("the computation of features", self._labels.rows, "label")

    def work(self, run: Run) -> None:
        from idgraph.jobs.features.columns import report
        from idgraph.jobs.features.files import encoded

        schema = self._labels.schema
        for field in self._features.schema:
            schema = schema.append(field)
        write_export(self._output, encoded(self._form, schema, self._tables(run)))
        for line in report(self._features.counts):
            log.warning("%s", line)
        if damaged := sorted(set(self._reader.damaged)):
            log.warning("left out, since their stored state is damaged: %s", ", ".join(damaged))
        run.progress.counts.update(+self._features.counts)

    def _tables(self, run: Run) -> Iterator[pa.Table]:
        from idgraph.jobs.features.columns import labels, with_features
        from idgraph.jobs.features.spread import SpreadFeatures

        with ExitStack() as stack:
            columns, at_once = self._features.columns, LABELS_AT_ONCE
            if (spark := self._spark()) is not None:
                session, own = stack.enter_context(spark), (self._asked, self._features)
                columns = SpreadFeatures(session, self._context, self._clearance, *own, run).columns
                at_once = SPREAD_AT_ONCE
            for table in self._labels.tables(at_once):
                yield with_features(table, columns(*labels(table)))
                run.progress.done += len(table)
                run.page({})

    def _spark(self) -> AbstractContextManager[Any] | None:
        """None where this process is as quick, or there is no Java for it."""
        if self._labels.rows < self._context.spread_from:
            return None
        try:
            return self._context.spark("features")
        except ConfigError:
            return None


FEATURES = JobType(
    "adds derived attributes to labels, each as of its time",
    "idgraph features",
    FeaturesParameters,
    FeaturesJob,
)
