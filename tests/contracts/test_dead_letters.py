"""What every dead-letter store promises (`idgraph.model.dead_letters.DeadLetters`)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from idgraph.model.dead_letters import DeadLetter, DeadLetterReason, DeadLetters
from idgraph.model.errors import StoreError
from tests.contracts.implementations import DEAD_LETTERS, Implementation


@pytest.fixture(params=DEAD_LETTERS, ids=str)
def letters(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DeadLetters]:
    implementation: Implementation[DeadLetters] = request.param
    with implementation.opened(tmp_path) as letters:
        yield letters


def letter(
    letter_id: str,
    reason: DeadLetterReason = DeadLetterReason.NOT_JSON,
    source: str = "web",
    batch: str = "flow/1",
    attempt: str = "one",
) -> DeadLetter:
    return DeadLetter(
        id=letter_id,
        reason=reason,
        stage="decode",
        detail="at byte 3",
        source=source,
        position="file:x#1",
        spec=None,
        snapshot_version=7,
        batch=batch,
        attempt=attempt,
        payload=b"\x00sealed\xff",
        set_aside_at=1_700_000_000_000,
    )


def test_a_letter_comes_back_as_it_was_put(letters: DeadLetters) -> None:
    put = letter("a", DeadLetterReason.NO_SPEC)._replace(spec="orders@3", payload=b"", detail="")
    letters.put([put, letter("é'\"")])
    assert letters.get("a") == put
    assert isinstance(put.reason, DeadLetterReason)
    assert letters.get("é'\"") == letter("é'\"")
    assert letters.get("b") is None


def test_the_same_id_replaces(letters: DeadLetters) -> None:
    letters.put([letter("a")])
    letters.put([letter("a", DeadLetterReason.NO_SPEC, attempt="two")])
    assert list(letters.scan()) == [letter("a", DeadLetterReason.NO_SPEC, attempt="two")]
    assert letters.counts() == {"no_spec": 1}


def test_scan_gives_all_in_order_by_reason_and_source(letters: DeadLetters) -> None:
    reasons = [DeadLetterReason.NOT_JSON, DeadLetterReason.NO_SPEC]
    put = [letter(f"{number:03}", reasons[number % 2], f"source{number % 3}") for number in range(450)]
    letters.put(list(reversed(put)))
    assert list(letters.scan()) == put
    assert list(letters.scan(reason="no_spec")) == put[1::2]
    assert list(letters.scan(source="source2")) == put[2::3]
    assert list(letters.scan("no_spec", "source0")) == put[3::6]
    assert list(letters.scan(reason="unknown")) == []
    assert letters.counts() == {"no_spec": 225, "not_json": 225}
    assert letters.counts("source1") == {"no_spec": 75, "not_json": 75}
    assert letters.counts("unknown") == {}


def test_scan_gives_all_whatever_they_weigh(letters: DeadLetters) -> None:
    put = [letter(f"{number:03}")._replace(payload=b"x" * (3 << 20)) for number in range(5)]
    put.append(letter("005"))
    letters.put(put)
    assert list(letters.scan()) == put


def test_letters_may_be_dropped_while_they_are_read(letters: DeadLetters) -> None:
    letters.put([letter(f"{number:03}") for number in range(250)])
    for each in letters.scan():
        assert letters.drop([each.id]) == 1
    assert letters.counts() == {}


def test_settling_a_batch_drops_only_its_earlier_attempts(letters: DeadLetters) -> None:
    of_fragment = letter("a")._replace(position="fragment:u:1")
    dropped = letter("f")
    others = [letter("b"), letter("c", batch="flow/10"), letter("d", batch="other/1")]
    letters.put([of_fragment, dropped, *others])
    # The second attempt found b again, and e.
    letters.put([letter("b", attempt="two"), letter("e", attempt="two")])
    assert letters.settle_batch("flow/1", "two") == {"a": "fragment:u:1"}
    assert [each.id for each in letters.scan()] == ["b", "c", "d", "e"]
    assert letters.settle_batch("flow/1", "two") == {}


def test_letters_are_found_by_their_positions(letters: DeadLetters) -> None:
    put = {f"{number:04}": f"fragment:u:{number // 2}" for number in range(1200)}
    letters.put([letter(each)._replace(position=where) for each, where in put.items()])
    wanted = [f"fragment:u:{number}" for number in range(100, 700)]
    assert letters.at(wanted) == {each: where for each, where in put.items() if where in wanted}
    assert letters.at(["file:x#1"]) == letters.at([]) == {}


def test_drop_gives_how_many_there_were(letters: DeadLetters) -> None:
    letters.put([letter("a"), letter("b")])
    assert letters.drop(["a", "c"]) == 1
    assert letters.drop([]) == 0
    assert [each.id for each in letters.scan()] == ["b"]


def test_no_byte_of_an_erased_letter_is_left_in_a_file(letters: DeadLetters, tmp_path: Path) -> None:
    secret = b"the only copy of this payload"
    letters.put([letter(f"{number:03}") for number in range(100)])
    letters.put([letter("a")._replace(payload=secret, position="file:the-only-copy#1")])
    letters.put([letter("b")._replace(payload=secret)])
    letters.drop(["b"])

    def is_seen() -> bool:
        return any(
            b"the-only" in each or secret in each for each in map(Path.read_bytes, tmp_path.rglob("*"))
        )

    assert is_seen()
    assert letters.drop(["a", "c"]) == 1
    letters.compact()
    assert not is_seen()
    assert letters.counts() == {"not_json": 100}


def test_nothing_to_put(letters: DeadLetters) -> None:
    letters.put([])
    assert letters.counts() == {}
    assert list(letters.scan()) == []


def test_threads_put_at_once(letters: DeadLetters) -> None:
    with ThreadPoolExecutor(4) as pool:
        for _ in pool.map(lambda each: letters.put([letter(f"{each}"), letter("shared")]), range(40)):
            pass
    assert letters.counts() == {"not_json": 41}


def test_a_closed_store_says_so(letters: DeadLetters) -> None:
    letters.close()
    letters.close()
    for use in (
        lambda: letters.put([letter("a")]),
        lambda: letters.get("a"),
        letters.counts,
        lambda: list(letters.scan()),
        lambda: letters.drop(["a"]),
        letters.compact,
        lambda: letters.settle_batch("flow/1", "one"),
    ):
        with pytest.raises(StoreError, match="closed"):
            use()


@pytest.mark.parametrize("implementation", [each for each in DEAD_LETTERS if each.durable], ids=str)
def test_letters_are_there_when_opened_again(
    implementation: Implementation[DeadLetters], tmp_path: Path
) -> None:
    first, second = implementation.open(tmp_path), implementation.open(tmp_path)
    first.put([letter("a")])
    assert second.get("a") == letter("a")
    first.close()
    second.close()
    third = implementation.open(tmp_path)
    assert list(third.scan()) == [letter("a")]
    third.close()
