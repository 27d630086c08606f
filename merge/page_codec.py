"""A page of a timeline as bytes: columns, so that most entries of a person are never made into objects.

Byte 0 is the format, 0x02. Canonical JSON follows, an array of

    [newest: the greatest `made_by` of its entries,
     makers: [[source, activity version, spec name, spec version], ...] sorted,
     times:  [epoch milliseconds, ...],
     made:   [place in `makers`, ...],
     ids:    [event id, ...],
     fields: {name: [value, or null where an entry has none, ...]}]

with the entries in their order. Equal entries give equal bytes. `newest` lies within the first `BEGINNING` bytes.
Pages of format 0x01 have a row for each entry; they are read, and become columns with the next entry.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any

import msgspec

from idgraph.model import canonical
from idgraph.model.errors import DamagedStateError
from idgraph.model.timelines import Entry, generation_of

ROWS, COLUMNS = b"\x01", b"\x02"

Version = tuple[int, str, int]
_Maker = tuple[str, int, str, int]


class _Columns(msgspec.Struct, array_like=True):
    newest: Version
    makers: list[_Maker]
    times: list[int]
    made: msgspec.Raw
    ids: list[str]
    fields: dict[str, msgspec.Raw]


_columns = msgspec.json.Decoder(_Columns)
_version = msgspec.json.Decoder(Version)
_ORDER = itemgetter(slice(3))
_MAKER = itemgetter(1, 3)
OLDEST: Version = (0, "", 0)
GREATEST: Version = (1 << 63, "", 0)
"""Less and greater than the `made_by` of all entries."""


class EntryPage:
    """The entries of an activity and a day, in their order. What is not asked for is not decoded."""

    def __init__(self, entries: Sequence[Entry] | None, columns: _Columns | None = None) -> None:
        """One of both."""
        self._entries, self._columns = entries, columns
        self._values: dict[str, Sequence[Any]] = {}
        self.times = [each[0] for each in entries or ()] if columns is None else columns.times
        self.ids = [each[2] for each in entries or ()] if columns is None else columns.ids
        self.versions: Collection[Version] = (
            {each.made_by for each in entries or ()}
            if columns is None
            else [each[1:] for each in columns.makers]
        )
        """The `made_by` of its entries."""

    def entries(self) -> Sequence[Entry]:
        """Raises DamagedStateError."""
        if self._entries is None:
            self._entries = [] if self._columns is None else _entries(self._columns)
        return self._entries

    def values(self, field: str) -> Sequence[Any]:
        """The values of a field, None where an entry has none. Raises DamagedStateError."""
        if self._entries is not None or self._columns is None:
            return [each[4].get(field) for each in self.entries()]
        if field not in self._values:
            self._values[field] = _values(self._columns, field)
        return self._values[field]

    def since(self, generation: int) -> EntryPage:
        """Without the entries of earlier generations of the activity. Raises DamagedStateError."""
        if all(generation_of(each[0]) >= generation for each in self.versions):
            return self
        return EntryPage([each for each in self.entries() if each.generation >= generation])


def union(entries: Iterable[Entry]) -> list[Entry]:
    """Entries in their order, one for each event: that with the greatest `made_by`, of these the latest, of these the one with the
    greatest canonical bytes of its fields."""
    ordered = sorted(entries, key=_ORDER)
    by_event: dict[tuple[str, str], Entry] = {}
    for each in ordered:
        known = by_event.setdefault(each[1:3], each)
        if known is not each and _rank(known) < _rank(each):
            by_event[each[1:3]] = each
    if len(by_event) == len(ordered):
        return ordered
    return sorted(by_event.values(), key=_ORDER)


def encode_page(entries: Iterable[Entry]) -> bytes:
    """Canonical bytes of a page: equal entries give equal bytes, whatever their order."""
    return encode(union(entries))


def encode(rows: Sequence[Entry]) -> bytes:
    """The same of entries in their order, one for each event."""
    makers = sorted({(source, *version) for source, version in set(map(_MAKER, rows))})
    places = {(source, tuple(version)): place for place, (source, *version) in enumerate(makers)}
    names = sorted({name for each in rows for name in each[4]})
    return COLUMNS + canonical.encode(
        [
            max((each[1:] for each in makers), default=OLDEST),
            makers,
            [each[0] for each in rows],
            [places[each] for each in map(_MAKER, rows)],
            [each[2] for each in rows],
            {name: [each[4].get(name) for each in rows] for name in names},
        ]
    )


def inserted(page: bytes, entry: Entry, most: int) -> bytes | None:
    """A page with an entry more, without making the others into objects; None where that needs a look at them: it has the event, or
    `most` entries, or neither the entry's maker nor its fields. Raises DamagedStateError."""
    if page[:1] != COLUMNS:
        return None
    try:
        columns = _columns.decode(page[1:])
        maker = (entry.source, *entry.made_by)
        if (
            entry.event_id in columns.ids
            or len(columns.ids) >= most
            or maker not in columns.makers
            or not entry.fields.keys() <= columns.fields.keys()
        ):
            return None
        made = canonical.decode(columns.made)
        at = bisect_left(columns.times, entry.time)
        while (
            at < len(made) and (columns.times[at], columns.makers[made[at]][0], columns.ids[at]) < entry.order
        ):
            at += 1
        fields = {name: _values(columns, name) for name in columns.fields}
    except (*canonical.MalformedJSON, TypeError, LookupError) as error:
        raise _damaged(error) from None
    columns.times.insert(at, entry.time)
    made.insert(at, columns.makers.index(maker))
    columns.ids.insert(at, entry.event_id)
    for name, values in fields.items():
        values.insert(at, entry.fields.get(name))
    return COLUMNS + canonical.encode(
        [columns.newest, columns.makers, columns.times, made, columns.ids, fields]
    )


def read_page(data: bytes, names: Collection[str] | None = None) -> EntryPage:
    """A page, with the fields of these names or with all. Raises DamagedStateError."""
    try:
        if data[:1] == COLUMNS:
            columns = _columns.decode(data[1:])
            if names is not None:
                columns.fields = {name: values for name, values in columns.fields.items() if name in names}
            return EntryPage(None, columns)
        if data[:1] == ROWS:
            return EntryPage(_with_fields(entries_of_rows(canonical.decode(data[1:])), names))
    except canonical.MalformedJSON as error:
        raise _damaged(error) from None
    raise DamagedStateError("a stored timeline is damaged: its format is unknown")


def newest_version(beginning: bytes) -> Version:
    """The greatest `made_by` of the entries of a page of which the first `BEGINNING` bytes are known; `GREATEST` where they do not
    have it."""
    try:
        found: Version = _version.decode(beginning[2 : beginning.index(b"]") + 1])
        return found
    except (*canonical.MalformedJSON, ValueError):
        return GREATEST


def _with_fields(entries: list[Entry], names: Collection[str] | None) -> list[Entry]:
    if names is None:
        return entries
    return [
        each._replace(fields={name: value for name, value in each.fields.items() if name in names})
        for each in entries
    ]


def _values(columns: _Columns, field: str) -> list[Any]:
    if field not in columns.fields:
        return [None] * len(columns.times)
    try:
        values: list[Any] = canonical.decode(columns.fields[field])
        if len(values) == len(columns.times):
            return values
    except (*canonical.MalformedJSON, TypeError) as error:
        raise _damaged(error) from None
    raise DamagedStateError("a stored timeline is damaged: a column is of another length")


def _entries(columns: _Columns) -> list[Entry]:
    try:
        made = [(each[0], each[1:]) for each in columns.makers]
        makers = [made[place] for place in canonical.decode(columns.made)]
        values = [canonical.decode(each) for each in columns.fields.values()]
        rows: Iterable[Any] = zip(*values, strict=True) if values else repeat((), len(makers))
        names = tuple(columns.fields)
        fields = [dict(zip(names, row)) for row in rows]  # noqa: B905 - a row has a value of each column
        if any(None in each for each in values):
            fields = [{name: value for name, value in each.items() if value is not None} for each in fields]
        sources, versions = zip(*makers, strict=True) if makers else ((), ())
        return list(map(Entry._make, zip(columns.times, sources, columns.ids, versions, fields, strict=True)))
    except (*canonical.MalformedJSON, TypeError, ValueError, LookupError) as error:
        raise _damaged(error) from None


def rows_of(entries: Sequence[Entry]) -> list[Any]:
    """Makers, names of fields, and for each entry its time, the places of both, event id and values."""
    makers: dict[tuple[Any, ...], int] = {}
    shapes: dict[tuple[str, ...], int] = {}
    rows = []
    for time, source, event_id, made_by, fields in entries:
        names = tuple(sorted(fields))
        maker = makers.setdefault((source, *made_by), len(makers))
        shape = shapes.setdefault(names, len(shapes))
        rows.append([time, maker, shape, event_id, *[fields[name] for name in names]])
    return [list(makers), list(shapes), rows]


def entries_of_rows(body: Any) -> list[Entry]:
    """The entries of `rows_of`. Raises DamagedStateError."""
    try:
        makers, shapes, rows = body
        made = [(source, tuple(version)) for source, *version in makers]
        return [
            Entry(
                time, made[maker][0], event_id, made[maker][1], dict(zip(shapes[shape], values, strict=True))
            )
            for time, maker, shape, event_id, *values in rows
        ]
    except (TypeError, ValueError, LookupError) as error:
        raise _damaged(error) from None


def _rank(entry: Entry) -> tuple[Version, int, bytes]:
    return entry.made_by, entry.time, canonical.encode(entry.fields)


def _damaged(error: Exception) -> DamagedStateError:
    return DamagedStateError(f"a stored timeline is damaged: {type(error).__name__}")
