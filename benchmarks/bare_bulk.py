"""A bare client of Elasticsearch that puts documents of profiles and does nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from elasticsearch import Elasticsearch

from idgraph.model.index import IndexDocument
from sinks.elasticsearch.schema import MAPPING, source

INDEX = "bare"


class BareBulk:
    """Bulk requests to an index of its own, of idgraph's mapping."""

    def __init__(self, url: str) -> None:
        self._client = Elasticsearch(url)
        self._client.indices.create(index=INDEX, mappings=MAPPING, settings={"number_of_replicas": 0})

    def body(self, documents: Sequence[IndexDocument]) -> bytes:
        """A request, made beforehand."""
        return b"".join(
            b'{"index":{"_id":"%b"}}\n%b\n' % (each.id.encode(), source(each.id, each.fields).json)
            for each in documents
        )

    def put(self, bodies: Iterable[bytes]) -> None:
        """Without a refresh."""
        for body in bodies:
            answer = self._client.bulk(index=INDEX, operations=body, filter_path=["errors"])
            assert not answer["errors"]

    def close(self) -> None:
        self._client.close()
