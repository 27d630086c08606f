"""DynamoDB's low-level API: retries, batches, and what was consumed.

Attribute values are those of the wire: `{"S": text}`, `{"N": digits}`, `{"B": bytes}`, `{"SS": [text]}`.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from typing import Any, NamedTuple, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from idgraph.model.errors import StoreError
from sinks.aws_connection import Retry
from sinks.dynamodb.connection import Capacity, DynamoRefusedError, TablesLocation, connect

T = TypeVar("T")
R = TypeVar("R")

Item = dict[str, Any]

GET_KEYS = 100
PUT_ITEMS = 25
STATEMENTS = 25
"""The most that one request takes: keys to read, items to put or delete, PartiQL statements."""

PARTITIONS = 10
"""Partitions per selection: DynamoDB takes 50, and answers in pages of 10 items."""

THREADS = 8
"""Requests of one call that are in progress at once."""

REFUSED = "ConditionalCheckFailed"
"""The refusal of a statement whose condition does not hold."""

TOO_LARGE = "item too large"
"""The refusal of a statement that would make an item larger than DynamoDB takes."""

_CONDITION_FAILED = frozenset({REFUSED, "DuplicateItem"})

_TRANSIENT = frozenset(
    {
        "InternalServerError",
        "InternalServerErrorException",
        "LimitExceededException",
        "ProvisionedThroughputExceeded",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestTimeout",
        "ServiceUnavailable",
        "Throttling",
        "ThrottlingError",
        "ThrottlingException",
        "TransactionConflict",
        "TransactionConflictException",
        "TransactionInProgressException",
    }
)


_THREAD_NAME = "dynamodb-request"

_READS = frozenset({"batch_get_item", "execute_statement", "query", "scan"})


class _Opened(NamedTuple):
    client: Any
    threads: ThreadPoolExecutor


class Statement(NamedTuple):
    """One PartiQL statement with its parameters, in their order."""

    text: str
    parameters: list[Item]


class DynamoClient:
    """One place's tables. Safe for several threads. All methods raise StoreError, whose message
    names the table and DynamoDB's reason, never a value."""

    def __init__(self, place: TablesLocation, service: str = "dynamodb") -> None:
        """`service` is AWS's name of the API, of which only `call` is the same for all."""
        self.place = place
        self._service = service
        self._opened: _Opened | None = None
        self._is_closed = False
        self._lock = threading.Lock()
        self._read = self._write = 0.0

    def table(self, name: str) -> str:
        """The full name of one of our tables."""
        return f"{self.place.prefix}-{name}"

    def consumed(self) -> Capacity:
        """The consumption of this client's requests so far."""
        with self._lock:
            return Capacity(self._read, self._write)

    def _retry(self, table: str) -> Retry:
        return Retry(table, self.place.retry_seconds)

    def call(self, operation: str, table: str, **request: Any) -> Any:
        """One request, again while DynamoDB throttles it or is away. Raises DynamoRefusedError."""
        retry = self._retry(table)
        while True:
            try:
                answer = getattr(self._open().client, operation)(**request)
            except ClientError as error:
                code = str(error.response.get("Error", {}).get("Code"))
                # Something between here and DynamoDB may answer by a status alone.
                status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
                if code not in _TRANSIENT and status < 500:
                    raise DynamoRefusedError(table, code, error.response) from None
                reason = code
            except BotoCoreError as error:
                where = self.place.endpoint or f"{self._service}.{self.place.region}"
                reason = f"no whole answer from {where}, is it up? ({type(error).__name__})"
            else:
                self._count(operation, answer)
                return answer
            retry.pause(reason)

    def get(self, table: str, keys: Sequence[Item], attributes: str | None = None) -> list[Item]:
        """The items of these distinct keys that there are, read consistently, in no order."""
        name = self.table(table)
        found: list[Item] = []

        def some(page: Sequence[Item]) -> list[Item]:
            items: list[Item] = []
            request: Item = {"Keys": list(page), "ConsistentRead": True}
            if attributes:
                request["ProjectionExpression"] = attributes
            retry = self._retry(name)
            while True:
                answer = self.call(
                    "batch_get_item", name, RequestItems={name: request}, ReturnConsumedCapacity="TOTAL"
                )
                items += answer["Responses"].get(name, [])
                # Throttled, or beyond the 16 MB of one answer.
                left = answer.get("UnprocessedKeys", {}).get(name)
                if not left:
                    return items
                if len(left["Keys"]) == len(request["Keys"]):
                    retry.pause("throttled")
                request = left

        for items in self.each(some, _pages(keys, GET_KEYS)):
            found += items
        return found

    def put(self, table: str, requests: Sequence[Item]) -> None:
        """Put or delete items whatever is there: `{"PutRequest": ...}`, `{"DeleteRequest": ...}`, no key twice."""
        name = self.table(table)

        def some(page: Sequence[Item]) -> None:
            left = list(page)
            retry = self._retry(name)
            while True:
                answer = self.call(
                    "batch_write_item", name, RequestItems={name: left}, ReturnConsumedCapacity="TOTAL"
                )
                left = answer.get("UnprocessedItems", {}).get(name, [])
                if not left:
                    return
                retry.pause("throttled")

        self.each(some, _pages(requests, PUT_ITEMS))

    def execute(self, table: str, statements: Sequence[Statement]) -> list[str | None]:
        """Write by PartiQL, each statement by itself, and in their order what each was refused with: None when it
        was not, REFUSED, TOO_LARGE, else DynamoDB's code.

        A statement that was throttled is retried, without the others.
        """
        name = self.table(table)

        def some(page: Sequence[Statement]) -> list[str | None]:
            refusals: list[str | None] = [None] * len(page)
            left = list(range(len(page)))
            retry = self._retry(name)
            while True:
                answer = self.call(
                    "batch_execute_statement",
                    name,
                    Statements=[
                        {"Statement": page[each].text, "Parameters": page[each].parameters} for each in left
                    ],
                    ReturnConsumedCapacity="TOTAL",
                )
                again: list[int] = []
                for each, response in zip(left, answer["Responses"], strict=True):
                    code = _refusal(response.get("Error"))
                    if code in _TRANSIENT:
                        again.append(each)
                    else:
                        refusals[each] = code
                if not again:
                    return refusals
                left = again
                retry.pause("throttled")

        return [each for answers in self.each(some, _pages(statements, STATEMENTS)) for each in answers]

    def execute_whole(self, table: str, statements: Sequence[Statement]) -> str | None:
        """Write by PartiQL all of some statements or none; what one was refused with, as of `execute`."""
        made = [{"Statement": each.text, "Parameters": each.parameters} for each in statements]
        refusals = self._transact("execute_transaction", table, TransactStatements=made)
        return next((each for each in (REFUSED, TOO_LARGE) if each in refusals), None)

    def transact(self, table: str, actions: Sequence[Item]) -> list[str | None]:
        """Make all of some changes, as of `TransactWriteItems`, or none. Empty when they are made, else in their order what each
        was refused with, as of `execute`."""
        return self._transact("transact_write_items", table, TransactItems=list(actions))

    def _transact(self, operation: str, table: str, **request: object) -> list[str | None]:
        name = self.table(table)
        retry = self._retry(name)
        while True:
            try:
                self.call(
                    operation,
                    name,
                    # One whose answer was lost is not done twice, and not taken for refused.
                    ClientRequestToken=uuid.uuid4().hex,
                    ReturnConsumedCapacity="TOTAL",
                    **request,
                )
            except DynamoRefusedError as error:
                reasons = error.response.get("CancellationReasons", [])
                refusals = [None if each["Code"] == "None" else _refusal(each) for each in reasons]
                if REFUSED in refusals or TOO_LARGE in refusals:
                    return [None if each in _TRANSIENT else each for each in refusals]
                codes = set(filter(None, refusals))
                if not codes or not codes <= _TRANSIENT:
                    raise
            else:
                return []
            retry.pause("throttled, or another transaction was in the way")

    def query(self, operation: str, table: str, **request: Any) -> Iterator[Item]:
        """All items of a `query` or `scan`, page after page of at most 1 MB."""
        name = self.table(table)
        while True:
            answer = self.call(operation, name, TableName=name, ReturnConsumedCapacity="TOTAL", **request)
            yield from answer["Items"]
            if "LastEvaluatedKey" not in answer:
                return
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def partitions(
        self, table: str, keys: Sequence[bytes], limit: int
    ) -> list[tuple[Sequence[bytes], list[Item] | None]]:
        """All items of these distinct partitions, read consistently, a few partitions at once; None in place of the items
        where these partitions have more than `limit`."""
        name = self.table(table)

        def some(page: Sequence[bytes]) -> tuple[Sequence[bytes], list[Item] | None]:
            found: list[Item] = []
            request: Item = {
                "Statement": f'SELECT * FROM "{name}" WHERE pk IN [{", ".join("?" * len(page))}]',  # noqa: S608 - ours
                "Parameters": [{"B": each} for each in page],
                "Limit": limit,
            }
            while len(found) <= limit:
                answer = self.call(
                    "execute_statement",
                    name,
                    ConsistentRead=True,
                    ReturnConsumedCapacity="TOTAL",
                    **request,
                )
                found += answer["Items"]
                if "NextToken" not in answer:
                    return page, found
                request["NextToken"] = answer["NextToken"]
            return page, None

        return self.each(some, _pages(keys, PARTITIONS))

    def each(self, work: Callable[[T], R], parts: Sequence[T]) -> list[R]:
        """Run `work` on every part, several at once; results in the order of the parts.

        Once a part has failed those that are not begun are left out, and its error is raised. Nothing continues when this
        returns or raises: the caller gives back what keeps others away, and what is written behind that is in their way.
        """
        opened = self._open()
        # A thread that waited for others of its own pool might wait for ever.
        if len(parts) <= 1 or threading.current_thread().name.startswith(_THREAD_NAME):
            return [work(part) for part in parts]
        begun: list[Future[R]] = []
        try:
            for part in parts:
                begun.append(opened.threads.submit(work, part))
            for done in as_completed(begun):
                done.result()
            return [each.result() for each in begun]
        finally:
            # A request that can still be cancelled runs in no thread yet.
            wait([each for each in begun if not each.cancel()])

    def check_open(self) -> None:
        """For what needs no request. Raises StoreError when it is closed."""
        self._open()

    def close(self) -> None:
        """A later use raises StoreError."""
        with self._lock:
            self._is_closed = True
            opened, self._opened = self._opened, None
        if opened:
            opened.threads.shutdown(wait=False)
            opened.client.close()

    def _open(self) -> _Opened:
        with self._lock:
            if self._is_closed:
                raise StoreError(f"DynamoDB tables {self.place.prefix}-*: the store is closed")
            if self._opened is None:
                threads = ThreadPoolExecutor(THREADS, _THREAD_NAME)
                self._opened = _Opened(connect(self.place, 2 * THREADS, self._service), threads)
            return self._opened

    def _count(self, operation: str, answer: Mapping[str, Any]) -> None:
        consumed = answer.get("ConsumedCapacity") or []
        units = sum(
            float(each["CapacityUnits"]) for each in (consumed if isinstance(consumed, list) else [consumed])
        )
        with self._lock:
            if operation in _READS:
                self._read += units
            else:
                self._write += units


def _refusal(error: Mapping[str, str] | None) -> str | None:
    if error is None:
        return None
    message = error.get("Message", "")
    # The latter is what DynamoDB Local says within a transaction.
    if error["Code"] in _CONDITION_FAILED or "Duplicate primary key" in message:
        return REFUSED
    if error["Code"] == "ValidationError" and "size" in message:
        return TOO_LARGE
    return error["Code"]


def _pages(items: Sequence[T], size: int) -> list[Sequence[T]]:
    return [items[start : start + size] for start in range(0, len(items), size)]
