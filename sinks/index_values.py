"""Values in an embedded index: three classes that never meet, and text as words.

Limits, the same in every index: `Prefix`, `Range` and `Order` look at the first ORDERED_CHARACTERS of a string
(`Term` at all of them); full text does not find words of more than WORD_BYTES. A NaN counts as absent; a number that
is too large for a double is infinite for `Range`, and exact for `Term`.

Keys of numbers are bytes that sort as the numbers do: sign and bits of the double; where a double cannot hold every
integer, how far the integer is from it; beyond all doubles, as infinite, BEYOND and the SHA-256 of the number.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import re
import struct
import sys
import unicodedata
from collections.abc import Iterator
from decimal import Decimal
from enum import Enum
from functools import cache
from typing import Any

from tantivy import Filter, TextAnalyzer, TextAnalyzerBuilder, Tokenizer

from idgraph.model import canonical
from idgraph.model.errors import QueryError
from idgraph.model.queries import UNSPACED, Clause, Exists, Order, Query, leaves

_DIGEST = 6


def cursor_of(place: Any) -> str:
    """An opaque cursor that continues behind a place, which is made of JSON values."""
    data = canonical.encode(place)
    return base64.urlsafe_b64encode(_digest(data) + data).decode()


def read_cursor(cursor: str) -> Any:
    """The place behind which to go on. Raises QueryError for what `cursor_of` did not make."""
    try:
        data = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
        digest, place = data[:_DIGEST], data[_DIGEST:]
        if digest == _digest(place):
            return canonical.decode(place)
    except (binascii.Error, *canonical.MalformedJSON):
        pass
    raise QueryError("the cursor is not one that this index gave out")


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(b"cursor" + data).digest()[:_DIGEST]


ORDERED_CHARACTERS = 256
WORD_BYTES = 255


class ValueClass(Enum):
    """A term or range only ever meets values of its own class: true is not 1, and "1" is not 1."""

    TEXT = "text"
    NUMBER = "number"
    BOOLEAN = "boolean"


_CLASSES: dict[type, ValueClass] = {
    str: ValueClass.TEXT,
    int: ValueClass.NUMBER,
    float: ValueClass.NUMBER,
    bool: ValueClass.BOOLEAN,
}


def class_of(value: Any) -> ValueClass:
    """Raises TypeError for what is not a scalar; the message names the type only."""
    found = _CLASSES.get(type(value))
    if found is not None:
        return found
    if isinstance(value, str):
        return ValueClass.TEXT
    if isinstance(value, int | float | Decimal):
        return ValueClass.NUMBER
    raise TypeError(f"a {type(value).__name__} is not a scalar")


def exact(number: float | Decimal) -> float | Decimal:
    """A number that equals another as it does in the index: exact for integers, and beyond a double's range."""
    if not isinstance(number, Decimal):
        return number
    if number.is_finite() and number == number.to_integral_value():
        return int(number)
    nearest = float(number)
    return number if math.isinf(nearest) and number.is_finite() else nearest


def ordered(number: float | Decimal) -> int | float | None:
    """A number that compares with others as it does in the index; None for NaN."""
    number = exact(number)
    try:
        nearest = float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf
    if math.isnan(nearest) or math.isinf(nearest):
        return None if math.isnan(nearest) else nearest
    return nearest if isinstance(number, Decimal) else number


def is_unicode(text: str) -> bool:
    """Whether the text can be stored: halves of surrogate pairs cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def in_column(number: float | Decimal) -> int | float:
    """A number, which is no NaN, in order and facets: one that is too large for a double is the largest one."""
    return max(-_LARGEST, min(_LARGEST, ordered(number) or 0))


_LARGEST = sys.float_info.max


def order_key(value: Any) -> tuple[int, Any]:
    """Sorts values as `Order` does: booleans, strings, numbers."""
    kind = class_of(value)
    if kind is ValueClass.NUMBER:
        return 2, in_column(value)
    return (1, value) if kind is ValueClass.TEXT else (0, value)


def check_text(query: Query, order: Order | None = None) -> None:
    """Raises QueryError for a search of text that no document can hold."""
    clauses: list[Clause] = list(leaves(query))
    if order is not None:
        clauses.append(Exists(order.path))
    for clause in clauses:
        if not all(is_unicode(part) for part in clause if isinstance(part, str)):
            raise QueryError("the query holds text that is not valid Unicode")


def words(text: str) -> list[str]:
    """The words of a text without case and Latin accents: `Zoë, zoe` gives `["zoe", "zoe"]`. Scripts without blanks
    between words also give each character and each pair of neighbours: `東京都` gives itself, `東`, `京`, `都`, `東京` and
    `京都`.

    A word is a run of letters and digits of at most WORD_BYTES. It is the analysis of the embedded index, so that every
    index finds the same.
    """
    found: list[str] = analyzer().analyze(spread(composed(text)))
    return found


def asked_words(text: str) -> list[str]:
    """The words that a search for this text looks for: of scripts without blanks the pairs alone, in whatever they stand."""
    text = composed(text)
    if not text.isascii():
        text = UNSPACED.sub(lambda run: f" {' '.join(_pairs(run[0]))} ", text)
    found: list[str] = analyzer().analyze(text)
    return found


BEHIND_TEXT = "\0"
"""Between a text and its pairs. It sorts before every other character, so that the texts sort as they did."""


def spread(text: str) -> str:
    """A composed text, and behind it what else it is found by."""
    if text.isascii() or UNSPACED.search(text) is None:
        return text
    return f"{text}{BEHIND_TEXT}{' '.join(_parts(text))}"


def _parts(text: str) -> Iterator[str]:
    for run in _RUNS.findall(text):
        if UNSPACED.search(run) is None:
            continue
        # A text beside such a script without a blank is a word too.
        yield from filter(None, UNSPACED.split(run))
        for part in UNSPACED.findall(run):
            yield from part
            yield from _pairs(part)


def _pairs(run: str) -> list[str]:
    return [run[place : place + 2] for place in range(max(1, len(run) - 1))]


_RUNS = re.compile(rf"(?:[^\W_]|{UNSPACED.pattern[:-1]})+")


def composed(text: str) -> str:
    """The text with each accent in its letter (NFC), as words are looked for in it."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


@cache
def analyzer() -> TextAnalyzer:
    """The tokenizer of texts."""
    return (
        TextAnalyzerBuilder(Tokenizer.simple())
        .filter(Filter.remove_long(WORD_BYTES + 1))
        .filter(Filter.ascii_fold())
        .filter(Filter.lowercase())
        .build()
    )


BEYOND = b"\x00"
AFTER_BEYOND = b"\x01"

_pack = struct.Struct(">d").pack
_unpack = struct.Struct(">Q").unpack


def _as_double(bits: int) -> tuple[float]:
    return struct.unpack(">d", bits.to_bytes(8, "big"))


_SIGN = 1 << 63
_ALL = (1 << 64) - 1
_EXACT = 2.0**53
_PLAIN = frozenset({int, float})


def number_key(value: Any) -> bytes | None:
    """Equal for equal numbers, exact for integers and beyond a double's range. None for NaN."""
    if type(value) in _PLAIN and -_EXACT < value < _EXACT:
        return bytes.fromhex(plain_key(value))
    key = number_order(value)
    if key not in INFINITE or value in (math.inf, -math.inf):
        return key
    whole = exact(value)
    digits = f"{whole:x}" if isinstance(whole, int) else f"{whole:f}".rstrip("0")
    return key + BEYOND + hashlib.sha256(digits.encode()).digest()


def plain_key(value: float) -> str:
    """The key, in hexadecimal, of a number of which every integer is a double."""
    (bits,) = _unpack(_pack(value + 0.0))
    return f"01{bits:016x}" if bits < _SIGN else f"00{bits ^ _ALL:016x}"


def number_order(value: Any) -> bytes | None:
    """As much of the key as is in order: sorts as numbers do, within a double's range. None for NaN."""
    number = ordered(value)
    if number is None:
        return None
    nearest = number + 0.0  # also turns -0.0 into 0.0
    key = _positive(nearest) if nearest >= 0 else _negative(nearest)
    if -_EXACT < nearest < _EXACT or math.isinf(nearest):
        return key
    # The offset has the same number of digits for all that share the double, so it sorts behind it.
    step = int(math.ulp(nearest))
    return b"%b%0*x" % (key, len(f"{2 * step:x}"), int(number) - int(nearest) + step)


def _positive(number: float) -> bytes:
    return b"\1" + _pack(number)


def _negative(number: float) -> bytes:
    # The larger a negative number's bits, the smaller it is.
    return b"\0" + (int.from_bytes(_pack(number), "big") ^ _ALL).to_bytes(8, "big")


def shown_number(key: bytes) -> int | float:
    """The number whose `number_order` this is, whole numbers as such; the largest double for infinite ones."""
    bits = int.from_bytes(key[1:9], "big")
    (nearest,) = _as_double(bits if key[0] else bits ^ _ALL)
    if len(key) > 9:
        return int(nearest) + int(key[9:], 16) - int(math.ulp(nearest))
    number: float = max(-_LARGEST, min(_LARGEST, nearest))
    return int(number) if number.is_integer() else number


INFINITE = frozenset({_positive(math.inf), _negative(-math.inf)})
"""The beginning of the keys of numbers that are too large for a double."""
