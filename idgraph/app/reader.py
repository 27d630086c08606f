"""`idgraph.open`: profiles for programs, masked by the same policies as on the command line."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, overload

from idgraph.app import metadata_access, wiring
from idgraph.app.adapters.key_providers import ensure_keyring
from idgraph.app.entrance import OneCaller, local_operator, service_of
from idgraph.app.settings.document import Settings, load_of
from idgraph.app.terminal import counted
from idgraph.model.durations import time_zone as known_zone
from idgraph.model.errors import QueryError, StoreError
from idgraph.model.identifiers import Identifier, given_identifier
from idgraph.model.queries import Order, Query, in_time_zone
from idgraph.model.query_language import parse_query, warnings
from profile_service.reader import Profile, ProfileReader
from profile_service.service import ProfileService
from profile_service.visibility import HIGHEST

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from idgraph.jobs.features.columns import Features
    from idgraph.model.index import FacetCount

log = logging.getLogger(__name__)

READ_TOGETHER = 500
PURPOSE = "in a Python program"
POLICY_SECONDS = 10.0
"""The longest use of the policies that a reader has read."""


def open(config: str | Path | None = None) -> Reader:  # noqa: A001 - as in `gzip.open`
    """Open the profiles of a configuration: an idgraph.toml, or the folder that has one.

    Without `config`: $IDGRAPH_CONFIG, then ./idgraph.toml. Raises ConfigError, KeyProviderError and StoreError.
    """
    settings = load_of(config)
    ensure_keyring(settings)
    return Reader(settings)


class _Tables:
    """Profiles as tables: a row for each, with the columns that docs/python.md lists."""

    def _tabled(self) -> tuple[ProfileReader, Iterable[Profile]]:
        """The reader whose catalogue decides the columns, and the rows."""
        raise NotImplementedError

    def to_arrow(self, columns: Sequence[str] | str | None = None, *, key: str | None = None) -> pa.Table:
        """An Arrow table, of these attribute paths or of all known ones. The catalogue decides the types of
        columns, whatever the values are. A value that its column cannot hold exactly is in `_rest`, and the
        log has the number of these. Masked values are null. With `key`, a type of identifiers such as
        `user_id`, a column has this identifier of each profile. Raises QueryError for an attribute or type
        that is not known."""
        from profile_service.tables import Columns

        reader, profiles = self._tabled()
        made = Columns(reader, columns, key)
        table = made.table(profiles)
        for warning in made.report():
            log.warning("%s", warning)
        return table

    def to_pandas(
        self, columns: Sequence[str] | str | None = None, *, key: str | None = None
    ) -> pd.DataFrame:
        """The same as a data frame. Raises ConfigError where pandas is not installed."""
        from profile_service.tables import data_frame

        return data_frame(self.to_arrow(columns, key=key))


class Profiles(_Tables, Sequence[Profile]):
    """Profiles that were found, sorted by id. Immutable."""

    def __init__(self, profiles: Iterable[Profile], reader: ProfileReader) -> None:
        self._profiles = tuple(profiles)
        self._reader = reader

    def _tabled(self) -> tuple[ProfileReader, Iterable[Profile]]:
        return self._reader, self._profiles

    def __iter__(self) -> Iterator[Profile]:
        return iter(self._profiles)

    def __len__(self) -> int:
        return len(self._profiles)

    @overload
    def __getitem__(self, number: int) -> Profile: ...
    @overload
    def __getitem__(self, number: slice) -> Profiles: ...
    def __getitem__(self, number: int | slice) -> Profile | Profiles:
        if isinstance(number, slice):
            return Profiles(self._profiles[number], self._reader)
        return self._profiles[number]

    def __repr__(self) -> str:
        return f"<{counted(len(self), 'profile')}>"


class Page(Profiles):
    """Profiles of a search. `cursor` asks for the next page; None after the last one."""

    def __init__(self, profiles: Iterable[Profile], reader: ProfileReader, cursor: str | None) -> None:
        super().__init__(profiles, reader)
        self.cursor = cursor


class Lookups(_Tables, Sequence[Profiles]):
    """The answers of `lookup` for several identifiers, in their order. A table of them has a row for each
    profile that was found. Its first column, `_asked`, has the identifier as it was asked for."""

    def __init__(self, asked: Sequence[str], found: Sequence[Profiles], reader: ProfileReader) -> None:
        self._asked = asked
        self._found = tuple(found)
        self._reader = reader

    def __len__(self) -> int:
        return len(self._found)

    @overload
    def __getitem__(self, number: int) -> Profiles: ...
    @overload
    def __getitem__(self, number: slice) -> Lookups: ...
    def __getitem__(self, number: int | slice) -> Profiles | Lookups:
        if isinstance(number, slice):
            return Lookups(self._asked[number], self._found[number], self._reader)
        return self._found[number]

    def __repr__(self) -> str:
        return f"<{counted(len(self), 'look-up')}>"

    def to_arrow(self, columns: Sequence[str] | str | None = None, *, key: str | None = None) -> pa.Table:
        table = super().to_arrow(columns, key=key)
        asked = [name for name, found in zip(self._asked, self._found, strict=True) for _ in found]
        import pyarrow as pa

        return table.add_column(
            0, pa.field("_asked", pa.string(), nullable=False), pa.array(asked, pa.string())
        )

    def _tabled(self) -> tuple[ProfileReader, Iterable[Profile]]:
        return self._reader, (profile for found in self._found for profile in found)


class Scan(_Tables):
    """All profiles, sorted by id. Each iteration reads them again, a page in memory at a time."""

    def __init__(self, reader: Reader, reveal: bool, purpose: str) -> None:
        self._reader = reader
        self._reveal = reveal
        self._purpose = purpose

    def _tabled(self) -> tuple[ProfileReader, Iterable[Profile]]:
        return self._reader.current(), self

    def __iter__(self) -> Iterator[Profile]:
        return self._reader.scanned(self._reveal, self._purpose)


class FeatureTable:
    """Labels with their features, in the order of the labels. `without_profile` is the number of those whose identifier belongs
    to nobody, `outside` of those outside the segment: their features are null. Whatever reads Arrow streams takes it, as
    `polars.DataFrame` does."""

    def __init__(self, frame: Any, table: pa.Table, features: Features, made: pa.Table) -> None:
        from idgraph.jobs.features.columns import NOBODY, OUTSIDE

        self._frame, self._table, self._made = frame, table, made
        self.without_profile, self.outside = features.counts[NOBODY], features.counts[OUTSIDE]

    def __len__(self) -> int:
        return len(self._table)

    def to_arrow(self) -> pa.Table:
        """The labels' columns, then the features as their columns of an export."""
        from idgraph.jobs.features.columns import with_features

        return with_features(self._table, self._made)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> pd.DataFrame:
        """The same as a data frame; one that was given keeps its index. Raises ConfigError where pandas is not installed."""
        from profile_service.tables import data_frame

        made = data_frame(self._made)
        given = self._frame if _is_pandas(self._frame) else self._table.to_pandas()
        return given.assign(**{name: made[name].array for name in made})


class Reader:
    """Reads profiles. A context manager; for one thread at a time, and for the process that opened it.

    Every method raises StoreError when a store fails, and KeyProviderError when the keyring is not that of the profiles.
    With `reveal` protected values are opened by the keyring, for a `purpose` that is in the audit log; without it they are
    masked.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stack = ExitStack()
        self._resources = self._stack.enter_context(wiring.opened_to_read(settings))
        self._is_open = True
        self._process = os.getpid()
        self._reader: ProfileReader | None = None
        self._service: ProfileService
        self._read_at = 0.0

    def lookup(
        self, identifier: str | Identifier, *, reveal: bool = False, purpose: str = PURPOSE
    ) -> Profiles:
        """The profile of an identifier such as `user_id:480`; several where they share it and it belongs to
        nobody. Raises QueryError for a text that is no identifier."""
        return self.lookup_many([identifier], reveal=reveal, purpose=purpose)[0]

    def lookup_many(
        self, identifiers: Iterable[str | Identifier], *, reveal: bool = False, purpose: str = PURPOSE
    ) -> Lookups:
        """`lookup` of each identifier, in their order, read together. Raises QueryError."""
        if isinstance(identifiers, str):
            raise QueryError("`lookup_many` takes a list of identifiers; `lookup` takes one")
        texts = list(identifiers)
        parsed = [_identifier(each) for each in texts]
        reader = self.current()
        answers = [
            Profiles(each, reader)
            for start in range(0, len(parsed), READ_TOGETHER)
            for each in reader.lookup_each(parsed[start : start + READ_TOGETHER], reveal)
        ]
        self._record(reveal, purpose, chain.from_iterable(answers))
        self._require_keyring(any(answers))
        self._report(reader)
        return Lookups(list(map(str, texts)), answers, reader)

    def search(
        self,
        *words: str,
        limit: int = 100,
        cursor: str | None = None,
        sort: str | None = None,
        reveal: bool = False,
        purpose: str = PURPOSE,
        time_zone: str = "UTC",
    ) -> Page:
        """A page of the profiles that match clauses as on the command line, such as `demographics.age>=30`. `sort` is an
        attribute path, with `-` before it for the largest first. `time_zone` is that of moments such as `today`. Raises
        QueryError."""
        reader = self.current()
        order = None if sort is None else Order(sort.removeprefix("-"), sort.startswith("-"))
        query = self._query(words, time_zone, () if order is None else (order.path,))
        result = reader.search(query, limit, cursor, reveal, order)
        self._record(reveal, purpose, result.profiles)
        self._require_keyring(bool(result.profiles))
        self._report(reader)
        return Page(result.profiles, reader, result.cursor)

    def count(self, *words: str, time_zone: str = "UTC") -> int:
        """The number of profiles that match; of all profiles without words. `time_zone` as of `search`. Raises QueryError."""
        count = self.current().count(self._query(words, time_zone))
        self._require_keyring(bool(count))
        return count

    def facets(self, path: str, *words: str, limit: int = 10, time_zone: str = "UTC") -> list[FacetCount]:
        """The most frequent values of an attribute among the profiles that match, each with their number. `time_zone` as of
        `search`. Raises QueryError."""
        return self.current().facets(self._query(words, time_zone, (path,)), [path], limit)[path]

    def features(
        self,
        frame: Any,
        columns: Sequence[str],
        *,
        segment: str | None = None,
        clearance: int = HIGHEST,
        complete: bool = False,
    ) -> FeatureTable:
        """For each label, a row of `frame` with an `identifier` and a `time` (epoch milliseconds or timestamps; without a zone
        UTC), the derived attributes `columns` as of that time. `frame` is a data frame of pandas or Polars, an Arrow table, or
        anything that is an Arrow stream. `latest:PATH` allows attributes of which only the latest value is known. With a
        `segment` the others have no features. `complete` adds to each derived attribute a column `PATH:is_complete`. Raises
        QueryError."""
        import pyarrow as pa

        from idgraph.jobs.export import members
        from idgraph.jobs.features.columns import NOBODY, Features, labels, report, require_labels

        table = pa.Table.from_pandas(frame) if _is_pandas(frame) else pa.table(frame)
        reader = self.current().with_clearance(clearance)
        among = None if segment is None else {each.id for each in members(reader, segment, reveal=False)}
        names = [columns] if isinstance(columns, str) else list(dict.fromkeys(columns))
        require_labels(table.schema, names)
        features = Features(reader, names, among, complete)
        made = features.columns(*labels(table))
        self._require_keyring(features.counts[NOBODY] < len(table))
        for warning in report(features.counts):
            log.warning("%s", warning)
        self._report(reader)
        return FeatureTable(frame, table, features, made)

    def scan(self, *, reveal: bool = False, purpose: str = PURPOSE) -> Scan:
        """All profiles, read while one iterates."""
        return Scan(self, reveal, purpose)

    def scanned(self, reveal: bool, purpose: str) -> Iterator[Profile]:
        """One iteration of a `Scan`."""
        reader = self.current()
        if reveal:
            self._service.note(local_operator(), "reveal", subject="all profiles", purpose=purpose)
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

    def current(self) -> ProfileReader:
        """Under policies that are at most `POLICY_SECONDS` old: a program may read for days."""
        if not self._is_open:
            raise StoreError("the reader is closed")
        if self._process != os.getpid():
            # SQLite's locks are those of a process, and so are sockets.
            raise StoreError(
                "the reader was opened before this process was forked; call idgraph.open() in each process"
            )
        if self._reader is None or time.monotonic() - self._read_at > POLICY_SECONDS:
            pinned = metadata_access.snapshot_to_read_by(self._settings)
            self._reader = wiring.profile_reader(self._settings, self._resources, pinned)
            self._service = service_of(self._settings, self._resources, OneCaller(pinned, local_operator()))
            self._read_at = time.monotonic()
        return self._reader

    def _query(self, words: Sequence[str], zone: str, others: Sequence[str] = ()) -> Query:
        reader = self.current()
        try:
            query = in_time_zone(parse_query(words, reader.types().get, reader.time_of), known_zone(zone))
        except ValueError as error:
            raise QueryError(str(error)) from None
        for warning in warnings(query, reader.types(), reader.found_type, others):
            log.warning("%s", warning)
        return query

    def _record(self, reveal: bool, purpose: str, profiles: Iterable[Profile]) -> None:
        """Record reveals before a program sees the values. Raises StoreError."""
        if reveal:
            self._service.record(local_operator(), purpose, list(profiles))

    def _require_keyring(self, found: bool) -> None:
        # Another keyring's hashes find nobody, which is no answer.
        if not found:
            wiring.require_own_keyring(self._settings, self._resources, notes=False)

    def _report(self, reader: ProfileReader) -> None:
        if reader.damaged:
            log.warning("left out, since their stored state is damaged: %s", ", ".join(reader.damaged))
            reader.damaged.clear()
        if reader.unreadable:
            log.warning("%d protected values cannot be opened by this keyring", reader.unreadable)
            reader.unreadable = 0


def _is_pandas(frame: object) -> bool:
    return type(frame).__module__.partition(".")[0] == "pandas"


def _identifier(given: object) -> Identifier:
    if isinstance(given, Identifier):
        return given
    if not isinstance(given, str):
        raise QueryError(
            f"an identifier is text such as user_id:480, not a {type(given).__name__}; `lookup_many` takes several"
        )
    return given_identifier(given)
