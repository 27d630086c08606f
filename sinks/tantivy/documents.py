"""Documents of the embedded index: their fields in tantivy, and the keys by which values are found.

A profile is one document with these fields:

| field | content |
|---|---|
| `name` | the keyed hash of its id, in hexadecimal: by it a document is replaced |
| `hash` | 64 bits of the name, to read it from a column |
| `stamp` | 2 * version, of the tombstone of an erased profile 2 * version + 1: the larger one wins |
| `content` | 64 bits of a hash of `source`, by which documents are compared |
| `id` | the profile's id; a tombstone has none, nor any of what follows |
| `data` | by column: each value as it is, for equality, beginnings, ranges, order and facets |
| `text` | by column: the words of texts, without those of opaque ids; pairs behind texts of scripts without blanks |
| `words` | all text |
| `source` | the fields, to write the document again |

A column is a hash of an attribute's path. Types cannot clash: the values of each class are texts that begin alike. Those
of numbers sort as the numbers do.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import isfinite
from typing import Any, NamedTuple

import msgspec
from tantivy import Schema, SchemaBuilder

from idgraph.model import canonical
from idgraph.model.index import IndexDocument
from idgraph.model.queries import Scalar
from sinks.index_values import (
    ORDERED_CHARACTERS,
    ValueClass,
    class_of,
    composed,
    number_order,
    plain_key,
    shown_number,
    spread,
)

ANALYZER = "words"

FALSE, TRUE = "B0", "B1"
TEXT, BEHIND_TEXTS = "_", "a"
NUMBER, BEHIND_NUMBERS = "n", "o"
"""The beginnings of values in `data`, which sort so. Tantivy's query language takes no bound with one for a number or a date,
which it would look for in another column."""
SHORTEST_OPAQUE = 16
OPAQUE = re.compile(rf"(?=.{{{SHORTEST_OPAQUE}}})[0-9a-fA-F]{{4,}}(?:-[0-9a-fA-F]{{4,}})*(?:-[0-9]{{1,4}})?")
"""UUIDs and digests. Their words by path would be most of an index."""

_EXACT = 2**53
_DOUBLE = 9
"""Bytes of the key of a number that is a double."""
_LONGEST = 10_000
"""Characters of a text in `data`, of which tantivy keeps at most 65,530 bytes; a longer one is cut, with its hash."""


def schema() -> Schema:
    """The fields of every document."""
    builder = SchemaBuilder()
    builder.add_text_field("name", stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_unsigned_field("hash", fast=True)
    builder.add_unsigned_field("stamp", fast=True)
    builder.add_unsigned_field("content", fast=True)
    builder.add_text_field("id", stored=True, fast=True, tokenizer_name="raw", index_option="basic")
    builder.add_json_field("data", fast=True, tokenizer_name="raw", index_option="basic")
    builder.add_json_field("text", tokenizer_name=ANALYZER, index_option="freq")
    builder.add_text_field("words", tokenizer_name=ANALYZER, index_option="freq")
    builder.add_bytes_field("source", stored=True)
    return builder.build()


SCHEMA = schema()


class Prepared(NamedTuple):
    """A document as it is written. `fields` are those of tantivy but for its name and stamp, as JSON without its last
    bracket."""

    id: str
    stamp: int
    content: int
    fields: bytes

    def json(self, name: bytes) -> str:
        """As tantivy takes it."""
        return (self.fields + b"," + _named(name, self.stamp)).decode()


def tombstone(name: bytes, stamp: int) -> str:
    """The document in the place of an erased one."""
    return "{" + _named(name, stamp).decode()


def _named(name: bytes, stamp: int) -> bytes:
    return b'"name":"%b","hash":%d,"stamp":%d}' % (name.hex().encode("ascii"), hash_of(name), stamp)


def hash_of(name: bytes) -> int:
    """The 64 bits of a name that stand in a column."""
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big")


def prepared(document: IndexDocument) -> Prepared:
    """Raises TypeError for a value that is neither a scalar nor a list of scalars, naming the path, and
    UnicodeEncodeError for text that is not valid Unicode."""
    document.id.encode()
    fields = document.fields if type(document.fields) is dict else dict(document.fields)
    return _prepared(document.id, 2 * document.version, fields)


def restored(document: Mapping[str, list[Any]], stamp: int) -> Prepared:
    """A document again, of its stored fields."""
    return _prepared(document["id"][0], stamp, read(document["source"][0]))


def _prepared(name: str, stamp: int, fields: Mapping[str, Any]) -> Prepared:
    data: dict[str, Any] = {}
    text: dict[str, Any] = {}
    words: list[str] = []
    for path, value in fields.items():
        kind = type(value)
        place = column(path)
        if kind is str:
            size = len(value)
            data[place] = TEXT + value if size <= _LONGEST else _marked(value)
            found = value if value.isascii() else spread(composed(value))
            words.append(found)
            if size < SHORTEST_OPAQUE or OPAQUE.fullmatch(value) is None:
                text[place] = found
        elif (kind is int or kind is float) and -_EXACT < value < _EXACT:
            data[place] = NUMBER + plain_key(value).rstrip("0")
        else:
            values = value if kind is list else [value]
            data[place] = _stored(path, values)
            texts = [each for each in values if isinstance(each, str)]
            if texts:
                all_found = [spread(composed(each)) for each in texts]
                words += all_found
                if not is_opaque(texts):
                    text[place] = all_found
    source = canonical.encode(_storable(fields))
    content = int.from_bytes(hashlib.blake2b(source, digest_size=8).digest(), "big")
    written = {
        "id": name,
        "content": content,
        "data": data,
        "text": text,
        "words": " ".join(words),
        "source": source,
    }
    return Prepared(name, stamp, content, _encode(written)[:-1])


# Bytes as Base64, which is how tantivy reads them.
_encode = msgspec.json.Encoder().encode


def is_opaque(texts: Sequence[str]) -> bool:
    """Whether `text` has none of the words of these texts of one attribute."""
    return all(map(OPAQUE.fullmatch, texts))


def _stored(path: str, values: Sequence[Any]) -> list[str]:
    """The values of a field as they stand in `data`: each once, without NaN."""
    try:
        return [each for each in dict.fromkeys(map(stored, values)) if each is not None]
    except TypeError as error:
        raise TypeError(f"{path}: {error}") from None


def stored(value: Any) -> str | None:
    """A value as it stands in `data`; None for NaN, which equals nothing. Numbers that are too large for a double are as
    infinite ones. Raises TypeError for what is no scalar."""
    kind = class_of(value)
    if kind is ValueClass.TEXT:
        return _marked(value)
    if kind is ValueClass.BOOLEAN:
        return TRUE if value else FALSE
    key = number_order(value)
    return None if key is None else NUMBER + (key.hex().rstrip("0") if len(key) == _DOUBLE else key.hex())


def shown(text: str) -> Scalar:
    """The value that stands in `data` so, if its text is not cut."""
    if text.startswith(NUMBER):
        return shown_number(bytes.fromhex(text.removeprefix(NUMBER).ljust(2 * _DOUBLE, "0")))
    return text == TRUE if text in (TRUE, FALSE) else text.removeprefix(TEXT)


def _marked(text: str) -> str:
    if len(text) <= _LONGEST:
        return TEXT + text
    return f"{TEXT}{text[:ORDERED_CHARACTERS]}\0{hashlib.sha256(text.encode()).hexdigest()}"


def is_cut(value: str) -> bool:
    """Whether a text of `data` may be the beginning of a long one, and its hash."""
    return len(value) == ORDERED_CHARACTERS + 66 and value[-65] == "\0"


def _storable(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields as JSON keeps them: infinite numbers in a form of their own."""
    if all(isfinite(value) if type(value) is float else type(value) is not list for value in fields.values()):
        return fields
    return {
        path: [_finite(each) for each in value] if isinstance(value, list) else _finite(value)
        for path, value in fields.items()
    }


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not isfinite(value):
        return {"number": str(value)}
    return value


def read(source: bytes) -> dict[str, Any]:
    """The fields of a document, by its `source`."""
    return {
        path: [_unmarked(each) for each in value] if isinstance(value, list) else _unmarked(value)
        for path, value in canonical.decode(source).items()
    }


def _unmarked(value: Any) -> Any:
    return float(value["number"]) if isinstance(value, dict) else value


@lru_cache(maxsize=65_536)
def column(path: str) -> str:
    """The name of an attribute in `data` and `text`."""
    return hashlib.blake2b(path.encode(), digest_size=8).hexdigest()
