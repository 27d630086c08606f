"""A document as Elasticsearch keeps it: exact keys in a fixed set of keyword fields, one a class of values.

    id        the document's id, which answers are sorted by
    texts     PATH U+0000 the string; of a long one its first characters, U+0000 and the SHA-256 of all of it
    numbers   PATH U+0000 the number (`sinks.number_keys`), in hexadecimal digits
    booleans  PATH U+0000 0 or 1
    words     WORD U+0000 PATH, so that a word anywhere is what begins so
    content   a hash of all the others, which documents are compared by

Keyword terms sort by UTF-8 bytes, which is by code point, so a prefix or a range of keys is one of values. PATH
is the attribute's path without the controls that part a key, and shortened when it is long.

An erased document is one without any field, `TOMBSTONE`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from idgraph.model import canonical
from sinks.index_values import ORDERED_CHARACTERS, ValueClass, class_of, words
from sinks.number_keys import number_key

END = "\x00"
"""Parts what a key is made of."""
AFTER = "\x01"
"""In its place: what sorts behind every key that begins alike."""

TOMBSTONE = b"{}"

_LONGEST_PATH = 512
_CONTENT_BYTES = 8


@lru_cache(maxsize=65_536)
def path_key(path: str) -> str:
    """Distinct for distinct paths, without END and AFTER, short enough for a term of Lucene (32,766 bytes)."""
    escaped = path.replace("\x02", "\x02c").replace(AFTER, "\x02b").replace(END, "\x02a")
    if len(path) <= _LONGEST_PATH:
        return escaped
    return f"{escaped[:_LONGEST_PATH]}\x02h{hashlib.sha256(path.encode()).hexdigest()}"


def text_key(text: str) -> str:
    """Distinct for distinct strings; sorts as the strings' first characters do."""
    if len(text) <= ORDERED_CHARACTERS:
        return text
    return f"{text[:ORDERED_CHARACTERS]}{END}{hashlib.sha256(text.encode()).hexdigest()}"


def value_key(path: str, value: Any) -> tuple[str, str] | None:
    """The field and the key of exactly this value; None for NaN, which equals nothing. Raises TypeError for
    what is not a scalar."""
    kind = class_of(value)
    if kind is ValueClass.TEXT:
        return "texts", f"{path_key(path)}{END}{text_key(value)}"
    if kind is ValueClass.BOOLEAN:
        return "booleans", f"{path_key(path)}{END}{value:d}"
    key = number_key(value)
    return None if key is None else ("numbers", f"{path_key(path)}{END}{key.hex()}")


class Source(NamedTuple):
    """The JSON of a document, and the hash of it that stands there as `content`."""

    json: bytes
    content: str


def source(document_id: str, fields: Mapping[str, Any]) -> Source:
    """A document as it is kept; the order of its fields makes no difference.

    Raises TypeError for a value that is neither a scalar nor a list of scalars, naming the path, and
    UnicodeEncodeError for text that is not valid Unicode.
    """
    keys: dict[str, Any] = {"id": document_id, "texts": [], "numbers": [], "booleans": [], "words": []}
    for path, value in sorted(fields.items()):
        found: dict[str, None] = {}
        for scalar in value if type(value) is list else (value,):
            try:
                key = value_key(path, scalar)
            except TypeError as error:
                raise TypeError(f"{path}: {error}") from None
            if key is not None:
                keys[key[0]].append(key[1])
            if isinstance(scalar, str):
                found |= dict.fromkeys(words(scalar))
        if found:
            end = END + path_key(path)
            keys["words"] += [word + end for word in found]
    json = canonical.encode({field: value for field, value in keys.items() if value})
    content = hashlib.blake2b(json, digest_size=_CONTENT_BYTES).hexdigest()
    return Source(b'%b,"content":"%b"}' % (json[:-1], content.encode("ascii")), content)
