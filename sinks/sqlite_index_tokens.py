"""Everything the SQLite index knows of a document, as a set of tokens of one full-text table.

    zoe                  the word, anywhere in the profile
    PATH U+0080 zoe      the word in this attribute
    PATH U+0081 7a6f65   the exact string: hexadecimal UTF-8, so that tokens sort as the strings do;
                         behind a long one's first characters U+0090 and the SHA-256 of all of it
    PATH U+0082 c01e...  the number: the bits of its double so that tokens sort as numbers do; where a
                         double cannot hold every integer, how far the integer is from it
    PATH U+0083 1        the boolean

PATH is the attribute's number in the index. The controls U+0080 and on never stand in a word, and the
tokenizer takes them for letters, so no text that a user sends can be read as another token.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Mapping
from typing import Any

from sinks.index_values import ORDERED_CHARACTERS, ValueClass, class_of, finite, words

WORD = "\x80"
TEXT = "\x81"
NUMBER = "\x82"
BOOLEAN = "\x83"
LONG = "\x90"
AFTER_LONG = "\x91"

_pack = struct.Struct(">d").pack
_SIGN = 1 << 63
_ALL = (1 << 64) - 1


def document_tokens(fields: Mapping[str, Any], numbers: Mapping[str, str]) -> set[str]:
    """The tokens of a document; `numbers` gives every path's number.

    Raises TypeError for a value that is neither a scalar nor a list of scalars, naming the path.
    """
    tokens: set[str] = set()
    add = tokens.add
    for path, value in fields.items():
        number = numbers[path]
        for scalar in value if isinstance(value, list) else (value,):
            if isinstance(scalar, str):
                add(f"{number}{TEXT}{text_key(scalar)}")
                within = number + WORD
                for word in words(scalar):
                    add(word)
                    add(within + word)
            else:
                try:
                    token = value_token(number, scalar)
                except TypeError as error:
                    raise TypeError(f"{path}: {error}") from None
                if token is not None:
                    add(token)
    return tokens


def value_token(number: str, value: Any) -> str | None:
    """The token of exactly this value at a path's number; None for NaN, which equals nothing."""
    match class_of(value):
        case ValueClass.TEXT:
            return f"{number}{TEXT}{text_key(value)}"
        case ValueClass.BOOLEAN:
            return f"{number}{BOOLEAN}{value:d}"
        case ValueClass.NUMBER:
            key = number_key(value)
            return None if key is None else f"{number}{NUMBER}{key}"


def text_key(text: str) -> str:
    """Distinct for distinct strings; sorts as the strings' first characters do."""
    if len(text) <= ORDERED_CHARACTERS:
        return text.encode().hex()
    return f"{ordered_key(text)}{LONG}{hashlib.sha256(text.encode()).hexdigest()}"


def ordered_key(text: str) -> str:
    """As much of the key as is in order."""
    return text[:ORDERED_CHARACTERS].encode().hex()


def number_key(value: Any) -> str | None:
    """Equal for equal numbers, exact for integers of any size within a double's range; sorts as numbers
    do. None for NaN."""
    number = finite(value)
    if number is None:
        return None
    nearest = float(number) + 0.0  # turns -0.0 into 0.0
    bits = int.from_bytes(_pack(nearest), "big")
    key = f"{bits ^ _ALL if bits & _SIGN else bits | _SIGN:016x}"
    step = math.ulp(nearest)
    if step <= 1 or math.isinf(nearest):
        return key
    # The offset has the same number of digits for all that share the double, so it sorts behind it.
    offset = int(number) - int(nearest) + int(step)
    return f"{key}{offset:0{len(f'{2 * int(step):x}')}x}"
