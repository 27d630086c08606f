"""Making the embedded index again, in a folder beside the one in use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from idgraph.model.errors import ProfileIndexError
from idgraph.model.index import IndexDocument
from idgraph.model.index_versions import Begun, IndexVersion, VersionState
from idgraph.model.queries import Query
from idgraph.model.tombstones import Tombstone, TombstoneNames
from sinks.tantivy.folder import IndexFolder, Version
from sinks.tantivy.index import count, erase_from, newest_of, put_into
from sinks.tantivy.queries import compiled


class TantivyIndexVersions:
    """The `IndexVersions` of the index in one folder."""

    def __init__(self, path: str | Path, names: TombstoneNames) -> None:
        self._folder = IndexFolder(Path(path))
        self._names = names
        self._begun = Begun("", "")

    def begin(self, afresh: bool = False) -> Begun:
        with self._folder.writing():
            versions = self._folder.versions()
            version = next((each for each in versions if each.state is VersionState.MADE), None)
            if version is None or afresh:
                others = [each for each in versions if each is not version]
                number = 1 + max(each.number for each in versions)
                version = self._folder.new(number, VersionState.MADE)
                self._folder.keep([*others, version])
            self._begun = Begun(version.name, version.mark)
            return self._begun

    def put(self, documents: Sequence[IndexDocument]) -> dict[str, str]:
        newest, refused = newest_of(documents)
        with self._folder.writing():
            put_into(self._folder, self._made(), newest, self._names)
        return refused

    def write_tombstones(self, tombstones: Mapping[bytes, Tombstone]) -> None:
        with self._folder.writing():
            erase_from(self._folder, self._made(), {n: 2 * t.version + 1 for n, t in tombstones.items()})

    def switch(self) -> str:
        with self._folder.writing():
            made = self._made()
            before = self._folder.in_use()
            self._folder.keep([made._replace(state=VersionState.IN_USE)])
            return before.name

    def known(self) -> list[IndexVersion]:
        return [
            IndexVersion(each.name, each.state, self._documents(each)) for each in self._folder.versions()
        ]

    def close(self) -> None:
        self._folder.close()

    def _documents(self, version: Version) -> int:
        try:
            index = self._folder.open(version)
        except ProfileIndexError:
            # A damaged one is listed too, so that it can be deleted, or made again.
            return 0
        return count(*compiled(Query(), index))

    def _made(self) -> Version:
        for each in self._folder.versions():
            if each.mark == self._begun.mark and each.state is VersionState.MADE:
                return each
        raise ProfileIndexError(
            f"index {self._folder.path}: {self._begun.name} is not being made any longer: another run finished or deleted "
            "it; run `idgraph reindex` again"
        )
