"""`idgraph.open`: profiles for programs, masked by the same policies as on the command line."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self, overload

from idgraph.app import wiring
from idgraph.app.adapters.key_providers import ensure_keyring
from idgraph.app.settings.document import DEFAULT_FILE, Settings, load
from idgraph.model.attributes import DataType
from idgraph.model.errors import StoreError
from idgraph.model.identifiers import Identifier, given_identifier
from idgraph.model.queries import Order, Query
from idgraph.model.query_language import parse_query, warnings
from profile_service.reader import Profile, ProfileReader

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from idgraph.model.index import FacetCount

log = logging.getLogger(__name__)

POLICY_SECONDS = 10.0
"""How long a reader uses the policies that it has read."""


def open(config: str | Path | None = None) -> Reader:  # noqa: A001 - as in `gzip.open`
    """Open the profiles of a configuration: an idgraph.toml, or the folder that has one.

    Without `config`: $IDGRAPH_CONFIG, then ./idgraph.toml. Raises ConfigError, KeyProviderError and StoreError.
    """
    path = Path(config) if config is not None else None
    settings = load(path / DEFAULT_FILE if path is not None and path.is_dir() else path)
    ensure_keyring(settings)
    return Reader(settings)


class _Tables:
    """Profiles as tables: a row for each, with the columns `_id`, `_identifiers` and one for each attribute path."""

    def __iter__(self) -> Iterator[Profile]:
        raise NotImplementedError

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """An Arrow table, of these attribute paths or of all that a profile has. Masked values are null, and the metadata
        of their field says so."""
        from profile_service.tables import arrow_table

        return arrow_table(self, columns)

    def to_pandas(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """The same as a data frame. Raises ConfigError where pandas is not installed."""
        from profile_service.tables import data_frame

        return data_frame(self.to_arrow(columns))


class Profiles(_Tables, Sequence[Profile]):
    """Profiles that were found, sorted by id. Immutable."""

    def __init__(self, profiles: Iterable[Profile]) -> None:
        self._profiles = tuple(profiles)

    def __iter__(self) -> Iterator[Profile]:
        return iter(self._profiles)

    def __len__(self) -> int:
        return len(self._profiles)

    @overload
    def __getitem__(self, number: int) -> Profile: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Profile]: ...
    def __getitem__(self, number: int | slice) -> Profile | Sequence[Profile]:
        return self._profiles[number]

    def __repr__(self) -> str:
        return f"<{len(self)} profiles>"


class Page(Profiles):
    """Profiles of a search. `cursor` asks for the next page; None after the last one."""

    def __init__(self, profiles: Iterable[Profile], cursor: str | None) -> None:
        super().__init__(profiles)
        self.cursor = cursor


class Scan(_Tables):
    """All profiles, sorted by id. Each iteration reads them again, a page in memory at a time."""

    def __init__(self, reader: Reader, reveal: bool) -> None:
        self._reader = reader
        self._reveal = reveal

    def __iter__(self) -> Iterator[Profile]:
        return self._reader.scanned(self._reveal)


class Reader:
    """Reads profiles. A context manager; for one thread at a time.

    Every method raises StoreError when a store fails, and KeyProviderError when the keyring is not that of the profiles.
    With `reveal` protected values are opened by the keyring; without it they are masked.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stack = ExitStack()
        self._resources = self._stack.enter_context(wiring.opened_to_read(settings))
        self._is_open = True
        self._reader: ProfileReader | None = None
        self._types: dict[str, DataType] = {}
        self._read_at = 0.0

    def lookup(self, identifier: str | Identifier, *, reveal: bool = False) -> Profiles:
        """The profile of an identifier such as `user_id:480`; several where they share it and it belongs to nobody. Raises
        QueryError for text that is no identifier."""
        wanted = given_identifier(identifier) if isinstance(identifier, str) else identifier
        reader = self._current()
        found = Profiles(reader.lookup(wanted, reveal))
        self._require_keyring(bool(found))
        self._report(reader)
        return found

    def search(
        self,
        *words: str,
        limit: int = 100,
        cursor: str | None = None,
        sort: str | None = None,
        reveal: bool = False,
    ) -> Page:
        """A page of the profiles that match clauses as on the command line, such as `demographics.age>=30`. `sort` is an
        attribute path, with `-` before it for the largest first. Raises QueryError."""
        reader = self._current()
        order = None if sort is None else Order(sort.removeprefix("-"), sort.startswith("-"))
        query = self._query(words, () if order is None else (order.path,))
        result = reader.search(query, limit, cursor, reveal, order)
        self._require_keyring(bool(result.profiles))
        self._report(reader)
        return Page(result.profiles, result.cursor)

    def count(self, *words: str) -> int:
        """How many profiles match; all of them without words. Raises QueryError."""
        count = self._current().count(self._query(words))
        self._require_keyring(bool(count))
        return count

    def facets(self, path: str, *words: str, limit: int = 10) -> list[FacetCount]:
        """The most frequent values of an attribute among the profiles that match, each with their number. Raises
        QueryError."""
        return self._current().facets(self._query(words, (path,)), [path], limit)[path]

    def scan(self, *, reveal: bool = False) -> Scan:
        """All profiles, read while one iterates."""
        return Scan(self, reveal)

    def scanned(self, reveal: bool) -> Iterator[Profile]:
        """One iteration of a `Scan`."""
        reader = self._current()
        yield from reader.scan(reveal)
        self._report(reader)

    def close(self) -> None:
        """Close files and connections. A closed reader answers nothing."""
        self._is_open = False
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _current(self) -> ProfileReader:
        """Under policies that are at most `POLICY_SECONDS` old: a program may read for days."""
        if not self._is_open:
            raise StoreError("the reader is closed")
        if self._reader is None or time.monotonic() - self._read_at > POLICY_SECONDS:
            pinned = wiring.snapshot_to_read_by(self._settings)
            self._types = {each.path: each.shown_type for each in pinned.snapshot.attributes}
            self._reader = wiring.profile_reader(self._settings, self._resources, pinned)
            self._read_at = time.monotonic()
        return self._reader

    def _query(self, words: Sequence[str], others: Sequence[str] = ()) -> Query:
        query = parse_query(words, self._types.get)
        for reported in warnings(query, self._types, self._current().found_type, others):
            log.warning("%s", reported)
        return query

    def _require_keyring(self, found: bool) -> None:
        # By another keyring's hashes nobody is found, which is no answer.
        if not found:
            wiring.require_own_keyring(self._settings, self._resources, notes=False)

    def _report(self, reader: ProfileReader) -> None:
        if reader.damaged:
            log.warning("left out, since their stored state is damaged: %s", ", ".join(reader.damaged))
            reader.damaged.clear()
        if reader.unreadable:
            log.warning("%d protected values cannot be opened by this keyring", reader.unreadable)
            reader.unreadable = 0
