"""Taking what was erased or replaced out of Elasticsearch's files.

A write only marks the old document as gone. Its bytes go when segments are merged, and only those that no copy of
the shard may still ask for: each copy holds a lease on the operations behind its own, which is renewed every half
minute. So: wait for the leases, write the log to segments, merge.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from idgraph.model.errors import ProfileIndexError
from sinks.elasticsearch.client import ElasticsearchClient
from sinks.elasticsearch.schema import versions

LEASE_SECONDS = 90.0
MERGE_SECONDS = 3600.0

_STATS = [
    "indices.*.shards.*.seq_no.max_seq_no",
    "indices.*.shards.*.retention_leases.leases.retaining_seq_no",
]


def compact(client: ElasticsearchClient) -> None:
    """Raises ProfileIndexError when a copy of a shard lags behind: something may be left then."""
    # What was replaced by a newer version too: an erasure reaches all.
    indices = list(versions(client))
    wanted = {shard: last for shard, last, _ in _shards(client, indices)}
    deadline = time.monotonic() + LEASE_SECONDS
    while any(lease <= wanted.get(shard, -1) for shard, _, lease in _shards(client, indices)):
        if time.monotonic() > deadline:
            raise ProfileIndexError(
                f"Elasticsearch index {client.place.name}: a copy of it lags behind, so what was erased may still be in its "
                "files; repair the cluster, then `idgraph erase --again`"
            )
        time.sleep(0.2)
    client.call(lambda api: api.indices.flush(index=indices, force=True), MERGE_SECONDS)
    client.call(lambda api: api.indices.forcemerge(index=indices, only_expunge_deletes=True), MERGE_SECONDS)
    # What was merged away is deleted by the next commit.
    client.call(lambda api: api.indices.flush(index=indices, force=True), MERGE_SECONDS)


def _shards(client: ElasticsearchClient, indices: list[str]) -> Iterator[tuple[tuple[str, str], int, int]]:
    """Of each copy of each shard: which it is, its last operation, and the first that somebody may ask for."""
    answer: Mapping[str, Any] = client.call(
        lambda api: api.indices.stats(index=indices, metric="_all", level="shards", filter_path=_STATS)
    )
    for index, content in answer.get("indices", {}).items():
        for number, copies in content["shards"].items():
            for each in copies:
                leases = each.get("retention_leases", {}).get("leases", [])
                last = each["seq_no"]["max_seq_no"]
                yield (index, number), last, min((it["retaining_seq_no"] for it in leases), default=last + 1)
