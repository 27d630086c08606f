"""Index versions: `NAME-000001` and on, behind the alias NAME that searches and writes go through."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from idgraph.model.errors import ProfileIndexError
from sinks.elasticsearch.client import ElasticsearchClient, RefusedRequestError

LAYOUT = 2
"""Of the keys in `elasticsearch_tokens` and of the mapping: an index of another one must be built again."""

_KEY = {"type": "keyword", "doc_values": False}
MAPPING: dict[str, Any] = {
    # Documents have these fields and no others, whatever attributes come: a mapping that nothing can change.
    "dynamic": "strict",
    # The store has the profile. What is not kept here twice need not be erased twice.
    "_source": {"enabled": False},
    "properties": {
        "id": {"type": "keyword"},
        "texts": _KEY,
        "numbers": _KEY,
        "booleans": _KEY,
        "words": _KEY,
        # Never searched, only read.
        "content": {"type": "keyword", "index": False},
    },
}


class IndexShape(NamedTuple):
    """How an index version is spread over the cluster."""

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
    except RefusedRequestError as error:
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
    """Make one index version, with `meta` kept beside its mapping. Raises RefusedRequestError when there is one of
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


def require_layout(client: ElasticsearchClient) -> None:
    """Raises ProfileIndexError when there is no index behind the alias, or one that an idgraph made which writes
    other keys."""
    name = client.place.name
    found = client.call(lambda api: api.indices.get_mapping(index=name))
    layouts = {each["mappings"].get("_meta", {}).get("layout") for each in found.values()}
    if layouts != {LAYOUT}:
        raise ProfileIndexError(
            f"Elasticsearch index {name}: made by another version of idgraph; `idgraph reindex` makes it again"
        )


def version_name(name: str, number: int) -> str:
    """The name of an index version."""
    return f"{name}-{number:06d}"


def versions(client: ElasticsearchClient) -> dict[str, bool]:
    """The index versions that there are, in their order, and of each whether the alias points at it."""
    name = client.place.name
    found = client.call(lambda api: api.indices.get_alias(index=f"{name}-*", allow_no_indices=True))
    ours = re.compile(re.escape(name) + r"-\d{6}")
    return {each: name in found[each]["aliases"] for each in sorted(found) if ours.fullmatch(each)}
