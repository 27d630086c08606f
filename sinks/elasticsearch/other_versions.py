"""The versions of an index that no alias points at: what an erasure must reach, and how writing is blocked there."""

from __future__ import annotations

from collections.abc import Mapping

from sinks.elasticsearch.bulk import erase
from sinks.elasticsearch.client import ElasticsearchClient
from sinks.elasticsearch.schema import versions


def erase_elsewhere(client: ElasticsearchClient, tombstones: Mapping[str, int]) -> None:
    """Put tombstones (Elasticsearch's versions by key) into every version that is not in use."""
    known = versions(client)
    in_use = max((each for each, is_used in known.items() if is_used), default="")
    for index, is_used in known.items():
        if is_used:
            continue
        if index > in_use:
            erase(client, index, tombstones, is_alias=False)
            continue
        # A version that was replaced takes nothing but this.
        unblock(client, index)
        try:
            erase(client, index, tombstones, is_alias=False)
        finally:
            block(client, index)


def block(client: ElasticsearchClient, index: str) -> None:
    """Have all writes refused; those that were in progress are done when it returns."""
    client.call(lambda api: api.indices.add_block(index=index, block="write"))


def unblock(client: ElasticsearchClient, index: str) -> None:
    """Have writes taken again."""
    client.call(lambda api: api.indices.put_settings(index=index, settings={"index.blocks.write": None}))
