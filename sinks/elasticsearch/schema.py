"""Index versions: `NAME-000001` and on, behind the alias NAME that searches and writes go through."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from idgraph.model import canonical
from idgraph.model.errors import ProfileIndexError
from idgraph.model.index_versions import VersionState
from idgraph.model.queries import Scalar
from sinks.elasticsearch.client import ElasticsearchClient, ElasticsearchRefusedError
from sinks.index_values import (
    ORDERED_CHARACTERS,
    ValueClass,
    class_of,
    in_column,
    number_key,
    number_order,
    words,
)

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


@lru_cache(maxsize=65_536)
def column(path: str) -> str:
    """The name of an attribute among `columns`."""
    return hashlib.blake2b(path.encode(), digest_size=8).hexdigest()


def column_key(value: Any) -> str:
    """A value in a column: sorts as `Order` does, and `column_value` gives it back."""
    kind = class_of(value)
    if kind is ValueClass.BOOLEAN:
        return f"1{value:d}"
    if kind is ValueClass.TEXT:
        return f"2{text_key(value)}"
    nearest = float(in_column(value)) + 0.0
    order = (number_order(nearest) or b"").hex()
    return f"3{order}{END}{int(nearest) if nearest.is_integer() else nearest}"


def column_value(key: str) -> Scalar:
    """The value of a column; of a long text its beginning."""
    kind, content = key[0], key[1:]
    if kind == "1":
        return content == "1"
    if kind == "2":
        return content if len(content) <= ORDERED_CHARACTERS else content[:ORDERED_CHARACTERS]
    number = content.partition(END)[2]
    return int(number) if number.lstrip("-").isdigit() else float(number)


class DocumentSource(NamedTuple):
    """The JSON of a document, and the hash of it that stands there as `content`."""

    json: bytes
    content: str


def source(document_id: str, fields: Mapping[str, Any]) -> DocumentSource:
    """A document as it is kept; the order of its fields makes no difference.

    Raises TypeError for a value that is neither a scalar nor a list of scalars, naming the path, and
    UnicodeEncodeError for text that is not valid Unicode.
    """
    keys: dict[str, Any] = {"id": document_id, "texts": [], "numbers": [], "booleans": [], "words": []}
    keys |= {"paths": [], "text": [], "columns": {}}
    for path, value in sorted(fields.items()):
        found: list[str] = []
        columns: list[str] = []
        for scalar in value if type(value) is list else (value,):
            try:
                key = value_key(path, scalar)
            except TypeError as error:
                raise TypeError(f"{path}: {error}") from None
            if key is not None:
                keys[key[0]].append(key[1])
                columns.append(column_key(scalar))
            if isinstance(scalar, str):
                there = words(scalar)
                found += there
                keys["text"] += there
        if columns:
            keys["paths"].append(path_key(path))
            keys["columns"][column(path)] = columns
        if found:
            end = END + path_key(path)
            keys["words"] += [word + end for word in found]
    keys["text"] = " ".join(keys["text"])
    json = canonical.encode({field: value for field, value in keys.items() if value})
    content = hashlib.blake2b(json, digest_size=_CONTENT_BYTES).hexdigest()
    return DocumentSource(b'%b,"content":"%b"}' % (json[:-1], content.encode("ascii")), content)


LAYOUT = 4
"""The version of keys and mapping: an index of another one must be built again."""

_KEY = {"type": "keyword", "doc_values": False}
MAPPING: dict[str, Any] = {
    # Documents have these fields and no others, whatever attributes come: a mapping that nothing can change.
    "dynamic": "strict",
    # The store has the profile. A value that is not kept here need not be erased here.
    "_source": {"enabled": False},
    "properties": {
        "id": {"type": "keyword"},
        "texts": _KEY,
        "numbers": _KEY,
        "booleans": _KEY,
        # Each with its path, as often as it stands there. Nothing of the length of the profile, which has hidden attributes.
        "words": {"type": "text", "analyzer": "keyword", "index_options": "freqs", "norms": False},
        "paths": _KEY,
        # The words of the profile, by which answers are ranked.
        "text": {"type": "text", "analyzer": "whitespace", "index_options": "freqs"},
        # For order and facets: one field, however many attributes there are.
        "columns": {"type": "flattened", "index": False},
        # Never searched, only read.
        "content": {"type": "keyword", "index": False},
    },
}


class IndexShape(NamedTuple):
    """The distribution of an index version over the cluster."""

    shards: int = 1
    replicas: int = 1


def create(client: ElasticsearchClient, shape: IndexShape) -> str | None:
    """Make the first index version and the alias; gives its name, None when the alias is there already."""
    name = client.place.name
    if client.call(lambda api: api.indices.exists_alias(name=name)):
        return None
    first = version_name(name, 1)
    try:
        make(client, first, shape, {name: {}})
    except ElasticsearchRefusedError as error:
        # Somebody else makes it at this moment.
        if error.reason != "resource_already_exists_exception":
            raise
        return None
    return first


def make(
    client: ElasticsearchClient,
    index: str,
    shape: IndexShape,
    aliases: dict[str, Any],
    meta: dict[str, Any] | None = None,
) -> None:
    """Make one index version, with `meta` kept beside its mapping. Raises ElasticsearchRefusedError when there is one of
    this name."""
    settings = {
        "number_of_shards": shape.shards,
        "number_of_replicas": shape.replicas,
        # So that `compact` leaves nothing, and a copy that was lost is waited for no longer than this.
        "merge.policy.expunge_deletes_allowed": 0,
        "soft_deletes.retention_lease.period": "10m",
    }
    mapping = {**MAPPING, "_meta": {"layout": LAYOUT, **(meta or {})}}
    client.call(
        lambda api: api.indices.create(index=index, settings=settings, mappings=mapping, aliases=aliases)
    )


def remove(client: ElasticsearchClient, index: str) -> None:
    """Delete one index version for good."""
    client.call(lambda api: api.indices.delete(index=index, ignore_unavailable=True))


def layouts(client: ElasticsearchClient) -> set[int]:
    """The formats of the indices behind the alias, 0 for one of others. Raises ProfileIndexError when there is none."""
    name = client.place.name
    found = client.call(lambda api: api.indices.get_mapping(index=name))
    return {each["mappings"].get("_meta", {}).get("layout", 0) for each in found.values()}


def require_layout(client: ElasticsearchClient) -> None:
    """Raises ProfileIndexError when there is no index behind the alias, or one that an idgraph made which writes
    other keys."""
    name = client.place.name
    if layouts(client) != {LAYOUT}:
        raise ProfileIndexError(
            f"Elasticsearch index {name}: made by another version of idgraph; `idgraph reindex` makes it again"
        )


def made_alias(name: str) -> str:
    """The alias of the version that is being made: there is one as long as it is."""
    return f"{name}-being-made"


def version_name(name: str, number: int) -> str:
    """The name of an index version."""
    return f"{name}-{number:06d}"


def versions(client: ElasticsearchClient) -> dict[str, VersionState]:
    """The index versions that there are, in their order."""
    name = client.place.name
    found = client.call(lambda api: api.indices.get_alias(index=f"{name}-*", allow_no_indices=True))
    ours = re.compile(re.escape(name) + r"-\d{6}")
    return {each: _state(name, found[each]["aliases"]) for each in sorted(found) if ours.fullmatch(each)}


def _state(name: str, aliases: Mapping[str, Any]) -> VersionState:
    if name in aliases:
        return VersionState.IN_USE
    return VersionState.MADE if made_alias(name) in aliases else VersionState.REPLACED
