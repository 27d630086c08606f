"""How an embedded index looks at values: three classes that never meet, and text as words.

Limits, the same in every embedded index: `Prefix` and `Range` look at the first ORDERED_CHARACTERS of a
string (`Term` at all of them), full text at the first SEARCHED_CHARACTERS of a value, and at the first
WORD_CHARACTERS of a word. A NaN counts as absent; a number that is too large for a double is infinite for `Range`,
and exact for `Term`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import re
import unicodedata
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any

from idgraph.model.errors import QueryError
from idgraph.model.queries import Query

_DIGEST = 6


def cursor_after(document_id: str) -> str:
    """An opaque cursor that goes on behind this id."""
    data = document_id.encode()
    return base64.urlsafe_b64encode(_digest(data) + data).decode()


def read_cursor(cursor: str) -> str:
    """The id behind which to go on. Raises QueryError for what `cursor_after` did not make."""
    try:
        data = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
        digest, after = data[:_DIGEST], data[_DIGEST:]
        if digest == _digest(after):
            return after.decode()
    except (binascii.Error, UnicodeError):
        pass
    raise QueryError("the cursor is not one that this index gave out")


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(b"cursor" + data).digest()[:_DIGEST]


ORDERED_CHARACTERS = 256
SEARCHED_CHARACTERS = 4096
WORD_CHARACTERS = 128

_ascii_words = re.compile(r"[a-z0-9]+").findall
_uuid = re.compile(r"\b[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\b")
_UUID_CHARACTERS = 36


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


def check_text(query: Query) -> None:
    """Raises QueryError for a query of text that no document can hold."""
    for clause in query.clauses:
        if not all(is_unicode(part) for part in clause if isinstance(part, str)):
            raise QueryError("the query holds text that is not valid Unicode")


def words(text: str) -> list[str]:
    """The words of a text without case and diacritics: `Zoë, zoe` gives `["zoe", "zoe"]`.

    A word is a run of letters, digits and the marks that belong to them. A UUID is one word: nobody
    looks for its parts, and as five words each it would be most of a profile's index.
    """
    text = text[:SEARCHED_CHARACTERS]
    if "-" in text and len(text) >= _UUID_CHARACTERS:
        text = _uuid.sub(lambda found: found[0].replace("-", ""), text)
    if text.isascii():
        found = _ascii_words(text.lower())
    else:
        folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
        found = "".join(map(_plain, folded)).split()
    return [word[:WORD_CHARACTERS] for word in found] if len(text) > WORD_CHARACTERS else found


# Combining classes from 200 on sit above, below or across their dead letter: accents. Lower ones, such as
# vowel signs and viramas, are part of the spelling.
_FIRST_ACCENT = 200


@lru_cache(maxsize=65_536)
def _plain(character: str) -> str:
    if character.isalnum():
        return character
    if unicodedata.combining(character) >= _FIRST_ACCENT:
        return ""
    return character if unicodedata.category(character).startswith("M") else " "
