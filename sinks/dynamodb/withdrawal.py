"""Fragments in DynamoDB whose content is stored under another id: withdrawn by one conditional update each."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence

from idgraph.model.errors import StoreError
from idgraph.model.store import FragmentWrite
from idgraph.model.tombstones import FragmentSummary
from sinks.aws_connection import Retry
from sinks.dynamodb import items
from sinks.dynamodb.client import Item
from sinks.dynamodb.fragments import GONE, DynamoFragments, gone_values, tombstone_of, values_of
from sinks.dynamodb.schema import FRAGMENTS, LINKS

log = logging.getLogger(__name__)


class RefusedLinks:
    """Takes such links away where nobody else can need them: they would do no harm, but stay for ever."""

    def __init__(self, fragments: DynamoFragments) -> None:
        self._fragments = fragments

    def remove(self, writes: Sequence[FragmentWrite]) -> None:
        """For writes that were refused. What cannot be taken away now is left: nothing depends on it."""
        with_links = {self._fragments.names(each.id): each for each in writes if each.identifiers - {each.id}}
        if not with_links:
            return
        try:
            keys = [items.key(name) for name in with_links]
            found = self._fragments.client.get(FRAGMENTS, keys, "pk, revision, identifiers")
            links = [
                {"DeleteRequest": {"Key": link}}
                for item in found
                for link in self._needless(with_links[bytes(item["pk"]["B"])], item)
            ]
            self._fragments.client.put(LINKS, links)
        except StoreError as error:
            log.debug("links of refused writes stay: %s", error)

    def _needless(self, write: FragmentWrite, item: Item) -> Iterator[Item]:
        """The links of a write that no fragment confirms, or will. A version that is past was decided: who carries
        the identifier later has put a link of a later version. One that is not past may be another writer's."""
        version = write.expected_version + 1
        if "revision" not in item or int(item["revision"]["N"]) < version:
            return
        name = self._fragments.names(write.id)
        for identifier in write.identifiers - items.identifiers(item) - {write.id}:
            yield items.link(self._fragments.names, identifier, name, version)


class DynamoWithdrawal:
    """Of one fragments table and its links. What the methods promise stands in `ProfileStore`."""

    def __init__(self, fragments: DynamoFragments) -> None:
        self._fragments = fragments

    def withdraw(self, versions: Mapping[str, int]) -> set[str]:
        self._fragments.mark_any()
        gone = self._fragments.client.each(lambda each: self._withdraw(*each), list(versions.items()))
        return {each for each, is_gone in zip(versions, gone, strict=True) if not is_gone}

    def withdrawn(self) -> dict[str, int]:
        names = [bytes(item["pk"]["B"]) for item in self._fragments.listed() if "withdrawn" in item]
        found = self._fragments.client.get(FRAGMENTS, [items.key(name) for name in names], "withdrawn")
        notes = (_note(item) for item in found if "withdrawn" in item)
        return {fragment_id: version for fragment_id, version, _ in notes}

    def forget(self, ids: Sequence[str]) -> None:
        self._fragments.client.each(self._forget, ids)

    def _withdraw(self, fragment_id: str, version: int) -> bool:
        name = self._fragments.names(fragment_id)
        retry = Retry(self._fragments.table)
        while True:
            item = self._fragments.item(name)
            if "revision" not in item:
                return True
            if int(item["revision"]["N"]) != version:
                return False
            found = FragmentSummary(fragment_id, version, frozenset(), False, items.epoch(item))
            kept = tombstone_of(item).joined(found.tombstone())
            noted = _note(item)[2] if "withdrawn" in item else []
            note = json.dumps([fragment_id, version, sorted({*noted, *items.identifiers(item)})])
            if self._fragments.update(
                name,
                item,
                f"SET tombstone_until=:b, tombstone_version=:v, erased=:e, withdrawn=:n, {GONE}",
                {
                    **values_of(kept),
                    **gone_values(fragment_id, name),
                    ":e": items.shard(name),
                    ":n": {"S": note},
                },
            ):
                return True
            retry.pause("the fragment keeps changing")

    def _forget(self, fragment_id: str) -> None:
        name = self._fragments.names(fragment_id)
        retry = Retry(self._fragments.table)
        while "withdrawn" in (item := self._fragments.item(name)):
            _, version, identifiers = _note(item)
            for identifier in identifiers:
                self._fragments.unlink(identifier, name, version)
            if self._fragments.update(name, item, "REMOVE withdrawn", {}):
                return
            retry.pause("the fragment keeps changing")


def _note(item: Item) -> tuple[str, int, list[str]]:
    fragment_id, version, identifiers = json.loads(item["withdrawn"]["S"])
    return fragment_id, version, identifiers
