"""Links that were put for a write which was refused then."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from idgraph.model.errors import StoreError
from idgraph.model.store import FragmentWrite
from sinks.dynamodb import items
from sinks.dynamodb.client import Item
from sinks.dynamodb.fragments import DynamoFragments
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
