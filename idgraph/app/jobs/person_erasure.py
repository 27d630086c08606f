"""The erasure of named persons, as the command line and the profile service start it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from idgraph.jobs.erase.erasure import Erased, Erasure, ErasureJob
from idgraph.jobs.erase.receipt import receipt
from idgraph.model.jobs import Requester
from idgraph.model.tombstones import NO_EPOCH
from ingestion.spark.workers import WorkerResources


class PersonErasure:
    """What an erasure would remove (`found`), the job that removes it, and its receipt."""

    def __init__(
        self, resources: WorkerResources, erasure: Erasure, ids: Iterable[str], asked: Mapping[str, str]
    ) -> None:
        """`ids` are the persons' fragments; `asked` are stored forms of the given identifiers, each with its text."""
        self._store = resources.store
        self._erasure = erasure
        self._asked = asked
        self._cut_short = erasure.cut_short({*asked, *ids})
        self.ids = sorted({*ids, *self._cut_short})
        self.named = sorted({*self.ids, *asked})
        """Events in progress and dead letters can make a fragment of each given name."""
        self.found = erasure.preview(self.named, asked)
        self.receipt: dict[str, Any] = {}
        """Of the job, once it has ended."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is there to erase."""
        return not self.ids and not any(self.found.counts._replace(possible_dead_letters=0))

    def was_erased(self) -> bool:
        """Whether events of a given name are refused already."""
        return any(each.until > NO_EPOCH for each in self._store.tombstones(self.named).values())

    def job(
        self,
        origin: Requester,
        max_future_skew_seconds: int,
        keep: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> ErasureJob:
        """The job, to be run once. `keep` gets its receipt before the job ends."""
        moment = datetime.now(UTC)
        until = int((moment.timestamp() + max_future_skew_seconds) * 1000)
        asked, names = set(self._asked.values()), self._erasure.names

        def erase() -> Erased:
            done = Erased()
            if self._store.unfinished():
                # What was killed may have reached some of a person's fragments, and nothing leads to the others any more.
                done = self._erasure.again()
            rest = self._erasure.erase(self.named, until, self._asked)
            erased = done.plus(rest) if self._cut_short else rest
            cut_short = bool(self._cut_short)
            self.receipt = receipt(moment, origin, until, self.named, asked, names, erased, cut_short)
            keep(self.receipt)
            return erased

        return ErasureJob("erase", self.named, names, erase)
