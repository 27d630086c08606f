"""Making an index in Elasticsearch again, and moving the alias to it.

Writers know nothing of it. What they write meanwhile is what the version in use has behind the sequence numbers, one
a shard, that it had at the beginning; these stand beside the new version's mapping, so a run that is interrupted goes
on with them. Numbers are not done in their order: a later write can be seen before an earlier one. So a shard is
followed up to its global checkpoint, up to which every copy has done all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from secrets import token_hex
from typing import Any

from idgraph.model.errors import ProfileIndexError, VersionInUseError, VersionNotFoundError
from idgraph.model.index import IndexDocument
from idgraph.model.index_versions import Begun, IndexVersion, VersionState
from idgraph.model.tombstones import Tombstone, TombstoneNames
from sinks.elasticsearch.bulk import TAKEN, erase, erased, key_of, write
from sinks.elasticsearch.client import ElasticsearchClient, IndexLocation, Pause
from sinks.elasticsearch.index import prepared
from sinks.elasticsearch.other_versions import block, unblock
from sinks.elasticsearch.queries import EVERY, Json
from sinks.elasticsearch.schema import LAYOUT, IndexShape, create, make, version_name, versions

_PAGE = 1000
_STATS = ["indices.*.shards.*.seq_no.global_checkpoint", "indices.*.shards.*.seq_no.max_seq_no"]


class ElasticsearchIndexVersions:
    """The `IndexVersions` behind one alias."""

    def __init__(self, place: IndexLocation, names: TombstoneNames, shape: IndexShape) -> None:
        """`shape` is that of new versions."""
        self._client = ElasticsearchClient(place)
        self._alias = place.name
        self._names = names
        self._shape = shape
        self._in_use = self._made = self._mark = ""
        self._behind: dict[str, int] = {}
        """By shard of the version in use, up to where its operations have been followed."""

    def begin(self, anew: bool = False) -> Begun:
        create(self._client, self._shape)
        self._in_use = self._used()
        # A run that was killed at its end left it.
        unblock(self._client, self._in_use)
        left = [each for each in versions(self._client) if each > self._in_use]
        if left and not anew and (begun := self._begun(left[-1])):
            self._made, (self._mark, self._behind) = left[-1], begun
            return Begun(self._made, self._mark)
        for index in left:
            self._remove(index)
        self._made = version_name(self._alias, 1 + int(max(versions(self._client))[-6:]))
        self._behind = dict.fromkeys(self._shards(), -1)
        self._behind, _ = self._progress()
        self._mark = token_hex(8)
        meta = {"instead_of": self._in_use, "behind": self._behind, "mark": self._mark}
        make(self._client, self._made, self._shape, {}, meta)
        # Nobody searches it yet.
        self._set(self._made, {"index.refresh_interval": "-1"})
        return Begun(self._made, self._mark)

    def put(self, documents: Sequence[IndexDocument]) -> dict[str, str]:
        actions, refused = prepared(documents, self._names)
        outcomes = write(self._client, self._made, list(actions.values()), is_alias=False)
        return refused | {
            each: reason
            for each, reason in zip(actions, outcomes, strict=True)
            if reason is not None and reason not in TAKEN
        }

    def write_tombstones(self, tombstones: Mapping[bytes, Tombstone]) -> None:
        by_key = {key_of(name): erased(tombstone.version) for name, tombstone in tombstones.items()}
        erase(self._client, self._made, by_key, is_alias=False)

    def changed(self) -> list[str]:
        # Looked at before the refresh, which shows all that was done before.
        done, _ = self._progress()
        self._refresh(self._in_use)
        for shard in self._behind:
            while hits := self._operations(shard, done[shard]):
                ids = [hit["fields"]["id"][0] for hit in hits if "fields" in hit]
                tombstoned = {hit["_id"]: hit["_version"] for hit in hits if "fields" not in hit}
                erase(self._client, self._made, tombstoned, is_alias=False)
                self._behind[shard] = hits[-1]["sort"][0]
                if ids:
                    return ids
        return []

    def switch(self, take: Callable[[Sequence[str]], None]) -> str:
        if (used := self._used()) != self._in_use:
            raise ProfileIndexError(
                f"Elasticsearch index {self._alias}: somebody else has switched to {used}"
            )
        try:
            self._follow_to_the_end(take)
            self._require_made()
            self._set(self._made, {"index.refresh_interval": None})
            self._refresh(self._made)
            self._move_alias()
        except BaseException:
            # Writers go on there. They would wait until the next run if this did not reach it either.
            with suppress(ProfileIndexError):
                unblock(self._client, self._in_use)
            raise
        # Before it moved, a run on another machine may have lifted the block, and a flow put something there.
        self._follow_to_the_end(take)
        self._refresh(self._made)
        return self._in_use

    def known(self) -> list[IndexVersion]:
        known = versions(self._client)
        in_use = max((each for each, is_used in known.items() if is_used), default="")
        return [IndexVersion(each, _state(each, in_use), self._count(each)) for each in known]

    def delete(self, name: str) -> None:
        known = versions(self._client)
        if name not in known:
            raise VersionNotFoundError(f"Elasticsearch index {self._alias}: there is no version {name}")
        if known[name]:
            raise VersionInUseError(f"Elasticsearch index {self._alias}: {name} is in use")
        in_use = self._used()
        if name > in_use:
            unblock(self._client, in_use)
        self._remove(name)

    def close(self) -> None:
        self._client.close()

    def _used(self) -> str:
        """The version that the alias points at."""
        used = [each for each, is_used in versions(self._client).items() if is_used]
        if len(used) != 1:
            raise ProfileIndexError(
                f"Elasticsearch index {self._alias}: the alias must point at one index version, and points at "
                f"{', '.join(used) or 'none'}"
            )
        return used[0]

    def _begun(self, index: str) -> tuple[str, dict[str, int]] | None:
        """The mark of a version that an earlier run left, and from where on it must follow; None when it cannot go
        on."""
        found = self._client.call(lambda api: api.indices.get_mapping(index=index))
        meta = found[index]["mappings"].get("_meta", {})
        if meta.get("layout") != LAYOUT or meta.get("instead_of") != self._in_use:
            return None
        return str(meta["mark"]), {str(shard): int(last) for shard, last in meta["behind"].items()}

    def _follow_to_the_end(self, take: Callable[[Sequence[str]], None]) -> None:
        """Block the version in use, and give what it has to `take` until nothing is left there. Raises
        ProfileIndexError when a copy of a shard does not come to its end."""
        block(self._client, self._in_use)
        pause = Pause(self._in_use)
        while True:
            done, given = self._progress()
            if ids := self.changed():
                take(ids)
            elif done == given:
                return
            else:
                pause.busy()

    def _require_made(self) -> None:
        """Raises ProfileIndexError when the version is not the one that was begun. One that is deleted meanwhile comes
        back with the next `put`, where Elasticsearch makes indices by itself, and with a mapping that it guesses."""
        is_there = self._client.call(lambda api: api.indices.exists(index=self._made))
        begun = self._begun(self._made) if is_there else None
        if begun is None or begun[0] != self._mark:
            raise ProfileIndexError(
                f"Elasticsearch index {self._alias}: {self._made} was deleted while it was made; run it again"
            )

    def _shards(self) -> list[str]:
        """The names of the shards of the version in use, also of those that are away."""
        reported = self._client.call(lambda api: api.indices.get_settings(index=self._in_use))
        return [
            str(each) for each in range(int(reported[self._in_use]["settings"]["index"]["number_of_shards"]))
        ]

    def _progress(self) -> tuple[dict[str, int], dict[str, int]]:
        """By shard of the version in use, up to which number every copy has done all operations, and the last number
        that was given. Raises ProfileIndexError when a shard is away."""
        answer = self._client.call(
            lambda api: api.indices.stats(
                index=self._in_use, metric="_all", level="shards", filter_path=_STATS
            )
        )
        shards: Json = answer.get("indices", {}).get(self._in_use, {}).get("shards", {})
        if shards.keys() != self._behind.keys():
            raise ProfileIndexError(f"Elasticsearch index {self._in_use}: a shard is away")
        # Copies hear of the checkpoint one after the other: the lowest is true for all.
        done = {shard: min(_of("global_checkpoint", copies)) for shard, copies in shards.items()}
        return done, {shard: max(_of("max_seq_no", copies)) for shard, copies in shards.items()}

    def _operations(self, shard: str, last: int) -> list[Json]:
        """The next documents of a shard up to a number, in the order of their numbers; those without fields are
        tombstones."""
        answer = self._client.call(
            lambda api: api.search(
                index=self._in_use,
                preference=f"_shards:{shard}",
                query={"range": {"_seq_no": {"gt": self._behind[shard], "lte": last}}},
                sort=[{"_seq_no": "asc"}],
                size=_PAGE,
                source=False,
                docvalue_fields=["id"],
                version=True,
                track_total_hits=False,
                allow_partial_search_results=False,
            )
        )
        found: list[Json] = answer["hits"]["hits"]
        return found

    def _move_alias(self) -> None:
        remove = {"index": self._in_use, "alias": self._alias, "must_exist": False}
        actions: list[Any] = [{"remove": remove}, {"add": {"index": self._made, "alias": self._alias}}]
        self._client.call(lambda api: api.indices.update_aliases(actions=actions))

    def _count(self, index: str) -> int:
        self._refresh(index)
        answer = self._client.call(lambda api: api.count(index=index, query=EVERY))
        return int(answer["count"])

    def _remove(self, index: str) -> None:
        self._client.call(lambda api: api.indices.delete(index=index, ignore_unavailable=True))

    def _set(self, index: str, settings: Json) -> None:
        self._client.call(lambda api: api.indices.put_settings(index=index, settings=settings))

    def _refresh(self, index: str) -> None:
        self._client.call(lambda api: api.indices.refresh(index=index))


def _of(number: str, copies: list[Json]) -> list[int]:
    return [int(each["seq_no"][number]) for each in copies]


def _state(index: str, in_use: str) -> VersionState:
    if index == in_use:
        return VersionState.IN_USE
    return VersionState.MADE if index > in_use else VersionState.REPLACED
