"""Kept answers to look-ups are those that would be read now, whatever happened in between."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from idgraph.jobs.erase.dead_letter_search import DeadLetterSearch
from idgraph.jobs.erase.erasure import Erasure
from idgraph.model import canonical
from idgraph.model.attributes import Catalogue
from idgraph.model.identifiers import Identifier
from idgraph.model.snapshots import PinnedSnapshot
from idgraph.web.audit import PURPOSE, AuditFile, AuditLog
from merge.identity.resolve import Decision
from profile_service.links import Links
from profile_service.service import ProfileService
from profile_service.visibility import NOTHING_GRANTED
from profile_service.wanted import MASKED, Plain, PlainAnswers, Question
from sinks.sqlite.profiles import SqliteProfileStore
from sinks.tombstone_file import TombstoneFile
from tests.profile_service.api.conftest import caller, identified, with_levels
from tests.retail import NOW, Pipeline
from transforms.privacy.protected_names import TombstoneNames

USERS, EMAILS = ("1", "2", "3"), ("a@example.com", "b@example.com")
LEVELS: tuple[dict[str, int], ...] = ({}, {"identity.userId": 60}, {"identity.email": 30})
CLEARANCES = (0, 50, 100)
ASKED = [Identifier("user_id", each) for each in USERS] + [Identifier("email", each) for each in EMAILS]

people = st.tuples(st.sampled_from(USERS), st.sampled_from(EMAILS))
acts = st.one_of(
    st.tuples(st.just("event"), people),
    st.tuples(st.just("erase"), st.sampled_from(USERS)),
    st.tuples(st.just("pin"), st.tuples(people, st.sampled_from((Decision.NEVER, Decision.ALWAYS)))),
    st.tuples(st.just("levels"), st.sampled_from(LEVELS)),
    st.tuples(st.just("nothing"), st.none()),
)


class Shop:
    """A store with the service on it, and what can happen to both."""

    def __init__(self, folder: Path) -> None:
        self.pipeline = Pipeline(folder, snapshot=with_levels({}))
        names = TombstoneNames(self.pipeline.provider)
        self.pipeline.store = SqliteProfileStore(folder / "profiles.db", names)
        self._tombstones = TombstoneFile(folder / "tombstones.jsonl")
        self._names = names
        self._moments = count(int(NOW * 1000))
        self._edition = 0
        audit = AuditLog(AuditFile(folder / "audit.jsonl"), self.pipeline.provider.purpose_key(PURPOSE))
        following: Any = self
        self.service = ProfileService(self.pipeline, following, audit, is_local=True)

    def edition(self) -> PinnedSnapshot:
        return PinnedSnapshot(str(self._edition), self.pipeline.snapshot)

    def catalogue(self) -> Catalogue:
        return Catalogue.of(self.pipeline.snapshot.attributes)

    def event(self, told: tuple[str, str]) -> None:
        self.pipeline.process([identified(*told)])

    def erase(self, user: str) -> None:
        pipeline = self.pipeline
        search = DeadLetterSearch(
            pipeline.sources, pipeline.snapshot, pipeline.blind_index, pipeline.sealer.open
        )
        erasure = Erasure(pipeline.resources(), self._tombstones, self._names, lambda: search, pipeline.rules)
        erasure.erase([f"user_id:{user}"], next(self._moments))

    def pin(self, told: tuple[tuple[str, str], Decision]) -> None:
        (user, email), decision = told
        links = Links(self.pipeline.store, self.pipeline.reader())
        one, other = links.stored(Identifier("user_id", user)), links.stored(Identifier("email", email))
        if one and other:
            links.keep(links.decide([(one, other, decision)], next(self._moments), "ann", "asked"))

    def levels(self, levels: dict[str, int]) -> None:
        self.pipeline.snapshot = with_levels(levels)
        self._edition += 1

    def nothing(self, _: None) -> None:
        pass


@settings(max_examples=40)
@given(st.lists(acts, min_size=1, max_size=12))
def test_an_answer_that_was_kept_is_the_one_that_would_be_read(happening: list[tuple[str, Any]]) -> None:
    bodies: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as folder:
        shop = Shop(Path(folder))
        with closing(shop.pipeline.store):
            for name, told in happening:
                act: Callable[[Any], None] = getattr(shop, name)
                act(told)
                for clearance in CLEARANCES:
                    for asked in ASKED:
                        read = shop.pipeline.reader().with_clearance(clearance).owners(asked).persons
                        found = shop.service.plain(caller("any", clearance), asked, lambda _: False)
                        assert (found is not None) == (len(read) == 1)
                        if found is not None:
                            (profile,) = shop.pipeline.reader().with_clearance(clearance).lookup(asked)
                            assert found.body == canonical.encode(MASKED.document(profile))
                            assert bodies.setdefault(found.etag, found.body) == found.body


def test_answers_are_kept_while_nothing_changes_and_within_their_bytes() -> None:
    def keep(answers: PlainAnswers, changes: int, *names: str) -> None:
        for name in names:
            answers.get(changes, question(name))
            answers.keep(changes, question(name), Plain(f'"{name}"', b"x" * 400))

    def question(name: str) -> Question:
        return Question(Identifier("user_id", name), "1", 0, NOTHING_GRANTED)

    answers = PlainAnswers(most_bytes=2500)
    keep(answers, 1, "a", "b", "c")
    assert answers.get(1, question("a")) is None
    assert answers.get(1, question("c")) == Plain('"c"', b"x" * 400)
    answers.keep(0, question("d"), Plain('"d"', b""))
    assert answers.get(1, question("d")) is None, "it was read before the last change"
    assert answers.get(2, question("c")) is None
    assert answers.get(2, question("c")) is None
