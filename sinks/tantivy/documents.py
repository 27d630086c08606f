"""Documents of the embedded index: their fields in tantivy, and the keys by which values are found.

A profile is one document with these fields:

| field | content |
|---|---|
| `name` | the keyed hash of its id, in hexadecimal: by it a document is replaced |
| `hash` | 64 bits of the name, to read it from a column |
| `stamp` | 2 * version, of the tombstone of an erased profile 2 * version + 1: the larger one wins |
| `content` | 64 bits of a hash of `source`, by which documents are compared |
| `id` | the profile's id; a tombstone has none, nor any of what follows |
| `keys` | for each value: hash of its path, class, and the value in an order of its own, in hexadecimal |
| `data` | the fields as JSON: columns for order and facets, and words by path, with pairs behind texts of scripts without blanks |
| `words` | all text |
| `source` | the fields, to write the document again |

Types cannot clash: a key holds the class of its value, and a JSON column holds values of each class.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from math import isfinite
from typing import Any, NamedTuple

import msgspec
from tantivy import Schema, SchemaBuilder

from idgraph.model import canonical
from idgraph.model.index import IndexDocument
from idgraph.model.queries import Scalar
from sinks.index_values import (
    BEHIND_TEXT,
    ORDERED_CHARACTERS,
    ValueClass,
    class_of,
    composed,
    in_column,
    number_key,
    plain_key,
    spread,
)

ANALYZER = "words"

BOOLEANS, NUMBERS, TEXTS = "b", "n", "t"
"""The classes of keys."""
BEHIND = "g"
"""Sorts behind every key that begins alike: these are hexadecimal."""

_EXACT = 2**53
_LARGEST = 2**64 - 1
_SMALLEST = -(2**63)
_DATE_CHARACTERS = 20
_AS_TEXT = "\x1f"
"""Before a text that tantivy would take for a date."""


def schema() -> Schema:
    """The fields of every document."""
    builder = SchemaBuilder()
    builder.add_text_field("name", stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_unsigned_field("hash", fast=True)
    builder.add_unsigned_field("stamp", fast=True)
    builder.add_unsigned_field("content", fast=True)
    builder.add_text_field("id", stored=True, fast=True, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("keys", tokenizer_name="raw", index_option="basic")
    builder.add_json_field("data", fast=True, tokenizer_name=ANALYZER, index_option="freq")
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
    return _prepared(document["id"][0], stamp, _read(document["source"][0]))


def _prepared(name: str, stamp: int, fields: Mapping[str, Any]) -> Prepared:
    keys: list[str] = []
    texts: list[str] = []
    changed: dict[str, Any] = {}
    for path, value in fields.items():
        kind = type(value)
        begin = path_key(path)
        if kind is str:
            keys.append(begin + text_key(value))
            text = value if value.isascii() else spread(composed(value))
            texts.append(text)
            if text is not value or (text[10:11] == "T" and len(text) >= _DATE_CHARACTERS):
                changed[path] = _not_a_date(text)
        elif kind is bool:
            keys.append(begin + ("b1" if value else "b0"))
        elif (kind is int or kind is float) and -_EXACT < value < _EXACT:
            keys.append(begin + NUMBERS + plain_key(value))
        else:
            values = value if kind is list else [value]
            changed[path] = [_add(path, each, keys, texts) for each in _distinct(path, values)]
    source = canonical.encode(_storable(fields) if changed else fields)
    data: Any = msgspec.Raw(source)
    if changed or any("\0" in path for path in fields):
        data = {column(path): changed.get(path, value) for path, value in fields.items()}
    content = int.from_bytes(hashlib.blake2b(source, digest_size=8).digest(), "big")
    written = {
        "id": name,
        "content": content,
        "keys": keys,
        "data": data,
        "words": " ".join(texts),
        "source": source,
    }
    return Prepared(name, stamp, content, _encode(written)[:-1])


# Bytes as Base64, which is how tantivy reads them.
_encode = msgspec.json.Encoder().encode


def _distinct(path: str, values: list[Any]) -> list[Any]:
    """The values of a field without NaN, each once."""
    found: dict[str, Any] = {}
    for each in values:
        try:
            key = value_key(each)
        except TypeError as error:
            raise TypeError(f"{path}: {error}") from None
        if key is not None:
            found[key] = each
    return list(found.values())


def _add(path: str, value: Any, keys: list[str], texts: list[str]) -> Scalar:
    """Add the key of a value, and its text; gives what stands in the column."""
    key = value_key(value)
    keys.append(path_key(path) + (key or ""))
    if isinstance(value, str):
        text = spread(composed(value))
        texts.append(text)
        return _not_a_date(text)
    if isinstance(value, bool):
        return value
    number = in_column(value)
    return number if type(number) is int and _SMALLEST <= number <= _LARGEST else float(number)


def _not_a_date(text: str) -> str:
    return _AS_TEXT + text if text[10:11] == "T" and len(text) >= _DATE_CHARACTERS else text


def shown(value: Scalar) -> Scalar:
    """The value of a column as it was given."""
    if not isinstance(value, str):
        return value
    text, behind, pairs = value.removeprefix(_AS_TEXT).rpartition(BEHIND_TEXT)
    # A text that has the character itself, and no pairs.
    return text if behind and spread(text) == f"{text}{behind}{pairs}" else text + behind + pairs


def _storable(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields as JSON keeps them: infinite numbers in a form of their own."""
    if all(isfinite(value) if type(value) is float else type(value) is not list for value in fields.values()):
        return fields
    return {
        path: [_marked(each) for each in value] if isinstance(value, list) else _marked(value)
        for path, value in fields.items()
    }


def _marked(value: Any) -> Any:
    if isinstance(value, float) and not isfinite(value):
        return {"number": str(value)}
    return value


def _read(source: bytes) -> dict[str, Any]:
    return {
        path: [_unmarked(each) for each in value] if isinstance(value, list) else _unmarked(value)
        for path, value in canonical.decode(source).items()
    }


def _unmarked(value: Any) -> Any:
    return float(value["number"]) if isinstance(value, dict) else value


@lru_cache(maxsize=65_536)
def path_key(path: str) -> str:
    """The beginning of a path's keys."""
    return hashlib.blake2b(path.encode(), digest_size=8).hexdigest()


def value_key(value: Any) -> str | None:
    """Class and value of a key; None for NaN, which equals nothing. Raises TypeError for what is no scalar."""
    kind = class_of(value)
    if kind is ValueClass.TEXT:
        return text_key(value)
    if kind is ValueClass.BOOLEAN:
        return f"{BOOLEANS}{value:d}"
    key = number_key(value)
    return None if key is None else NUMBERS + key.hex()


def text_key(text: str) -> str:
    """Distinct for distinct texts; sorts as their first characters do."""
    if len(text) <= ORDERED_CHARACTERS:
        return TEXTS + text.encode().hex()
    return f"{TEXTS}{text[:ORDERED_CHARACTERS].encode().hex()}00{hashlib.sha256(text.encode()).hexdigest()}"


def column(path: str) -> str:
    """The name of an attribute in `data`: one character cannot stand there."""
    return path.replace("\0", "\x02")


def column_path(path: str) -> str:
    """Tantivy's name of an attribute in `data`."""
    escaped = column(path).replace("\\", "\\\\").replace(".", "\\.")
    return f"data.{escaped}"
