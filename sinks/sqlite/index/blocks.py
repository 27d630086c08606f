"""Segments of the SQLite index as blocks of postings: built of some documents, merged, and looked into.

A segment has, for each token of some documents, the numbers of those that have it. Its tokens stand in byte order, cut
into blocks of some 8 KB. An entry of a block is, each number in seven bits a byte (LEB128),

    bytes that the token shares with the one before | how many more it has | these | how many documents |
    the first document | from each document to the next | ...

where the first token of a block shares nothing. Documents are counted from the segment's first. Nothing is changed:
segments are replaced whole.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from operator import itemgetter

from idgraph import native
from idgraph.native import Part

BLOCK_BYTES = 7900
"""So that a row of one fills a page of the file."""

Block = tuple[bytes, bytes]
"""Its first token, and what is in it."""

_Entry = tuple[bytes, list[int]]
_DAMAGE = "a damaged block of postings"
_LONGEST = 2**32 - 1


def build(documents: Sequence[bytes]) -> list[Block]:
    """The blocks of a segment of documents, each of which is its packed tokens (`sqlite_index_tokens`)."""
    if native.postings is not None:
        return native.postings.build(documents)
    numbers: dict[bytes, list[int]] = {}
    for number, packed in enumerate(documents):
        for token in _unpacked(packed):
            numbers.setdefault(token, []).append(number)
    return list(_blocks((token, sorted(set(found))) for token, found in sorted(numbers.items())))


def merge(parts: tuple[Part, ...]) -> list[Block]:
    """The blocks of one segment in place of those of several, given by rising numbers of their documents.
    Raises ValueError for damaged ones."""
    if native.postings is not None:
        return native.postings.merge(parts)
    entries = heapq.merge(*(_living(part) for part in parts), key=itemgetter(0))
    return list(
        _blocks(
            (token, numbers)
            for token, same in groupby(entries, itemgetter(0))
            if (numbers := _rising([number for _, found in same for number in found]))
        )
    )


def find(block: bytes, lower: bytes, upper: bytes, first: int) -> list[int]:
    """The documents of a block's tokens from `lower` on and before `upper`, where a segment's begin with `first`; one
    may come several times. Raises ValueError for a damaged block."""
    if native.postings is not None:
        return native.postings.find(block, lower, upper, first)
    found: list[int] = []
    for token, numbers in _entries(block):
        if token >= upper:
            break
        if token >= lower:
            found += [first + number for number in numbers]
    return found


def _living(part: Part) -> Iterator[_Entry]:
    blocks, shift, alive = part
    for block in blocks:
        for token, numbers in _entries(block):
            if any(step > _LONGEST for step in _steps(numbers)):
                raise ValueError(_DAMAGE)
            _rising(numbers)
            yield token, [shift + each for each in numbers if alive is None or alive[each : each + 1] > _DEAD]


def _rising(numbers: list[int]) -> list[int]:
    """The same; raises ValueError where one is not above the one before it."""
    if any(before >= each for before, each in pairwise(numbers)):
        raise ValueError(_DAMAGE)
    return numbers


def _steps(numbers: list[int]) -> Iterator[int]:
    return (each - before for before, each in zip([0, *numbers], numbers, strict=False))


def _unpacked(packed: bytes) -> Iterator[bytes]:
    place = 0
    while place < len(packed):
        start = place + 2
        place = start + int.from_bytes(packed[place:start], "little")
        if place > len(packed):
            raise ValueError("tokens that are not packed")
        yield packed[start:place]


def _entries(block: bytes) -> Iterator[_Entry]:
    token, place = b"", 0
    try:
        while place < len(block):
            shared, place = _number(block, place)
            rest, place = _number(block, place)
            if shared > len(token) or rest > len(block) - place:
                raise ValueError
            token = token[:shared] + block[place : place + rest]
            size, place = _number(block, place + rest)
            if size > len(block) - place:
                raise ValueError
            numbers = []
            number = 0
            for _ in range(size):
                step, place = _number(block, place)
                number += step
                numbers.append(number)
            yield token, numbers
    except (IndexError, ValueError):
        raise ValueError(_DAMAGE) from None


def _blocks(entries: Iterator[_Entry]) -> Iterator[Block]:
    block, first, last = bytearray(), b"", b""
    for token, numbers in entries:
        counted = _written(len(numbers)) + b"".join(map(_written, _steps(numbers)))
        entry = _token(token, _shared(last, token)) + counted
        if block and len(block) + len(entry) > BLOCK_BYTES:
            yield first, bytes(block)
            block = bytearray()
            entry = _token(token, 0) + counted
        if not block:
            first = token
        block += entry
        last = token
    if block:
        yield first, bytes(block)


def _token(token: bytes, shared: int) -> bytes:
    return _written(shared) + _written(len(token) - shared) + token[shared:]


def _shared(one: bytes, other: bytes) -> int:
    most = min(len(one), len(other))
    return next((place for place in range(most) if one[place] != other[place]), most)


def _written(number: int) -> bytes:
    if number < 0x80:
        return _BYTES[number]
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _number(block: bytes, place: int) -> tuple[int, int]:
    number = block[place]
    if number < 0x80:
        return number, place + 1
    number &= 0x7F
    for shift in range(7, 56, 7):
        place += 1
        number |= (block[place] & 0x7F) << shift
        if block[place] < 0x80:
            return number, place + 1
    raise ValueError


_DEAD = b"\0"
_BYTES = [bytes([each]) for each in range(0x80)]
