"""Making an index in Elasticsearch again, and moving the alias to it.

The version that is being made has an alias of its own: whoever puts or erases writes there too as long as there is
that alias. One request moves both aliases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from secrets import token_hex
from typing import Any

from idgraph.model.errors import ProfileIndexError
from idgraph.model.index import IndexDocument
from idgraph.model.index_versions import Begun, IndexVersion, VersionState
from idgraph.model.tombstones import Tombstone, TombstoneNames
from sinks.elasticsearch.bulk import TAKEN, erase, erased, key_of, write
from sinks.elasticsearch.client import ElasticsearchClient, ElasticsearchRefusedError, IndexLocation
from sinks.elasticsearch.index import NOT_FOUND, prepared
from sinks.elasticsearch.queries import EVERY, Json
from sinks.elasticsearch.schema import (
    LAYOUT,
    IndexShape,
    create,
    made_alias,
    make,
    remove,
    version_name,
    versions,
)


class ElasticsearchIndexVersions:
    """The `IndexVersions` behind one alias."""

    def __init__(self, place: IndexLocation, names: TombstoneNames, shape: IndexShape) -> None:
        """`shape` is that of new versions."""
        self._client = ElasticsearchClient(place)
        self._alias = place.name
        self._made_alias = made_alias(place.name)
        self._names = names
        self._shape = shape
        self._in_use = ""
        self._begun = Begun("", "")

    def begin(self, afresh: bool = False) -> Begun:
        create(self._client, self._shape)
        known = versions(self._client)
        in_use = [each for each, state in known.items() if state is VersionState.IN_USE]
        if len(in_use) != 1:
            raise ProfileIndexError(
                f"Elasticsearch index {self._alias}: the alias must point at one index version, and points at "
                f"{', '.join(in_use) or 'none'}"
            )
        self._in_use = in_use[0]
        left = [each for each, state in known.items() if state is VersionState.MADE]
        mark = self._mark_of(left[-1]) if left and not afresh else None
        if mark is None:
            for index in left:
                remove(self._client, index)
            self._begun = Begun(version_name(self._alias, 1 + int(max(known)[-6:])), token_hex(8))
            meta = {"instead_of": self._in_use, "mark": self._begun.mark}
            make(self._client, self._begun.name, self._shape, {self._made_alias: {}}, meta)
            # Nobody searches it yet.
            self._set(self._begun.name, {"index.refresh_interval": "-1"})
        else:
            self._begun = Begun(left[-1], mark)
        return self._begun

    def put(self, documents: Sequence[IndexDocument]) -> dict[str, str]:
        actions, refused = prepared(documents, self._names)
        self._require_made()
        try:
            outcomes = write(self._client, self._made_alias, list(actions.values()), is_alias=True)
        except ElasticsearchRefusedError as error:
            if error.status == NOT_FOUND:
                raise self._gone() from None
            raise
        return refused | {
            each: reason
            for each, reason in zip(actions, outcomes, strict=True)
            if reason is not None and reason not in TAKEN
        }

    def write_tombstones(self, tombstones: Mapping[bytes, Tombstone]) -> None:
        by_key = {key_of(name): erased(tombstone.version) for name, tombstone in tombstones.items()}
        erase(self._client, self._made_alias, by_key, is_alias=True)

    def switch(self) -> str:
        self._require_made()
        made, in_use = self._begun.name, self._in_use
        self._set(made, {"index.refresh_interval": None})
        self._client.call(lambda api: api.indices.refresh(index=made))
        actions: list[Any] = [
            {"remove": {"index": in_use, "alias": self._alias, "must_exist": False}},
            {"remove": {"index": made, "alias": self._made_alias, "must_exist": False}},
            {"add": {"index": made, "alias": self._alias}},
        ]
        self._client.call(lambda api: api.indices.update_aliases(actions=actions))
        # Documents that were put between the refresh and the move.
        self._client.call(lambda api: api.indices.refresh(index=made))
        remove(self._client, in_use)
        return in_use

    def known(self) -> list[IndexVersion]:
        return [
            IndexVersion(each, state, self._count(each)) for each, state in versions(self._client).items()
        ]

    def close(self) -> None:
        self._client.close()

    def _mark_of(self, index: str) -> str | None:
        """The mark of a version that an earlier run left; None when that cannot go on."""
        found = self._client.call(lambda api: api.indices.get_mapping(index=index))
        meta = found[index]["mappings"].get("_meta", {})
        if meta.get("layout") != LAYOUT or meta.get("instead_of") != self._in_use:
            return None
        return str(meta["mark"])

    def _require_made(self) -> None:
        """Raises ProfileIndexError when the version is not the one that was begun."""
        is_made = versions(self._client).get(self._begun.name) is VersionState.MADE
        if not is_made or self._mark_of(self._begun.name) != self._begun.mark:
            raise self._gone()

    def _gone(self) -> ProfileIndexError:
        return ProfileIndexError(
            f"Elasticsearch index {self._alias}: {self._begun.name} is not being made any longer: another run finished or "
            "deleted it; run `idgraph reindex` again"
        )

    def _count(self, index: str) -> int:
        self._client.call(lambda api: api.indices.refresh(index=index))
        return int(self._client.call(lambda api: api.count(index=index, query=EVERY))["count"])

    def _set(self, index: str, settings: Json) -> None:
        self._client.call(lambda api: api.indices.put_settings(index=index, settings=settings))
