"""Dead letters in DynamoDB: each one a record of the table `shared`, sealed by a key in the table of their keys.

dead letters SHARD          by id: the dead letter, its payload as the body
dead letters of batch NAME  by id: its attempt
dead letters by age SHARD   by the time it was set aside, and the id
dead letters of POSITION    by id: those of fragments; the position is hashed

An entry of a list is there before its dead letter, and gone after it. A reader leaves out an entry to which no dead
letter belongs. Keys are there before all of it, and gone before.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any

from idgraph.model.dead_letters import FRAGMENT, DeadLetter, DeadLetterReason
from sinks.dynamodb.client import DynamoClient, Statement
from sinks.dynamodb.connection import TablesLocation
from sinks.dynamodb.fragments import raise_refused
from sinks.dynamodb.records import LAST, DynamoRecords, Key, Row, shard_of
from sinks.dynamodb.schema import DEAD_LETTER_KEYS, SHARDS
from transforms.privacy.dead_letter_keys import DeadLetterKeys
from transforms.privacy.keys import WrappedKey

_PAGE = 100
_COLUMNS = [each for each in DeadLetter._fields if each not in ("id", "payload")]


class DynamoDeadLetterKeys:
    """`DeadLetterKeyStore` in a table of its own, with a short recovery window. Nobody holds these keys, so they have no
    leases."""

    def __init__(self, place: TablesLocation) -> None:
        self._client = DynamoClient(place)
        self._table = self._client.table(DEAD_LETTER_KEYS)
        self.compact = self._client.check_open
        self.close = self._client.close

    def get(self, fragment_ids: Sequence[str]) -> dict[str, WrappedKey]:
        found = self._client.get(DEAD_LETTER_KEYS, [{"id": {"S": each}} for each in set(fragment_ids)])
        return {item["id"]["S"]: WrappedKey(0, bytes(item["wrapped"]["B"])) for item in found}

    def put_absent(self, keys: Mapping[str, WrappedKey]) -> dict[str, WrappedKey]:
        text = f"INSERT INTO \"{self._table}\" VALUE {{'id': ?, 'wrapped': ?}}"
        statements = [Statement(text, [{"S": name}, {"B": key.wrapped}]) for name, key in keys.items()]
        refusals = self._client.execute(DEAD_LETTER_KEYS, statements)
        raise_refused(self._table, refusals)
        known = self.get([name for name, refusal in zip(keys, refusals, strict=True) if refusal])
        return {**keys, **known}

    def delete(self, fragment_ids: Sequence[str]) -> int:
        gone = sorted(set(fragment_ids))
        self._client.put(DEAD_LETTER_KEYS, [{"DeleteRequest": {"Key": {"id": {"S": each}}}} for each in gone])
        return len(gone)


class DynamoDeadLetters:
    """`DeadLetters` in tables that `create_tables` made."""

    def __init__(self, place: TablesLocation, keys: DeadLetterKeys | None = None) -> None:
        """Without `keys`, which are closed with it, payloads are stored as they come."""
        self._records = DynamoRecords(DynamoClient(place))
        self._keys = keys

    def put(self, dead_letters: Sequence[DeadLetter]) -> None:
        if not dead_letters:
            return
        new = list({each.id: each for each in dead_letters}.values())
        sealed = self._keys.seal(new) if self._keys else new
        self._records.put([entry for each in sealed for entry in _entries(each)])
        self._records.put([_main(each) for each in sealed])

    def settle_batch(self, batch: str, attempt: str, source: str | None = None) -> dict[str, str]:
        listed = [each for each in self._records.rows(_of_batch(batch)) if each["attempt"] != attempt]
        found = self._found((each["sk"] for each in listed), bodies=False)
        settled = {
            each.id: (each, row)
            for each, row in found.values()
            if (each.batch, source or each.source) == (batch, each.source) and each.attempt != attempt
        }
        self._remove(settled.values())
        # Entries whose dead letter is gone, or of another batch now.
        self._records.delete([each for each in listed if each["sk"] not in found])
        return {each.id: each.position for each, _ in settled.values() if each.position.startswith(FRAGMENT)}

    def get(self, dead_letter_id: str) -> DeadLetter | None:
        found = [each for each, _ in self._found([dead_letter_id]).values()]
        return self._opened(found)[0] if found else None

    def scan(self, reason: str | None = None, source: str | None = None) -> Iterator[DeadLetter]:
        wanted = {name: value for name, value in (("reason", reason), ("source", source)) if value}
        shards = [
            self._records.rows(f"dead letters {each}", where=wanted, page=_PAGE) for each in range(SHARDS)
        ]
        rows = merge(*shards, key=itemgetter("sk"))
        while page := list(islice(rows, _PAGE // 10)):
            yield from self._opened([_dead_letter(each) for each in page])

    def counts(self, source: str | None = None) -> dict[str, int]:
        """Reads all dead letters."""

        def of(shard: int) -> Counter[str]:
            where = {} if source is None else {"source": source}
            rows = self._records.rows(f"dead letters {shard}", only=["reason"], where=where)
            return Counter(each["reason"] for each in rows)

        total = sum(self._records.each(of, range(SHARDS)), Counter[str]())
        return dict(sorted(total.items()))

    def newest(self, most: int, before: tuple[int, str] | None = None) -> list[DeadLetter]:
        last = LAST if before is None else _age(*before)
        shards = [
            self._records.rows(_by_age(each), last=last, backward=True, page=most + 1)
            for each in range(SHARDS)
        ]
        aged = (each["sk"] for each in merge(*shards, key=itemgetter("sk"), reverse=True))
        entries = (each for each in aged if each != last)
        newest: list[DeadLetter] = []
        while len(newest) < most and (ages := list(islice(entries, most))):
            found = self._found((each[_AGE_DIGITS:] for each in ages), bodies=False)
            for age in ages:
                letter, _ = found.get(age[_AGE_DIGITS:], (None, None))
                if letter is not None and _age(letter.set_aside_at, letter.id) == age:
                    newest.append(letter._replace(payload=b""))
        return newest[:most]

    def at(self, positions: Collection[str]) -> dict[str, str]:
        wanted = [each for each in set(positions) if each.startswith(FRAGMENT)]
        self._records.check_open()

        def ids(position: str) -> list[str]:
            return [each["sk"] for each in self._records.rows(_of_position(position))]

        listed = [each for found in self._records.each(ids, wanted) for each in found]
        found = self._found(listed, bodies=False).values()
        return {each.id: each.position for each, _ in found if each.position in wanted}

    def drop(self, ids: Sequence[str]) -> int:
        self._records.check_open()
        found = self._found(ids, bodies=False).values()
        self._remove(found)
        return len(found)

    def compact(self) -> None:
        """Nothing is in a file of ours. A backup of the tables has the keys until its recovery window is over."""
        self._records.check_open()

    def close(self) -> None:
        if self._keys:
            self._keys.close()
        self._records.close()

    def _found(self, ids: Iterable[str], bodies: bool = True) -> dict[str, tuple[DeadLetter, Row]]:
        rows = self._records.get([_key(each) for each in ids], bodies)
        return {row["sk"]: (_dead_letter(row), row) for row in rows.values()}

    def _remove(self, found: Collection[tuple[DeadLetter, Row]]) -> None:
        if self._keys and found:
            self._keys.destroy([each.id for each, _ in found])
        self._records.delete([row for _, row in found])
        self._records.delete([entry for each, _ in found for entry in _entries(each)])

    def _opened(self, dead_letters: list[DeadLetter]) -> list[DeadLetter]:
        return self._keys.open(dead_letters) if self._keys else dead_letters


_AGE_DIGITS = 16


def _key(dead_letter_id: str) -> Key:
    return f"dead letters {shard_of(dead_letter_id, SHARDS)}", dead_letter_id


def _of_batch(batch: str) -> str:
    return f"dead letters of batch {batch}"


def _by_age(shard: int) -> str:
    return f"dead letters by age {shard}"


def _age(set_aside_at: int, dead_letter_id: str) -> str:
    return f"{set_aside_at:0{_AGE_DIGITS}}{dead_letter_id}"


def _of_position(position: str) -> str:
    return f"dead letters of {hashlib.sha256(position.encode()).hexdigest()}"


def _main(each: DeadLetter) -> Row:
    pk, sk = _key(each.id)
    columns = {
        name: value for name, value in each._asdict().items() if name in _COLUMNS and value is not None
    }
    return {"pk": pk, "sk": sk, "body": each.payload} | columns


def _dead_letter(row: Row) -> DeadLetter:
    columns: dict[str, Any] = {name: row.get(name) for name in _COLUMNS}
    columns["reason"] = DeadLetterReason(columns["reason"])
    return DeadLetter(id=row["sk"], payload=row.get("body", b""), **columns)


def _entries(each: DeadLetter) -> list[Row]:
    """The entries of the lists in which a dead letter stands."""
    found: list[Row] = [
        {"pk": _of_batch(each.batch), "sk": each.id, "attempt": each.attempt},
        {"pk": _by_age(shard_of(each.id, SHARDS)), "sk": _age(each.set_aside_at, each.id)},
    ]
    if each.position.startswith(FRAGMENT):
        found.append({"pk": _of_position(each.position), "sk": each.id})
    return found
