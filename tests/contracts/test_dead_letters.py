"""The promises of every dead-letter store (`idgraph.model.dead_letters.DeadLetters`)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from idgraph.model.dead_letters import DeadLetter, DeadLetterReason, DeadLetters
from idgraph.model.errors import StoreError
from tests.contracts.implementations import DEAD_LETTERS, Implementation


@pytest.fixture(params=DEAD_LETTERS, ids=str)
def dead_letters(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DeadLetters]:
    implementation: Implementation[DeadLetters] = request.param
    with implementation.opened(tmp_path) as dead_letters:
        yield dead_letters


def dead_letter(
    dead_letter_id: str,
    reason: DeadLetterReason = DeadLetterReason.NOT_JSON,
    source: str = "web",
    batch: str = "flow/1",
    attempt: str = "one",
) -> DeadLetter:
    return DeadLetter(
        id=dead_letter_id,
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


def test_a_dead_letter_comes_back_as_it_was_put(dead_letters: DeadLetters) -> None:
    put = dead_letter("a", DeadLetterReason.NO_SPEC)._replace(spec="orders@3", payload=b"", detail="")
    dead_letters.put([put, dead_letter("é'\"")])
    assert dead_letters.get("a") == put
    assert isinstance(put.reason, DeadLetterReason)
    assert dead_letters.get("é'\"") == dead_letter("é'\"")
    assert dead_letters.get("b") is None


def test_the_same_id_replaces(dead_letters: DeadLetters) -> None:
    dead_letters.put([dead_letter("a")])
    dead_letters.put([dead_letter("a", DeadLetterReason.NO_SPEC, attempt="two")])
    assert list(dead_letters.scan()) == [dead_letter("a", DeadLetterReason.NO_SPEC, attempt="two")]
    assert dead_letters.counts() == {"no_spec": 1}


def test_scan_gives_all_in_order_by_reason_and_source(dead_letters: DeadLetters) -> None:
    reasons = [DeadLetterReason.NOT_JSON, DeadLetterReason.NO_SPEC]
    put = [dead_letter(f"{number:03}", reasons[number % 2], f"source{number % 3}") for number in range(450)]
    dead_letters.put(list(reversed(put)))
    assert list(dead_letters.scan()) == put
    assert list(dead_letters.scan(reason="no_spec")) == put[1::2]
    assert list(dead_letters.scan(source="source2")) == put[2::3]
    assert list(dead_letters.scan("no_spec", "source0")) == put[3::6]
    assert list(dead_letters.scan(reason="unknown")) == []
    assert dead_letters.counts() == {"no_spec": 225, "not_json": 225}
    assert dead_letters.counts("source1") == {"no_spec": 75, "not_json": 75}
    assert dead_letters.counts("unknown") == {}


def test_the_newest_come_first_without_their_payloads(dead_letters: DeadLetters) -> None:
    put = [dead_letter(f"{n:03}")._replace(set_aside_at=1_000 + n // 3) for n in range(50)]
    dead_letters.put(put)
    expected = [each._replace(payload=b"") for each in reversed(put)]
    assert dead_letters.newest(100) == expected
    found = dead_letters.newest(7)
    while more := dead_letters.newest(7, (found[-1].set_aside_at, found[-1].id)):
        found += more
    assert found == expected


def test_scan_gives_all_whatever_they_weigh(dead_letters: DeadLetters) -> None:
    put = [dead_letter(f"{number:03}")._replace(payload=b"x" * (3 << 20)) for number in range(5)]
    put.append(dead_letter("005"))
    dead_letters.put(put)
    assert list(dead_letters.scan()) == put


def test_dead_letters_may_be_dropped_while_they_are_read(dead_letters: DeadLetters) -> None:
    dead_letters.put([dead_letter(f"{number:03}") for number in range(250)])
    for each in dead_letters.scan():
        assert dead_letters.drop([each.id]) == 1
    assert dead_letters.counts() == {}


def test_settling_a_batch_drops_only_its_earlier_attempts(dead_letters: DeadLetters) -> None:
    of_fragment = dead_letter("a")._replace(position="fragment:u:1")
    dropped = dead_letter("f")
    others = [dead_letter("b"), dead_letter("c", batch="flow/10"), dead_letter("d", batch="other/1")]
    dead_letters.put([of_fragment, dropped, *others])
    # The second attempt found b again, and e.
    dead_letters.put([dead_letter("b", attempt="two"), dead_letter("e", attempt="two")])
    assert dead_letters.settle_batch("flow/1", "two") == {"a": "fragment:u:1"}
    assert [each.id for each in dead_letters.scan()] == ["b", "c", "d", "e"]
    assert dead_letters.settle_batch("flow/1", "two") == {}


def test_dead_letters_are_found_by_their_positions(dead_letters: DeadLetters) -> None:
    put = {f"{number:04}": f"fragment:u:{number // 2}" for number in range(1200)}
    dead_letters.put([dead_letter(each)._replace(position=where) for each, where in put.items()])
    wanted = [f"fragment:u:{number}" for number in range(100, 700)]
    assert dead_letters.at(wanted) == {each: where for each, where in put.items() if where in wanted}
    assert dead_letters.at(["file:x#1"]) == dead_letters.at([]) == {}


def test_drop_gives_how_many_there_were(dead_letters: DeadLetters) -> None:
    dead_letters.put([dead_letter("a"), dead_letter("b")])
    assert dead_letters.drop(["a", "c"]) == 1
    assert dead_letters.drop([]) == 0
    assert [each.id for each in dead_letters.scan()] == ["b"]


@pytest.mark.parametrize("dead_letters", [each for each in DEAD_LETTERS if each.in_files], indirect=True)
def test_no_byte_of_an_erased_dead_letter_is_left_in_a_file(
    dead_letters: DeadLetters, tmp_path: Path
) -> None:
    secret = b"the only copy of this payload"
    dead_letters.put([dead_letter(f"{number:03}") for number in range(100)])
    dead_letters.put([dead_letter("a")._replace(payload=secret, position="file:the-only-copy#1")])
    dead_letters.put([dead_letter("b")._replace(payload=secret)])
    dead_letters.drop(["b"])

    def is_seen() -> bool:
        return any(
            b"the-only" in each or secret in each for each in map(Path.read_bytes, tmp_path.rglob("*"))
        )

    assert is_seen()
    assert dead_letters.drop(["a", "c"]) == 1
    dead_letters.compact()
    assert not is_seen()
    assert dead_letters.counts() == {"not_json": 100}


def test_nothing_to_put(dead_letters: DeadLetters) -> None:
    dead_letters.put([])
    assert dead_letters.counts() == {}
    assert list(dead_letters.scan()) == []


def test_threads_put_at_once(dead_letters: DeadLetters) -> None:
    with ThreadPoolExecutor(4) as pool:
        for _ in pool.map(
            lambda each: dead_letters.put([dead_letter(f"{each}"), dead_letter("shared")]), range(40)
        ):
            pass
    assert dead_letters.counts() == {"not_json": 41}


def test_a_closed_store_says_so(dead_letters: DeadLetters) -> None:
    dead_letters.close()
    dead_letters.close()
    for use in (
        lambda: dead_letters.put([dead_letter("a")]),
        lambda: dead_letters.get("a"),
        dead_letters.counts,
        lambda: list(dead_letters.scan()),
        lambda: dead_letters.drop(["a"]),
        dead_letters.compact,
        lambda: dead_letters.settle_batch("flow/1", "one"),
    ):
        with pytest.raises(StoreError, match="closed"):
            use()


@pytest.mark.parametrize("implementation", [each for each in DEAD_LETTERS if each.durable], ids=str)
def test_dead_letters_are_there_when_opened_again(
    implementation: Implementation[DeadLetters], tmp_path: Path
) -> None:
    first, second = implementation.open(tmp_path), implementation.open(tmp_path)
    first.put([dead_letter("a")])
    assert second.get("a") == dead_letter("a")
    first.close()
    second.close()
    third = implementation.open(tmp_path)
    assert list(third.scan()) == [dead_letter("a")]
    third.close()
