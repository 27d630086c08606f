"""Everything the SQLite index knows of a document, as a set of tokens.

    zoe 01 PATH          the word in this attribute; anywhere in the profile it is what begins so
    PATH 02 Zoe          the exact string, so that tokens sort as the strings do; of a long one its first
                         characters, 00 and the SHA-256 of all of it
    PATH 03 01 401...    the number: sign and bits of its double, so that tokens sort as numbers do;
                         where a double cannot hold every integer, how far the integer is from it;
                         beyond all doubles, as infinite, 00 and the SHA-256 of the number
    PATH 04 1            the boolean

PATH is the attribute's number in the index, in digits; text is UTF-8; 00 to 05 are bytes. None of them stands in a
word or in a PATH, so no text that a user sends can be read as another token.

A document's tokens are packed: each behind its length, two bytes, the lower first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from idgraph import native
from merge.documents import EncodedFields, shown_of_json
from sinks.index_values import ORDERED_CHARACTERS, ValueClass, class_of, words
from sinks.number_keys import number_key

WORD_END = b"\x01"
"""Behind every word, so that a word anywhere is looked for as a prefix and never finds a longer word."""

MOST_PATHS = 200_000
"""How many paths a process remembers; more are looked up again."""

LONG = b"\x00"
AFTER_LONG = b"\x01"


class PathTokens(NamedTuple):
    """What the tokens of one path begin with; those of words end with `word`. `end` is behind them all."""

    word: bytes
    text: bytes
    number: bytes
    boolean: bytes
    end: bytes

    @classmethod
    def of(cls, number: int) -> PathTokens:
        digits = b"%d" % number
        return cls(WORD_END + digits, *(digits + marker for marker in (b"\2", b"\3", b"\4", b"\5")))


class Tokenizer:
    """Documents to packed tokens."""

    def __init__(self, paths: dict[str, PathTokens]) -> None:
        """`paths` may grow later; what is in it stays as it is."""
        self._paths = paths
        self._plan = _Plan(paths, lambda _: False)

    def tokens(self, fields: Mapping[str, Any]) -> bytes:
        """The tokens of a document, all of whose paths must be known.

        Raises TypeError for a value that is neither a scalar nor a list of scalars, naming the path;
        UnicodeEncodeError for text that is not valid Unicode.
        """
        if native.postings is not None:
            return native.postings.tokens(fields, self._paths, self._of)
        # Reference of `tokens` in native/postings.c.
        return b"".join(self._of(path, value) for path, value in fields.items())

    def tokens_of_state(self, fields: EncodedFields) -> bytes:
        """The tokens of a document that is still a state's bytes. Raises as `tokens` does, KeyError for a path that is
        not known, and DamagedStateError."""
        # Reference of `tokens` in native/states.c.
        return self.tokens(fields.read())

    def tokens_of_states(self, documents: Sequence[EncodedFields]) -> Sequence[bytes | None]:
        """The same of each document; None for those that `tokens_of_state` has to be asked for."""
        if native.states is None or not documents:
            return [None] * len(documents)
        is_indexable = documents[0].is_indexable
        if any(each.is_indexable is not is_indexable for each in documents):
            return [None] * len(documents)
        plan = self._plan
        if plan.is_indexable is not is_indexable:
            # Another snapshot: what was asked under the last one does not hold.
            plan = self._plan = _Plan(self._paths, is_indexable)
        return native.states.tokens([each.state for each in documents], plan, self._paths, self._of_json)

    def _of_json(self, path: str, kind: int, json: bytes) -> bytes:
        value = shown_of_json(kind, json)
        return b"" if value is None else self._of(path, value)

    def _of(self, path: str, value: Any) -> bytes:
        begin = self._paths[path]
        if type(value) is str:
            return packed(_tokens_of_text(begin, value))
        found: dict[bytes, None] = {}
        for scalar in value if type(value) is list else (value,):
            if type(scalar) is str:
                found |= dict.fromkeys(_tokens_of_text(begin, scalar))
                continue
            try:
                token = value_token(begin, scalar)
            except TypeError as error:
                raise TypeError(f"{path}: {error}") from None
            if token is not None:
                found[token] = None
        return packed(found)


class _Plan(dict[str, PathTokens | tuple[()] | None]):
    """What the tokens of plain values begin with, by path; None where policy does not let them into the index. Nothing
    is kept of a path without a number: a value may have no tokens, and then its path needs none."""

    def __init__(self, paths: Mapping[str, PathTokens], is_indexable: Callable[[str], bool]) -> None:
        super().__init__()
        self.is_indexable = is_indexable
        self._paths = paths

    def __missing__(self, path: str) -> PathTokens | tuple[()] | None:
        found = self._paths.get(path, ()) if self.is_indexable(path) else None
        if found == ():
            return found
        if len(self) > MOST_PATHS:
            self.clear()
        self[path] = found
        return found


def packed(tokens: Iterable[bytes]) -> bytes:
    """Tokens, each behind its length."""
    return b"".join(len(token).to_bytes(2, "little") + token for token in tokens)


def _tokens_of_text(begin: PathTokens, text: str) -> list[bytes]:
    return [begin.text + text_key(text), *(word.encode() + begin.word for word in dict.fromkeys(words(text)))]


def value_token(begin: PathTokens, value: Any) -> bytes | None:
    """The token of exactly this value at a path; None for NaN, which equals nothing."""
    kind = class_of(value)
    if kind is ValueClass.NUMBER:
        key = number_key(value)
        return None if key is None else begin.number + key
    return begin.text + text_key(value) if kind is ValueClass.TEXT else b"%b%d" % (begin.boolean, value)


def text_key(text: str) -> bytes:
    """Distinct for distinct strings; sorts as the strings' first characters do."""
    if len(text) <= ORDERED_CHARACTERS:
        return text.encode()
    return ordered_key(text) + LONG + hashlib.sha256(text.encode()).digest()


def ordered_key(text: str) -> bytes:
    """As much of the key as is in order."""
    return text[:ORDERED_CHARACTERS].encode()
