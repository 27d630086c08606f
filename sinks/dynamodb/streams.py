"""DynamoDB Streams of the fragments table: shards, iterators and what their records say.

An iterator is good for a quarter of an hour, so it is only kept beside the place that it stands at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from idgraph.model.errors import StoreError, TrimmedStreamError
from idgraph.model.store import Shard, ShardPage
from sinks.dynamodb.client import DynamoClient
from sinks.dynamodb.connection import DynamoRefusedError, TablesLocation
from sinks.dynamodb.schema import FRAGMENTS

_EXPIRED = "ExpiredIteratorException"
_TRIMMED = frozenset({"TrimmedDataAccessException", "ResourceNotFoundException"})
_IMAGE = "NEW_IMAGE"


class _Standing(NamedTuple):
    """An iterator, and the place behind which it stands."""

    after: str | None
    iterator: str


class DynamoStream:
    """The `ChangeStream` of the tables at a place. For one thread."""

    def __init__(self, place: TablesLocation) -> None:
        self._tables = DynamoClient(place)
        self._streams = DynamoClient(place, "dynamodbstreams")
        self._table = self._tables.table(FRAGMENTS)
        self._arn = ""
        self._standing: dict[str, _Standing] = {}

    @property
    def name(self) -> str:
        """Its ARN. Raises StoreError when the table has no stream of new images."""
        if not self._arn:
            description = self._tables.call("describe_table", self._table, TableName=self._table)["Table"]
            if description.get("StreamSpecification", {}).get("StreamViewType") not in (
                _IMAGE,
                "NEW_AND_OLD_IMAGES",
            ):
                raise StoreError(f"DynamoDB table {self._table}: has no stream of new images; switch one on")
            self._arn = str(description["LatestStreamArn"])
        return self._arn

    def shards(self) -> Mapping[str, Shard]:
        return {each["ShardId"]: Shard(each.get("ParentShardId")) for each in self._described()}

    def read(self, shard: str, after: str | None) -> ShardPage:
        answer = self._records(shard, after)
        records: list[Any] = answer["Records"]
        place = str(records[-1]["dynamodb"]["SequenceNumber"]) if records else None
        following = answer.get("NextShardIterator")
        if following:
            self._standing[shard] = _Standing(place or after, following)
        else:
            self._standing.pop(shard, None)
        images = (each["dynamodb"].get("NewImage", {}) for each in records)
        # A settled entry needs nothing.
        ids = {image["fragment"]["S"]: None for image in images if "waiting" in image}
        return ShardPage([*ids], place, not following)

    def close(self) -> None:
        self._tables.close()
        self._streams.close()

    def _records(self, shard: str, after: str | None) -> Any:
        standing = self._standing.pop(shard, None)
        iterator = standing.iterator if standing and standing.after == after else None
        while True:
            fresh = iterator is None
            try:
                iterator = iterator or self._iterator(shard, after)
                return self._streams.call("get_records", self._table, ShardIterator=iterator)
            except DynamoRefusedError as error:
                if error.code in _TRIMMED:
                    raise TrimmedStreamError(
                        f"DynamoDB table {self._table}: its stream has dropped what was not read yet"
                    ) from None
                # A new one is not expired.
                if error.code != _EXPIRED or fresh:
                    raise
                iterator = None

    def _iterator(self, shard: str, after: str | None) -> str:
        begin = (
            {"ShardIteratorType": "TRIM_HORIZON"}
            if after is None
            else {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": after}
        )
        answer = self._streams.call(
            "get_shard_iterator", self._table, StreamArn=self.name, ShardId=shard, **begin
        )
        return str(answer["ShardIterator"])

    def _described(self) -> Iterator[Any]:
        request: dict[str, Any] = {"StreamArn": self.name}
        while True:
            description = self._streams.call("describe_stream", self._table, **request)["StreamDescription"]
            yield from description["Shards"]
            if "LastEvaluatedShardId" not in description:
                return
            request["ExclusiveStartShardId"] = description["LastEvaluatedShardId"]
