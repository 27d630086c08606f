"""DynamoDB Streams of the fragments table: the ids of fragments that got an entry in the outbox.

It is read from now on, and nothing is kept of how far: the outbox has every entry. An iterator is good for a quarter of
an hour.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

from idgraph.model.errors import StoreError, TrimmedStreamError
from sinks.dynamodb.client import DynamoClient
from sinks.dynamodb.connection import DynamoRefusedError, TablesLocation
from sinks.dynamodb.schema import FRAGMENTS

SHARDS_SECONDS = 10.0
"""Between questions for the list of shards, which all consumers of an account share ten of a second, unless one has
come to its end."""
_TRIMMED = frozenset({"TrimmedDataAccessException", "ResourceNotFoundException"})
_IMAGES = frozenset({"NEW_IMAGE", "NEW_AND_OLD_IMAGES"})


class DynamoStream:
    """The `ChangeStream` of the tables at a place. For one thread."""

    def __init__(self, place: TablesLocation) -> None:
        self._tables = DynamoClient(place)
        self._streams = DynamoClient(place, "dynamodbstreams")
        self._table = self._tables.table(FRAGMENTS)
        self._arn = ""
        self._known: set[str] | None = None
        """The shards of the last list; None before the first."""
        self._iterators: dict[str, str] = {}
        self._listed = -math.inf

    @property
    def name(self) -> str:
        """Its ARN. Raises StoreError when the table has no stream of new images."""
        if not self._arn:
            description = self._tables.call("describe_table", self._table, TableName=self._table)["Table"]
            if description.get("StreamSpecification", {}).get("StreamViewType") not in _IMAGES:
                raise StoreError(f"DynamoDB table {self._table}: has no stream of new images; switch one on")
            self._arn = str(description["LatestStreamArn"])
        return self._arn

    @property
    def shards(self) -> int:
        """The number of shards that are read."""
        return len(self._iterators)

    def changed(self) -> list[str]:
        try:
            if time.monotonic() >= self._listed + SHARDS_SECONDS:
                self._list_shards()
            ids: dict[str, None] = {}
            for shard in list(self._iterators):
                ids |= self._read(shard)
        except StoreError as error:
            # It begins again at the newest change.
            self._arn, self._known, self._iterators, self._listed = "", None, {}, -math.inf
            if isinstance(error, DynamoRefusedError) and error.code in _TRIMMED:
                raise TrimmedStreamError(
                    f"DynamoDB table {self._table}: its stream has dropped entries that were not read yet"
                ) from None
            raise
        return [*ids]

    def close(self) -> None:
        self._tables.close()
        self._streams.close()

    def _list_shards(self) -> None:
        listed = list(self._described())
        for shard in listed:
            name, is_open = shard["ShardId"], "EndingSequenceNumber" not in shard["SequenceNumberRange"]
            if self._known is not None and name not in self._known:
                self._iterators[name] = self._iterator(name, "TRIM_HORIZON")
            elif self._known is None and is_open:
                self._iterators[name] = self._iterator(name, "LATEST")
        self._known = {each["ShardId"] for each in listed}
        self._listed = time.monotonic()

    def _read(self, shard: str) -> dict[str, None]:
        iterator = self._iterators.pop(shard)
        answer = self._streams.call("get_records", self._table, ShardIterator=iterator)
        if following := answer.get("NextShardIterator"):
            self._iterators[shard] = following
        else:
            # Its children are listed now.
            self._listed = -math.inf
        images = (each["dynamodb"].get("NewImage", {}) for each in answer["Records"])
        # A settled entry needs nothing.
        return {image["fragment"]["S"]: None for image in images if "waiting" in image}

    def _iterator(self, shard: str, begin: str) -> str:
        place = {"StreamArn": self.name, "ShardId": shard, "ShardIteratorType": begin}
        return str(self._streams.call("get_shard_iterator", self._table, **place)["ShardIterator"])

    def _described(self) -> Iterator[Any]:
        request: dict[str, Any] = {"StreamArn": self.name}
        while True:
            description = self._streams.call("describe_stream", self._table, **request)["StreamDescription"]
            yield from description["Shards"]
            if "LastEvaluatedShardId" not in description:
                return
            request["ExclusiveStartShardId"] = description["LastEvaluatedShardId"]
