"""Everything the SQLite index knows of a document, as a set of tokens of one full-text table.

    zoe U+0080 PATH      the word in this attribute; anywhere in the profile it is what begins so
    PATH U+0081 7a6f65   the exact string: hexadecimal UTF-8, so that tokens sort as the strings do;
                         behind a long one's first characters U+0090 and the SHA-256 of all of it
    PATH U+0082 1401...  the number: sign and bits of its double, so that tokens sort as numbers do;
                         where a double cannot hold every integer, how far the integer is from it;
                         beyond all doubles, as infinite, U+0090 and the SHA-256 of the number
    PATH U+0083 1        the boolean

PATH is the attribute's number in the index. The controls U+0080 and on never stand in a word, and the
tokenizer takes them for letters, so no text that a user sends can be read as another token.

A document is written as its tokens, those of one attribute parted by blanks, attributes by line ends: no
token stands twice, and what an update changes is seen by comparing lines.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from model import native
from sinks.index_values import ORDERED_CHARACTERS, ValueClass, class_of, exact, ordered, words

WORD_END = "\x80"
"""Behind every word, so that a word anywhere is looked for as a prefix and never finds a longer word."""

LONG = "\x90"
AFTER_LONG = "\x91"

_pack = struct.Struct(">d").pack
_ALL = (1 << 64) - 1
_EXACT = 2.0**53
_PLAIN_NUMBERS = frozenset({int, float})
_MOST_SEEN = 8 << 20  # characters of texts and their tokens


class PathTokens(NamedTuple):
    """What the tokens of one path begin with; those of words end with `word`."""

    word: str
    text: str
    number: str
    boolean: str
    end: str

    @classmethod
    def of(cls, number: int) -> PathTokens:
        return cls(f"{WORD_END}{number}", *(f"{number}{marker}" for marker in "\x81\x82\x83\x84"))


class Tokenizer:
    """Documents to tokens. Remembers the strings it saw lately: most stand in many documents."""

    def __init__(self, paths: Mapping[str, PathTokens]) -> None:
        """`paths` may grow later; what is in it stays as it is."""
        self._paths = paths
        self._seen: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self._held = 0

    def tokens(self, fields: Mapping[str, Any]) -> str:
        """The tokens of a document, all of whose paths must be known.

        Raises TypeError for a value that is neither a scalar nor a list of scalars, naming the path.
        """
        if self._held > _MOST_SEEN:
            self._seen.clear()
            self._held = 0
        if native.loops is not None:
            tokens = native.loops.tokens(fields, self._paths, self._of_any)
            if tokens is not None:
                return tokens
        return "\n".join(self._lines(fields))

    def _lines(self, fields: Mapping[str, Any]) -> list[str]:
        # Twin of `tokens` in native/loops.c.
        lines: list[str] = []
        seen = self._seen
        for path, value in fields.items():
            kind = type(value)
            if kind is str:
                line = seen[path].get(value) or self._of_text(path, value)
            elif kind in _PLAIN_NUMBERS and 0 < value < _EXACT:
                # What `value_token` would say, without the calls: most numbers are such.
                line = f"{self._paths[path].number}1{_pack(value).hex()}"
            else:
                line = self._of_any(path, value)
            if line:
                lines.append(line)
        return lines

    def _of_text(self, path: str, text: str) -> str:
        begin = self._paths[path]
        found = words(text)
        line = begin.text + text_key(text)
        if found:
            distinct = found if len(found) == 1 else dict.fromkeys(found)
            line = f"{line} {f'{begin.word} '.join(distinct)}{begin.word}"
        if len(text) <= ORDERED_CHARACTERS:
            self._seen[path][text] = line
            self._held += len(text) + len(line)
        return line

    def _of_any(self, path: str, value: Any) -> str:
        if type(value) is str:
            return self._seen[path].get(value) or self._of_text(path, value)
        tokens: dict[str, None] = {}
        for scalar in value if type(value) is list else (value,):
            if type(scalar) is str:
                tokens |= dict.fromkeys(self._of_text(path, scalar).split())
                continue
            try:
                token = value_token(self._paths[path], scalar)
            except TypeError as error:
                raise TypeError(f"{path}: {error}") from None
            if token is not None:
                tokens[token] = None
        return " ".join(tokens)


def value_token(begin: PathTokens, value: Any) -> str | None:
    """The token of exactly this value at a path; None for NaN, which equals nothing."""
    kind = class_of(value)
    if kind is ValueClass.NUMBER:
        key = number_key(value)
        return None if key is None else begin.number + key
    return begin.text + text_key(value) if kind is ValueClass.TEXT else f"{begin.boolean}{value:d}"


def text_key(text: str) -> str:
    """Distinct for distinct strings; sorts as the strings' first characters do."""
    if len(text) <= ORDERED_CHARACTERS:
        return text.encode().hex()
    return f"{ordered_key(text)}{LONG}{hashlib.sha256(text.encode()).hexdigest()}"


def ordered_key(text: str) -> str:
    """As much of the key as is in order."""
    return text[:ORDERED_CHARACTERS].encode().hex()


INFINITE = frozenset({f"1{_pack(math.inf).hex()}", f"0{int.from_bytes(_pack(-math.inf), 'big') ^ _ALL:016x}"})
"""What the keys of numbers that are too large for a double begin with."""


def number_key(value: Any) -> str | None:
    """Equal for equal numbers, exact for integers and beyond a double's range. None for NaN."""
    key = number_order(value)
    if key not in INFINITE or value in (math.inf, -math.inf):
        return key
    whole = exact(value)
    digits = f"{whole:x}" if isinstance(whole, int) else f"{whole:f}".rstrip("0")
    return f"{key}{LONG}{hashlib.sha256(digits.encode()).hexdigest()}"


def number_order(value: Any) -> str | None:
    """As much of the key as is in order: sorts as numbers do, within a double's range. None for NaN."""
    number = ordered(value)
    if number is None:
        return None
    nearest = number + 0.0  # also turns -0.0 into 0.0
    if nearest >= 0:
        key = "1" + _pack(nearest).hex()
    else:
        # The larger a negative number's bits, the smaller it is.
        key = f"0{int.from_bytes(_pack(nearest), 'big') ^ _ALL:016x}"
    if -_EXACT < nearest < _EXACT or math.isinf(nearest):
        return key
    # The offset has the same number of digits for all that share the double, so it sorts behind it.
    step = int(math.ulp(nearest))
    return f"{key}{int(number) - int(nearest) + step:0{len(f'{2 * step:x}')}x}"
