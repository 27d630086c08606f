"""Tokens and blocks of the index: the native ones are those of the reference implementations in Python, and say what they were made of."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idgraph import native
from sinks.sqlite.index.blocks import BLOCK_BYTES, build, find, merge
from sinks.sqlite.index.tokens import PathTokens, Tokenizer, packed
from tests.lanes import examples
from tests.properties import odd_values
from tests.properties.references import both, outcome

pytestmark = pytest.mark.skipif(native.built_postings is None, reason=f"what is native is {native.state}")

more = settings(max_examples=examples(300), deadline=None)

KNOWN = ["a", "a.b", "b", "ü", "日"]
UUIDS = ("12345678-abcd-EF01-2345-6789abcdef01", "12345678-abcd-EF01-2345-6789abcdef0", "1234567-8-abcd")
around_uuids = st.lists(st.sampled_from([*UUIDS, "-", "_", "a", "A b", ".", "ü", "0", " " * 60]), max_size=5)
words = st.text("aAbZz09 _-.", max_size=140) | around_uuids.map("".join)
fields = st.dictionaries(
    st.sampled_from(KNOWN), words | odd_values.texts | odd_values.integers | st.floats()
) | (st.dictionaries(st.sampled_from([*KNOWN, "unknown"]), odd_values.leaves, max_size=3))


@more
@given(st.lists(fields, max_size=3))
def test_tokens(documents: list[dict[str, Any]]) -> None:
    known = {path: PathTokens.of(place) for place, path in enumerate(KNOWN)}

    def work() -> list[str]:
        tokenizer = Tokenizer(known)
        return [outcome(lambda f=fields: tokenizer.tokens(f)) for fields in documents]  # type: ignore[misc]

    one, other = both(work)
    assert one == other


tokens = st.binary(min_size=1, max_size=12) | st.sampled_from(
    # Alike in their first 8 or 16 bytes, by which they are distinguished first.
    [b"aaaaaaaa", b"aaaaaaaab", b"aaaaaaaa\0", b"\xff" * 9]
    + [b"a" * 16 + end for end in (b"", b"\0", b"b", b"\xff" * 8, b"\xff" * 8 + b"\0", b"c" * 23)]
)
documents = st.lists(st.lists(tokens, max_size=6), max_size=12)
"""Of a segment."""
several = st.lists(st.tuples(documents, st.integers(0, 300)), max_size=4)
"""Segments, and how many numbers lie between each and the next."""


def having(blocks: list[tuple[bytes, bytes]], lower: bytes, upper: bytes) -> set[int]:
    return {each for _, data in blocks for each in find(data, lower, upper, 0)}


@more
@given(documents, tokens, tokens)
def test_a_segment_has_what_its_documents_have(
    given_documents: list[list[bytes]], lower: bytes, upper: bytes
) -> None:
    one, other = both(lambda: build([packed(each) for each in given_documents]))
    assert one == other
    blocks = build([packed(each) for each in given_documents])
    found, of_twin = both(lambda: sorted(having(blocks, lower, upper)))
    assert found == of_twin
    assert having(blocks, lower, upper) == {
        number for number, each in enumerate(given_documents) if any(lower <= token < upper for token in each)
    }


@more
@given(several, st.data())
def test_merged_segments_have_what_lives_of_all(
    segments: list[tuple[list[list[bytes]], int]], data: st.DataObject
) -> None:
    parts = []
    left: list[list[bytes]] = []
    for each, gap in segments:
        alive = data.draw(st.none() | st.lists(st.booleans(), min_size=len(each), max_size=len(each)))
        blocks = tuple(block for _, block in build([packed(one) for one in each]))
        parts.append((blocks, len(left), None if alive is None else bytes(alive)))
        left += [one if alive is None or alive[place] else [] for place, one in enumerate(each)]
        left += [[]] * gap
    one, other = both(lambda: merge(tuple(parts)))
    assert one == other
    assert merge(tuple(parts)) == build([packed(each) for each in left])


def test_a_large_segment_is_cut_into_blocks_that_begin_with_their_first_token() -> None:
    given_documents = [
        packed([b"common", b"every%d" % (number % 7), b"own%d" % number, b"x" * 300])
        for number in range(5000)
    ]
    one, other = both(lambda: build(given_documents))
    assert one == other
    blocks = build(given_documents)
    assert len(blocks) > 4
    assert [first for first, _ in blocks] == sorted(first for first, _ in blocks)
    for first, data in blocks:
        assert find(data, first, first + b"\0", 0)
        # One token alone may be larger.
        assert len(data) <= BLOCK_BYTES or not find(data, first + b"\0", b"\xff" * 20, 0)
    assert having(blocks, b"own4999", b"own4999\0") == {4999}
    assert len(having(blocks, b"common", b"common\0")) == 5000
    halves = [
        tuple(data for _, data in build(some)) for some in (given_documents[:2000], given_documents[2000:])
    ]
    one, other = both(lambda: merge(((halves[0], 0, None), (halves[1], 2000, None))))
    assert one == other
    assert merge(((halves[0], 0, None), (halves[1], 2000, None))) == blocks


def test_many_short_tokens_stand_in_their_order() -> None:
    every = [bytes([first]) for first in range(256)]
    every += [one + other for one in every[::3] for other in every[::5]]
    every += [one + b"\0" * zeros for one in every[:40] for zeros in range(1, 20)]
    shuffled = sorted(set(every), key=lambda token: token[::-1])
    given_documents = [packed(shuffled[number::7] + shuffled[:3]) for number in range(7)]
    one, other = both(lambda: build(given_documents))
    assert one == other
    assert len(shuffled) > 4096


def test_long_tokens_that_begin_alike_stand_in_their_order() -> None:
    every = [
        b"12\2" + begin + b"%d" % number for number in range(900) for begin in (b"", b"abcde", b"abcde" * 5)
    ]
    shuffled = sorted(every, key=lambda token: token[::-1])
    given_documents = [packed(shuffled[number::90]) for number in range(90)]
    one, other = both(lambda: build(given_documents))
    assert one == other
    parts = tuple(
        (tuple(data for _, data in build(given_documents[start : start + 30])), start, None)
        for start in (0, 30, 60)
    )
    one, other = both(lambda: merge(parts))
    assert one == other
    assert merge(parts) == build(given_documents)


DAMAGED = "ValueError: a damaged block of postings"


@settings(max_examples=examples(500), deadline=None)
@given(documents, st.data())
def test_no_byte_of_a_block_is_trusted(given_documents: list[list[bytes]], data: st.DataObject) -> None:
    for _, block in build([packed(each) for each in given_documents]):
        damaged = bytearray(block)
        for _ in range(data.draw(st.integers(1, 3))):
            place = data.draw(st.integers(0, len(damaged) - 1))
            damaged[place : place + data.draw(st.integers(0, 1))] = data.draw(st.binary(max_size=2))
            if not damaged:
                return
        one, other = both(lambda b=bytes(damaged): find(b, b"a", b"b", 7))  # type: ignore[misc]
        # They need not look at the same bytes of what they skip.
        assert one == other or DAMAGED in (one, other)
        for parts in (
            (((bytes(damaged),), 0, b"\1" * 5), ((block,), 12, None)),
            (((bytes(damaged),), 0, None), ((block,), 12, None)),
        ):
            # Not all damage shows: tokens may be others, or in another order.
            for reported in both(lambda p=parts: merge(p)):  # type: ignore[misc]
                assert reported == DAMAGED or reported.startswith("[")


# Found by review: these were written as numbers that no reader takes, or as those of other documents.
@pytest.mark.parametrize("further", [b"\x96\1", b"\xd7\1", b"\xe8\7", b"\0", b"\xff\xff\xff\xff\x7f"])
def test_documents_that_do_not_rise_are_damage(further: bytes) -> None:
    """Of a block with the documents 0 and one further on, before one that begins at 100."""
    damaged, whole = b"\0\1a\2\0" + further, b"\0\1a\2\0\1"
    one, other = both(lambda: merge((((damaged,), 0, None), ((whole,), 100, None))))
    assert one == other == DAMAGED


@pytest.mark.parametrize("given_documents", [[b"\5"], [b"\5\0abc"], [b"\1\0a\xff"]])
def test_what_is_not_packed_is_refused(given_documents: list[bytes]) -> None:
    one, other = both(lambda: build(given_documents))
    assert "not packed" in one
    assert "not packed" in other
