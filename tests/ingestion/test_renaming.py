"""Names that policy protects after they were stored: renamed, in whatever order, with whatever meddles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from ingestion.erasure import Erasure
from ingestion.letter_search import LetterSearch
from ingestion.replay import replay
from ingestion.set_aside import LetterWriter
from merge import codec
from merge.encoded import EncodedState
from merge.index import IndexDocument
from merge.store import FragmentWrite
from merge.tombstones import UNJUDGED
from model.errors import ConflictError, ProfileIndexError, StoreError
from model.identifiers import Identifier
from model.queries import Query, Term
from model.specs import IdentifierPlace, SpecDocument
from sinks.memory_data_keys import MemoryDataKeys
from sinks.memory_index import MemoryProfileIndex
from sinks.memory_profiles import MemoryProfileStore
from sinks.tombstone_file import TombstoneFile
from tests.retail import NOW, UNDETECTED, Pipeline, attribute, attributes, order, raw, records, snapshot, spec
from tests.sealing import sealed, sealing_of
from transforms.tombstone_names import TombstoneNames

OPEN = [attribute("identity.email")]
"""And the person's name sealed, so that there is something under the old fragment's data key."""
BEFORE = snapshot(
    1, declared=[*OPEN, attribute("identity.name", encryption="protected")], defaults=UNDETECTED
)
AFTER = snapshot(2)
PLAIN = "email:p1@example.com"


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """Orders of two persons, stored under their e-mail addresses."""
    found = Pipeline(tmp_path, snapshot=BEFORE)
    found.process([order(1), order(2, 2)])
    assert PLAIN in states(found)
    found.snapshot = AFTER
    return found


def states(pipeline: Pipeline) -> dict[str, bytes]:
    return {each.id: each.state for each in pipeline.store.scan()}


def beside(pipeline: Pipeline, known: object = AFTER) -> Pipeline:
    """Another process on the same stores."""
    found = Pipeline(pipeline.folder, pipeline.key_store, pipeline.store, pipeline.index)
    found.snapshot = AFTER if known is AFTER else BEFORE
    return found


def from_the_start(pipeline: Pipeline, *more: object) -> dict[str, bytes]:
    other = Pipeline(pipeline.folder, pipeline.key_store, snapshot=AFTER)
    other.process([order(1), order(2, 2), *more])  # type: ignore[list-item]
    return states(other)


def later(number: int = 7) -> object:
    return order(1, number, created_at=f"2024-03-0{number}T00:00:00Z", order_id=f"R{number}")


def hashed(pipeline: Pipeline, name: str = PLAIN) -> str:
    return str(pipeline.blind_index.identifier(Identifier.parse(name)))


def test_a_fragment_goes_to_its_new_name_with_all_there_is_of_it(pipeline: Pipeline) -> None:
    revealed = sorted(pipeline.export(reveal=True).split(b"\n"))
    *_, told = sealing_of(pipeline).preview()
    assert PLAIN in states(pipeline)
    done = sealed(pipeline)
    assert (done.renamed, done.fragments, done.failed) == ({"email": 2}, 2, 0)
    assert (told.renamed, told.fragments) == (done.renamed, done.fragments)
    assert done.values["identity.email"] == 2
    assert states(pipeline) == from_the_start(pipeline)
    assert sorted(pipeline.export(reveal=True).split(b"\n")) == revealed, (
        "an answer had shown the new names before"
    )
    assert pipeline.store.withdrawn() == {}
    assert pipeline.store.outbox() == []
    assert pipeline.key_store.get([PLAIN]) == {}
    assert pipeline.store.find(PLAIN) == []
    assert pipeline.index.holds([PLAIN, hashed(pipeline)]) == {hashed(pipeline)}
    assert pipeline.index.count(Query((Term("address.shipping.city", "Springfield"),))) == 2
    assert sealed(pipeline).fragments == 0


def test_what_is_there_under_the_new_name_is_joined(pipeline: Pipeline) -> None:
    pipeline.process([later()])  # type: ignore[list-item]
    assert {PLAIN, hashed(pipeline)} <= set(states(pipeline))
    sealed(pipeline)
    assert states(pipeline) == from_the_start(pipeline, later())


def test_an_old_name_that_comes_late_is_moved_by_the_next_run(pipeline: Pipeline) -> None:
    flow = beside(pipeline, BEFORE)
    flow.data_keys.fetch([PLAIN], create=False)
    sealed(pipeline)
    flow.process([later()])  # type: ignore[list-item]
    assert PLAIN in states(pipeline)
    assert pipeline.index.holds([PLAIN]) == {PLAIN}, "its version goes on behind the one that was withdrawn"
    sealed(pipeline)
    assert states(pipeline) == from_the_start(pipeline, later())
    assert b"unreadable" not in pipeline.export(reveal=True)


def test_what_an_erased_key_sealed_is_refused_and_given_again(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    flow = beside(pipeline, BEFORE)
    output = flow.map(later())  # type: ignore[arg-type]
    sealed(pipeline)
    with pytest.raises(ConflictError):
        flow.commit_stage().run(output.fragments.items())
    flow.process([later()])  # type: ignore[list-item]
    sealed(pipeline)
    assert states(pipeline) == from_the_start(pipeline, later())
    assert b"unreadable" not in pipeline.export(reveal=True)


class Meddled(MemoryProfileStore):
    """Lets something happen between what is read and what is done."""

    before_write: Callable[[], object] | None = None
    before_withdrawal: Callable[[], object] | None = None

    def write(self, writes: Sequence[FragmentWrite]) -> set[str]:
        between, self.before_write = self.before_write, None
        if between is not None:
            between()
        return super().write(writes)

    def withdraw(self, versions: Mapping[str, int]) -> set[str]:
        between, self.before_withdrawal = self.before_withdrawal, None
        if between is not None:
            between()
        return super().withdraw(versions)


@pytest.fixture
def meddled(tmp_path: Path) -> tuple[Pipeline, Meddled]:
    store = Meddled()
    found = Pipeline(tmp_path, store=store, snapshot=BEFORE)
    found.process([order(1), order(2, 2)])
    found.snapshot = AFTER
    return found, store


@pytest.mark.parametrize("under", [BEFORE, AFTER])
@pytest.mark.parametrize("when", ["before_write", "before_withdrawal"])
def test_a_flow_that_writes_in_between_loses_nothing(
    meddled: tuple[Pipeline, Meddled], under: object, when: str
) -> None:
    pipeline, store = meddled
    setattr(store, when, lambda: beside(pipeline, under).process([later()]))  # type: ignore[list-item]
    sealed(pipeline)
    assert states(pipeline) == from_the_start(pipeline, later())
    assert b"unreadable" not in pipeline.export(reveal=True)


@pytest.mark.parametrize("when", ["before_write", "before_withdrawal"])
def test_two_runs_at_once_end_as_one(meddled: tuple[Pipeline, Meddled], when: str) -> None:
    pipeline, store = meddled
    setattr(store, when, lambda: sealed(beside(pipeline)))
    done = sealed(pipeline)
    assert done.failed == 0
    assert states(pipeline) == from_the_start(pipeline)
    assert b"unreadable" not in pipeline.export(reveal=True)
    assert pipeline.store.withdrawn() == {}


@pytest.mark.parametrize("when", ["before_write", "before_withdrawal"])
def test_an_erasure_in_between_wins(meddled: tuple[Pipeline, Meddled], when: str) -> None:
    pipeline, store = meddled
    names = [PLAIN, hashed(pipeline)]
    setattr(store, when, lambda: store.erase(names, 10**15))
    sealed(pipeline)
    assert set(states(pipeline)) == {hashed(pipeline, "email:p2@example.com")}


STEPS = [
    (MemoryProfileStore, "write"),
    (MemoryProfileStore, "withdraw"),
    (MemoryProfileStore, "forget_withdrawn"),
    (MemoryProfileIndex, "put"),
    (MemoryProfileIndex, "erase"),
    (MemoryDataKeys, "delete"),
]


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize(("of", "step"), STEPS)
def test_two_crashes_and_one_retry_end_as_if_nothing_had_happened(
    of: type, step: str, is_done: bool, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = from_the_start(pipeline)
    work = getattr(of, step)
    left = 2

    def crash(self: object, *arguments: object) -> object:
        nonlocal left
        if left == 0:
            return work(self, *arguments)
        left -= 1
        if is_done:
            work(self, *arguments)
        raise StoreError("killed")

    monkeypatch.setattr(of, step, crash)
    for _ in range(2):
        # What was done before the crash the second run need not do.
        with suppress(StoreError):
            sealed(beside(pipeline))
    assert left < 2
    left = 0
    sealed(beside(pipeline))
    assert states(pipeline) == expected
    assert pipeline.store.withdrawn() == {}
    assert pipeline.key_store.get([PLAIN]) == {}
    assert pipeline.index.holds([PLAIN]) == set()
    assert b"unreadable" not in pipeline.export(reveal=True)


def test_an_index_that_is_away_is_followed_up(tmp_path: Path) -> None:
    class Away(MemoryProfileIndex):
        is_away = False

        def put(self, documents: Sequence[IndexDocument]) -> dict[str, str]:
            if self.is_away:
                raise ProfileIndexError("away")
            return super().put(documents)

        def erase(self, versions: Mapping[str, int]) -> int:
            if self.is_away:
                raise ProfileIndexError("away")
            return super().erase(versions)

    index = Away()
    pipeline = Pipeline(tmp_path, index=index, snapshot=BEFORE)
    pipeline.process([order(1)])
    pipeline.snapshot = AFTER
    index.is_away = True
    with pytest.raises(ProfileIndexError):
        sealed(pipeline)
    assert PLAIN not in states(pipeline)
    assert index.holds([PLAIN]) == {PLAIN}
    index.is_away = False
    sealed(pipeline)
    assert index.holds([PLAIN, hashed(pipeline)]) == {hashed(pipeline)}


def test_a_value_that_cannot_be_opened_keeps_its_fragment_and_the_rest_is_sealed(pipeline: Pipeline) -> None:
    pipeline.data_keys.erase([PLAIN])
    done = sealed(pipeline)
    assert (done.failed, done.named) == (1, [hashed(pipeline)])
    assert done.values["identity.email"] == 2
    assert set(states(pipeline)) == {PLAIN, hashed(pipeline, "email:p2@example.com")}
    (profile, _) = pipeline.reader().scan()
    assert "@" not in str(profile.canonical(provenance=True)), "answers hide the name all the same"


def test_a_damaged_fragment_under_the_new_name_holds_the_old_one(pipeline: Pipeline) -> None:
    name = hashed(pipeline)
    pipeline.store.write([FragmentWrite(name, 0, b"damaged", frozenset())])
    done = sealed(pipeline)
    assert done.failed == 2, "the damaged one, and the one that would be joined to it"
    assert PLAIN in states(pipeline)


def test_other_names_change_in_place(tmp_path: Path) -> None:
    opened = [each for each in attributes() if each.path == "identity.email"]
    pipeline = Pipeline(tmp_path, snapshot=snapshot(1, declared=opened, defaults=UNDETECTED))
    pipeline.process(records(80))
    before = set(states(pipeline))
    closed = snapshot(2, declared=[*attributes(), attribute("identity.deviceId", encryption="protected")])
    expected = Pipeline(tmp_path, pipeline.key_store, snapshot=closed)
    expected.process(records(80))
    pipeline.snapshot = closed
    done = sealed(pipeline)
    assert done.renamed["device_id"] > 0
    assert states(pipeline) == states(expected)
    assert before & set(states(pipeline)), "fragments with another primary identifier stay where they are"
    for name in states(pipeline):
        assert pipeline.store.identifiers(name) == expected.store.identifiers(name)


def ticket() -> SpecDocument:
    return spec(
        "orders",
        operations=({"operation": "shift", "spec": {"*": "&"}},),
        id="ticket",
        identifiers=(IdentifierPlace(type="person", path="who", primary=True),),
        mode="snapshot",
        scope="",
    )


def test_ids_of_events_are_hashed_where_they_stand(tmp_path: Path) -> None:
    given = [raw({"_event": {"ordinal": n}, "ticket": f"T{n}", "who": "p1", f"a{n}": n}, n) for n in (1, 2)]
    open_one = attribute("a1", encryption="protected")
    pipeline = Pipeline(tmp_path, snapshot=snapshot(1, [ticket()], [open_one], UNDETECTED))
    pipeline.process(given)
    assert sealed(pipeline).renamed == {}
    closed = [open_one, attribute("ticket", encryption="protected")]
    pipeline.snapshot = snapshot(2, [ticket()], closed)
    assert sealed(pipeline).renamed == {"event": 1}
    expected = Pipeline(tmp_path, pipeline.key_store, snapshot=pipeline.snapshot)
    expected.process(given)
    assert states(pipeline) == states(expected)
    assert b"T1" not in b"".join(states(pipeline).values())


def test_changes_that_waited_for_a_damaged_fragment_go_to_the_new_name(pipeline: Pipeline) -> None:
    (present,) = pipeline.store.read([PLAIN]).values()
    pipeline.store.write([FragmentWrite(PLAIN, present.version, b"damaged", frozenset())])
    flow = beside(pipeline, BEFORE)
    letters = LetterWriter(flow.sealer).of_failures(flow.process([later()]).failed, 1, flow.batch)  # type: ignore[list-item]
    assert len(letters) == 1
    resources = pipeline.resources()
    resources.dead_letters.put(letters)
    pipeline.store.write([FragmentWrite(PLAIN, present.version + 1, present.state, frozenset())])
    report = replay(letters, pipeline.plan(), resources, AFTER, pipeline.sealer.open, lambda _: None)
    resources.dead_letters.close()
    assert (report.replayed, report.still_dead) == (1, 0)
    sealed(pipeline)
    assert states(pipeline) == from_the_start(pipeline, later())
    assert pipeline.store.tombstones([PLAIN])[PLAIN].until == UNJUDGED


def test_a_letter_of_a_damaged_fragment_is_renamed_with_what_it_holds(pipeline: Pipeline) -> None:
    (present,) = pipeline.store.read([PLAIN]).values()
    pipeline.store.write([FragmentWrite(PLAIN, present.version, b"damaged", frozenset())])
    flow = beside(pipeline, BEFORE)
    letters = LetterWriter(flow.sealer).of_failures(flow.process([later()]).failed, 1, flow.batch)  # type: ignore[list-item]
    resources = pipeline.resources()
    resources.dead_letters.put(letters)
    sealed(pipeline)
    sealed(pipeline)
    (renamed,) = resources.dead_letters.scan()
    assert renamed.position == f"fragment:{hashed(pipeline)}"
    assert b"p1@example.com" not in (pipeline.folder / "dead-letters.db").read_bytes()
    # The fragment is restored, moved, and its old key gone, before the letter is given again.
    pipeline.store.write([FragmentWrite(PLAIN, present.version + 1, present.state, frozenset())])
    sealed(pipeline)
    assert pipeline.key_store.get([PLAIN]) == {}
    report = replay([renamed], pipeline.plan(), resources, AFTER, pipeline.sealer.open, lambda _: None)
    resources.dead_letters.close()
    assert (report.replayed, report.still_dead) == (1, 0)
    assert states(pipeline) == from_the_start(pipeline, later())
    assert b"unreadable" not in pipeline.export(reveal=True)


def test_a_letter_of_a_later_format_is_counted_and_holds_up_nothing(pipeline: Pipeline) -> None:
    """Beside it there is one that can be renamed."""
    (present,) = pipeline.store.read([PLAIN]).values()
    pipeline.store.write([FragmentWrite(PLAIN, present.version, b"damaged", frozenset())])
    flow = beside(pipeline, BEFORE)
    (failure,) = flow.process([later()]).failed  # type: ignore[list-item]
    body = codec.body(codec.encode(failure.change))
    of_later = failure._replace(change=EncodedState(codec.framed(body, b"\x7f")))
    resources = pipeline.resources()
    resources.dead_letters.put(LetterWriter(flow.sealer).of_failures([failure, of_later], 1, flow.batch))
    done = sealed(pipeline)
    assert done.letters == 1
    assert {each.position for each in resources.dead_letters.scan()} == {
        f"fragment:{PLAIN}", f"fragment:{hashed(pipeline)}",
    }  # fmt: skip
    assert sealed(pipeline).letters == 1
    resources.dead_letters.close()


def test_an_erased_person_is_kept_away_under_both_names(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, snapshot=BEFORE)
    pipeline.process([order(1), order(2, 2)])
    names = TombstoneNames(pipeline.provider)
    resources = pipeline.resources()
    pipeline.store = resources.store = MemoryProfileStore(names)
    pipeline.process([order(1), order(2, 2)])
    letters = LetterSearch(pipeline.sources, BEFORE, pipeline.blind_index, pipeline.sealer.open)
    erasure = Erasure(resources, TombstoneFile(tmp_path / "tombstones.jsonl"), names, lambda: letters)
    erasure.erase([PLAIN], int(NOW * 1000))
    assert pipeline.store.unfinished() == []
    pipeline.snapshot = AFTER
    assert pipeline.map(order(1), order(2, 2)).erased == 1
    sealed(pipeline)
    assert set(states(pipeline)) == {hashed(pipeline, "email:p2@example.com")}
    assert erasure.lift([PLAIN]) == 1
    assert pipeline.map(order(1)).erased == 0
    resources.dead_letters.close()
