"""The set of deliveries of triggers: crashes, replays and doubled events change nothing in it, nor do merges and splits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)

from idgraph.model.attributes import Catalogue
from idgraph.model.errors import StoreError
from idgraph.model.events import RawRecord
from idgraph.model.ledger import Crossing
from idgraph.model.pins import PinRecord
from idgraph.model.queries import Exists, Not, Term
from idgraph.model.snapshots import PinnedSnapshot
from idgraph.model.triggers import TriggerDocument
from idgraph.projection.projection import Projection
from profile_service.api.trigger_decisions import Decisions
from profile_service.service import ProfileService
from profile_service.trigger_ledger import TriggerLedger
from sinks.document_folder import DocumentFolder
from tests.lanes import examples, is_thorough
from tests.profile_service.api.test_segments import segment, with_segments
from tests.retail import Pipeline, raw

pytestmark = pytest.mark.slow

USERS = "abcd"
PLATFORMS = ("ios", "android", "web")
SEGMENTS = (
    segment("ios", Term("activity.platform", "ios")),
    segment("persona-without-ios", Exists("shop.persona"), Not(Term("activity.platform", "ios"))),
)


def trigger(name: str, when: dict[str, str], **more: Any) -> TriggerDocument:
    content = {"name": name, "version": 1, "when": when, "webhook": "crm", **more}
    return TriggerDocument.model_validate(content)


TRIGGERS = (
    *(
        trigger(f"{on}-{number}", {"segment": each.name, "on": on})
        for number, each in enumerate(SEGMENTS)
        for on in ("entered", "left")
    ),
    trigger("changes-0", {"attribute": "activity.platform", "on": "changes"}),
    trigger("capped-0", {"segment": "ios"}, limits=[{"most": 1, "calendar": "year"}], group={"name": "g"}),
    trigger("grouped-0", {"segment": "ios"}, group={"name": "g", "limits": [{"most": 2, "per": "7d"}]}),
)


def event(user: str, number: int, days_ago: float, **content: Any) -> RawRecord:
    # Later numbers are later events of the same day.
    moment = time.gmtime(time.time() - days_ago * 86_400 - 3600 + number)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000000+00:00", moment)
    given = {"timestamp": stamp, "userId": user, "type": "identify", "messageId": f"{number}", **content}
    return raw(given, source="segment")


class Following:
    """What the service has of the metadata service."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def edition(self) -> PinnedSnapshot:
        return PinnedSnapshot("1", self._pipeline.snapshot)

    def catalogue(self) -> Catalogue:
        return Catalogue.of(self._pipeline.snapshot.attributes)


class World:
    """A pipeline with a follower of its feed."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.pipeline = Pipeline(folder, now=time.time)
        self.pipeline.snapshot = with_segments(self.pipeline.snapshot, *SEGMENTS).model_copy(
            update={"triggers": TRIGGERS}
        )
        self.service = ProfileService(self.pipeline, Following(self.pipeline), None)  # type: ignore[arg-type]
        self.documents = DocumentFolder(folder)
        self.ledger = TriggerLedger(self.documents)
        self.cursor = ""
        # Triggers are there before anybody is.
        self.project()

    def close(self) -> None:
        self.documents.close()

    def commit(self, events: Sequence[RawRecord]) -> None:
        pipeline = self.pipeline
        outputs = list(pipeline.map_stage().run(events))
        pipeline.commit_stage().run(item for output in outputs for item in output.encoded())

    def pin(self, pair: tuple[str, str], number: int, decision: str) -> None:
        store = self.pipeline.store
        low, high = (f"user_id:{each}" for each in sorted(pair))
        store.add_pins([PinRecord(low, high, number, decision)])
        store.enqueue([each for each in (low, high) if each in set(store.ids())])

    def project(self) -> None:
        Projection(self.pipeline.store, self.pipeline.index, self.pipeline.rules).sweep()

    def follow(self, again_from: int | None = None) -> None:
        """Decide on what is new in the feed, or again from an earlier place."""
        cursor = self.cursor if again_from is None else ""
        entries = self.pipeline.store.ledger(cursor, 100_000)
        for each in entries[again_from or 0 :]:
            if isinstance(each, Crossing):
                Decisions(self.service, {"crm": 0}, self.ledger, TRIGGERS).decide([each])
        if entries:
            self.cursor = entries[-1].cursor

    def die_following(self, after: int) -> None:
        """The process that decides ends behind some writes, and another one begins."""
        writes = iter(range(after))

        def died(*_: Any) -> None:
            if next(writes, None) is None:
                raise StoreError("killed")
            write(*_)

        write = self.documents.write
        with pytest.MonkeyPatch.context() as patch, suppress(StoreError):
            patch.setattr(self.documents, "write", died)
            self.follow()
        self.ledger = TriggerLedger(self.documents)

    def delivered(self, number: str = "") -> set[str]:
        """Those of all triggers, or of those of a segment."""
        lines = (each.line for each in self.ledger.waiting())
        return {each.id for each in lines if each.trigger.endswith(number)}

    @contextmanager
    def killed_in(self, name: str, after: int) -> Iterator[None]:
        """The process ends in a call of the store, of which `after` crossings take effect."""
        store = self.pipeline.store
        method = getattr(store, name)

        def killed(given: Sequence[Any]) -> Any:
            if after:
                method(given[:after])
            raise StoreError("killed")

        with pytest.MonkeyPatch.context() as patch, suppress(StoreError):
            patch.setattr(store, name, killed)
            yield


class TriggerMachine(RuleBasedStateMachine):
    """The same in a tidy world, where each step is projected and followed at once, and in one where processes die, events come
    again and the feed is read again."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.tidy, self.other = (World(Path(self.folder.name) / each) for each in ("tidy", "other"))
        self.sent: list[RawRecord] = []
        self.number = 0
        self.is_fresh = False
        self.reported: set[str] = set()

    def teardown(self) -> None:
        self.tidy.close()
        self.other.close()
        self.folder.cleanup()

    def _both(self, act: Callable[[World], object]) -> None:
        for each in (self.tidy, self.other):
            act(each)

    @rule(user=st.sampled_from(USERS), platform=st.sampled_from(PLATFORMS), is_late=st.booleans())
    def happen(self, user: str, platform: str, is_late: bool) -> None:
        self.number += 1
        one = event(user, self.number, 3.0 if is_late else 0.0, platform=platform)
        self._both(lambda world: world.commit([one]))
        self.sent.append(one)
        self.is_fresh = self.is_fresh or not is_late

    @rule(user=st.sampled_from(USERS))
    def buy(self, user: str) -> None:
        """The other attribute, which may be of another part of the person."""
        self.number += 1
        one = event(user, self.number, 0.0, traits={"persona": "p"})
        self._both(lambda world: world.commit([one]))
        self.sent.append(one)
        self.is_fresh = True

    @rule(
        pair=st.sampled_from([("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")]),
        decision=st.sampled_from(["always", "never"]),
    )
    def decide(self, pair: tuple[str, str], decision: str) -> None:
        self.number += 1
        number = self.number
        self._both(lambda world: world.pin(pair, number, decision))

    @rule(data=st.data())
    @precondition(lambda self: self.sent)
    def come_again(self, data: st.DataObject) -> None:
        """In any order; only the other world sees it."""
        again = data.draw(st.lists(st.sampled_from(range(len(self.sent))), max_size=4))
        self.other.commit([self.sent[each] for each in again])

    @rule(
        kills=st.lists(
            st.tuples(st.sampled_from(["assign", "cross", "settle"]), st.integers(0, 2)), max_size=2
        ),
        again_from=st.none() | st.integers(0, 20),
        dies_after=st.none() | st.integers(0, 5),
    )
    def project(self, kills: list[tuple[str, int]], again_from: int | None, dies_after: int | None) -> None:
        self.tidy.project()
        self.tidy.follow()
        for name, after in kills:
            with self.other.killed_in(name, after):
                self.other.project()
        self.other.project()
        if dies_after is not None:
            self.other.die_following(dies_after)
        self.other.follow()
        self.other.follow(again_from)
        assert self.other.delivered() == self.tidy.delivered()
        # The other segment asks for a second attribute, which may be fresh behind a late change.
        now = self.tidy.delivered("-0")
        assert self.is_fresh or now == self.reported
        assert self.reported <= now
        self.is_fresh, self.reported = False, now


def test_the_deliveries_are_the_same_whatever_goes_wrong() -> None:
    run_state_machine_as_test(
        TriggerMachine,
        settings=settings(
            max_examples=examples(100, 15),
            stateful_step_count=20,
            phases=[Phase.generate],
            deadline=None,
            derandomize=not is_thorough(),
            suppress_health_check=list(HealthCheck),
        ),
    )
