"""Sealing what a pipeline has stored, as `idgraph seal` does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from idgraph.jobs.reencrypt.stored_sealing import PAGE, StoredSealing
from idgraph.model.jobs import Progress
from ingestion.spark.workers import WorkerResources
from tests.retail import Pipeline
from transforms.spec.mapping import CompiledSnapshot


@dataclass
class Sealed:
    """What a sealing counted so far."""

    total: int
    progress: Progress = field(default_factory=Progress)

    @property
    def looked_at(self) -> int:
        return self.progress.done

    @property
    def fragments(self) -> int:
        return self.progress.counts["fragments"]

    @property
    def failed(self) -> int:
        return self.progress.counts["failed"]

    @property
    def named(self) -> list[str]:
        return self.progress.notes.get("failed", [])

    @property
    def dead_letters(self) -> int:
        return self.progress.counts["dead_letters"]

    @property
    def values(self) -> Counter[str]:
        return self.progress.parts("values")

    @property
    def renamed(self) -> Counter[str]:
        return self.progress.parts("renamed")

    @property
    def readable(self) -> Counter[str]:
        return self.progress.parts("readable")


def sealing_of(pipeline: Pipeline) -> StoredSealing:
    """The sealing under the pipeline's present snapshot; retries do not wait."""
    return _sealing(pipeline, pipeline.resources())


def steps(pipeline: Pipeline, sealing: StoredSealing, page: int = PAGE) -> Iterator[Sealed]:
    """Seal page by page, without the last step; gives what was counted at the start and after each page."""
    done = Sealed(pipeline.store.count())
    yield done
    for _ in sealing.run(done.progress, page):
        yield done


def previewed(pipeline: Pipeline) -> Sealed:
    """What would be sealed."""
    found = Sealed(pipeline.store.count())
    for _ in sealing_of(pipeline).preview(found.progress):
        pass
    return found


def sealed(pipeline: Pipeline, page: int = PAGE) -> Sealed:
    """Seal all that is stored; gives how it ended."""
    resources = pipeline.resources()
    try:
        sealing = _sealing(pipeline, resources)
        *_, done = steps(pipeline, sealing, page)
        sealing.finish()
        return done
    finally:
        resources.dead_letters.close()


def _sealing(pipeline: Pipeline, resources: WorkerResources) -> StoredSealing:
    return StoredSealing(resources, CompiledSnapshot(pipeline.snapshot), sleep=lambda _: None)
