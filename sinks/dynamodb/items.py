"""A fragment as an item of DynamoDB: its attributes, and the conditional statements that write it.

pk          keyed hash of the fragment's id; what an erasure leaves stands under it too
fragment    the id                            identifiers  what it is found by
revision    the version                       body         the state, compressed where that helps
profile     the profile of the projection     epoch        how often that changed
waiting     shard of the outbox, while this version, or that it is gone, is not projected
tombstone_until      `until` of its tombstone          tombstone_version           the version of its tombstone
erased      shard of the list of tombstones   unfinished   what an erasure found, as JSON, until it is finished
                                              withdrawn    the same of a fragment that has another id now
emptied     the version up to which pages of its timelines are gone

One item holds all that a write must be compared with and all that must change with it, so that each write is one
conditional statement and no transaction. Only a write with pages of timelines is one, and `update` its condition.
"""

from __future__ import annotations

import zlib
from typing import Any

from idgraph.model.errors import UnstorableError
from idgraph.model.store import NEW, Assignment, FragmentWrite, OutboxEntry, StoredFragment
from idgraph.model.tombstones import NO_EPOCH, TombstoneNames
from sinks.dynamodb.client import Item, Statement
from sinks.dynamodb.schema import SHARDS

MOST_BYTES = 400_000
"""The size of one item: DynamoDB's limit is 400 KB, of attribute names and values."""

OVERSIZED = f"a fragment has more than the {MOST_BYTES:,} bytes that an item of DynamoDB may have"

_PLAIN, _DEFLATED = b"\0", b"\1"
_REST_BYTES = 200
"""Attribute names, numbers and the key."""

_WORTH_DEFLATING = 256


def checked(names: TombstoneNames) -> TombstoneNames:
    """The same names, but UnstorableError for text that is not valid Unicode."""

    def name(text: str) -> bytes:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UnstorableError("text that is not valid Unicode cannot be stored") from None
        return names(text)

    return name


def key(name: bytes) -> Item:
    """The key of an item by its keyed hash."""
    return {"pk": {"B": name}}


def mark_key(mark: str) -> Item:
    """The key of an item that is no fragment's, and has nothing else: longer than any hash."""
    return key(b"a mark beside fragments: " + mark.encode())


def shard(name: bytes) -> Item:
    """In which shard of a sparse index an item is listed."""
    return {"N": str(name[-1] % SHARDS)}


def number(value: int) -> Item:
    """An integer on the wire."""
    return {"N": str(value)}


def pack(state: bytes) -> bytes:
    """The bytes to store of a state. Sealed values are random, so only a part of it shrinks."""
    if len(state) >= _WORTH_DEFLATING:
        deflated = zlib.compress(state, 1)
        if len(deflated) < len(state):
            return _DEFLATED + deflated
    return _PLAIN + state


def unpack(body: bytes) -> bytes:
    """The state of stored bytes; damaged bytes as they are, which no reader takes for a state."""
    try:
        return zlib.decompress(body[1:]) if body[:1] == _DEFLATED else body[1:]
    except zlib.error:
        return body


def stored(item: Item) -> StoredFragment:
    """The fragment of an item that has one."""
    return StoredFragment(
        item["fragment"]["S"],
        int(item["revision"]["N"]),
        unpack(item["body"]["B"]),
        item["profile"]["S"] if "profile" in item else "",
        epoch(item),
    )


def epoch(item: Item) -> int:
    """The number of changes of the fragment's profile."""
    return int(item["epoch"]["N"]) if "epoch" in item else 0


def assignment(table: str, name: bytes, assigned: Assignment) -> Statement:
    """The statement that records the profile of a fragment that has the expected epoch."""
    _, expected, profile, _, _ = assigned
    # There is none before the first.
    here = "epoch=?" if expected else "epoch IS MISSING"
    text = (
        f'UPDATE "{table}" SET profile=? SET epoch=? SET waiting=? SET revision=revision+1 '  # noqa: S608 - our names
        f"WHERE pk=? AND revision>? AND {here}"
    )
    parameters = [{"S": profile}, number(expected + 1), shard(name), {"B": name}, number(NEW)]
    return Statement(text, [*parameters, number(expected)] if expected else parameters)


def entry(item: Item) -> OutboxEntry:
    """The outbox entry of an item that has one."""
    version = item["revision"] if "revision" in item else item["tombstone_version"]
    return OutboxEntry(item["fragment"]["S"], int(version["N"]))


def identifiers(item: Item) -> frozenset[str]:
    """The identifiers of an item's fragment."""
    return frozenset(item.get("identifiers", {}).get("SS", ()))


def statement(
    table: str, name: bytes, write: FragmentWrite, is_there: bool, carried: frozenset[str] = frozenset()
) -> Statement:
    """The statement that writes a fragment if its version is the expected one and no tombstone forbids it.

    `is_there` says whether the item exists already, if only as a tombstone: PartiQL has no word for both.
    `carried` are the identifiers of the expected version, needed where some are dropped.
    """
    changed = _changed(name, write, carried)
    if not is_there:
        if new := write.identifiers - write.dropped:
            changed["identifiers"] = {"SS": sorted(new)}
        made = {"pk": {"B": name}, **changed}
        fields = ", ".join(f"'{attribute}': ?" for attribute in made)
        return Statement(f'INSERT INTO "{table}" VALUE {{{fields}}}', list(made.values()))
    left = (carried | write.identifiers) - write.dropped
    if write.dropped and left:
        changed["identifiers"] = {"SS": sorted(left)}
    text = f'UPDATE "{table}"' + "".join(f" SET {attribute}=?" for attribute in changed)  # noqa: S608 - table names
    parameters = list(changed.values())
    if write.dropped and not left:
        text += " REMOVE identifiers"
    elif write.identifiers and not write.dropped:
        text += " SET identifiers=set_add(identifiers, ?)"
        parameters.append({"SS": sorted(write.identifiers)})
    expected, erasure_epoch = number(write.expected_version), number(write.erasure_epoch)
    # A fragment that was erased and came back with a backup takes no write: its tombstone covers its version.
    here = "(revision=? AND (tombstone_until IS MISSING OR tombstone_until=? OR tombstone_version<?)) OR (revision IS MISSING AND tombstone_version=?)"
    text += f" WHERE pk=? AND ({here}) AND (tombstone_until IS MISSING OR tombstone_until<=?)"
    return Statement(
        text, [*parameters, {"B": name}, expected, number(NO_EPOCH), expected, expected, erasure_epoch]
    )


def _changed(name: bytes, write: FragmentWrite, carried: frozenset[str]) -> dict[str, Any]:
    """The attributes that a write sets, but the identifiers. Raises UnstorableError."""
    body = pack(write.state)
    names = carried | write.identifiers | {write.id}
    if len(body) + sum(len(each.encode()) for each in names) + _REST_BYTES > MOST_BYTES:
        raise UnstorableError(OVERSIZED)
    return {
        "fragment": {"S": write.id},
        "revision": number(write.expected_version + 1),
        "body": {"B": body},
        "waiting": shard(name),
    }


def update(table: str, name: bytes, write: FragmentWrite, carried: frozenset[str] = frozenset()) -> Item:
    """The same write as an action of a transaction, whether the item exists or not."""
    changed = _changed(name, write, carried)
    added = ""
    if write.dropped and (left := (carried | write.identifiers) - write.dropped):
        changed["identifiers"] = {"SS": sorted(left)}
    elif write.dropped:
        added = " REMOVE identifiers"
    elif write.identifiers:
        added = " ADD identifiers :added"
    values = {f":{attribute}": value for attribute, value in changed.items()}
    values |= {":expected": number(write.expected_version), ":none": number(NO_EPOCH)}
    values[":until"] = number(write.erasure_epoch)
    if "ADD" in added:
        values[":added"] = {"SS": sorted(write.identifiers)}
    new = " OR attribute_not_exists(tombstone_version)" if is_new(write) else ""
    return {
        "Update": {
            "TableName": table,
            "Key": key(name),
            "UpdateExpression": "SET " + ", ".join(f"{each}=:{each}" for each in changed) + added,
            "ConditionExpression": (
                "((revision=:expected AND (attribute_not_exists(tombstone_until) OR tombstone_until=:none "
                "OR tombstone_version<:expected)) OR (attribute_not_exists(revision) AND "
                f"(tombstone_version=:expected{new}))) "
                "AND (attribute_not_exists(tombstone_until) OR tombstone_until<=:until)"
            ),
            "ExpressionAttributeValues": values,
        }
    }


def raised(table: str, name: bytes, version: int) -> Item:
    """The action that puts a fragment of this version into the outbox, in the next version."""
    return {
        "Update": {
            "TableName": table,
            "Key": key(name),
            "UpdateExpression": "SET revision=:next, waiting=:waiting",
            "ConditionExpression": "revision=:version",
            "ExpressionAttributeValues": {
                ":version": number(version),
                ":next": number(version + 1),
                ":waiting": shard(name),
            },
        }
    }


def emptied(item: Item) -> int:
    """The version up to which pages of an item's timelines are gone."""
    return int(item["emptied"]["N"]) if "emptied" in item else NEW


def is_new(write: FragmentWrite) -> bool:
    """Whether a write expects that nothing is there."""
    return write.expected_version == NEW


def link(names: TombstoneNames, identifier: str, name: bytes, version: int) -> Item:
    """The key of the link from an identifier to the item of a fragment that carries it since a version."""
    return {"pk": {"B": names(identifier)}, "sk": {"B": name + version.to_bytes(8, "big")}}
