"""Point-in-time features: for each label, an identifier and a moment, the derived attributes as of that moment.

They come from the functions and timelines that a look-up uses, so that a model is served what it was trained on. An entry
counts for a label if its time is before the label's.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from idgraph.model.attributes import DataType
from idgraph.model.errors import QueryError
from idgraph.model.identifiers import given_identifier
from idgraph.model.query_language import attribute_hint
from idgraph.projection.behaviour import NOTHING_DERIVED, AsOf
from profile_service.reader import MASK
from profile_service.tables import CELLS

if TYPE_CHECKING:
    from merge.identity.components import Person
    from profile_service.reader import ProfileReader

IDENTIFIER, TIME = "identifier", "time"
LATEST = "latest:"
"""Before a path: the attributes that events wrote are the latest ones, whatever the label's time."""
COMPLETE = ":is_complete"
"""Behind a path: the column that says whether every entry counts that would."""
NOBODY, OUTSIDE, FUTURE, OTHER = "without_profile", "outside_segment", "future_times", "null_values"
READ_TOGETHER = 500
_PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}


class _Answer(NamedTuple):
    """Rows of one person's labels, what is derived as of each moment, and the values that events wrote."""

    rows: Sequence[int]
    derived: Mapping[int, AsOf]
    latest: Mapping[str, Any]


class Features:
    """The columns of features that one reader's clearance allows, and what is to be said of the labels after `columns`."""

    def __init__(
        self,
        reader: ProfileReader,
        wanted: Sequence[str],
        among: Collection[str] | None = None,
        complete: bool = False,
    ) -> None:
        """`wanted` are paths of derived attributes, and with `latest:` before them of all. `among` are the ids of the profiles
        that may have features; None for all. `complete` adds to each derived attribute a column that says whether its value
        is complete. Raises QueryError."""
        if not wanted:
            raise QueryError("name at least one column, as behaviour.orders30d")
        self.reader, self._among = reader, among
        self._cells = {name: CELLS[self._type(name)] for name in wanted}
        self._paths = {name: name.removeprefix(LATEST) for name in wanted}
        derives = reader.behaviour_reader.derives
        self._plain = {name for name, path in self._paths.items() if not derives(path)}
        self._behaviour = reader.behaviour_reader.reading(
            [path for name, path in self._paths.items() if name not in self._plain]
        )
        self._complete = {
            name: f"{name}{COMPLETE}" for name in self._paths if complete and name not in self._plain
        }
        self.schema = pa.schema(
            each
            for name, cells in self._cells.items()
            for each in (
                pa.field(name, cells.arrow),
                *([pa.field(self._complete[name], pa.bool_())] if name in self._complete else []),
            )
        )
        self.counts: Counter[str] = Counter()
        """The number of labels whose identifier belongs to nobody, of profiles that are not `among`, and whose time has not come;
        and by column that of values that it could not hold."""

    def _type(self, name: str) -> DataType:
        path, types = name.removeprefix(LATEST), self.reader.column_types()
        if path not in types:
            raise QueryError(f"no attribute is called {path}; {attribute_hint(path, types)}")
        self.reader.require_open(path, "a feature")
        behaviour = self.reader.behaviour_reader
        if path == name and not behaviour.derives(path):
            raise QueryError(
                f"{path} is not derived from timelines: only its latest value is known, which may be younger than a label; "
                f"{LATEST}{path} takes that one"
            )
        if path == name and behaviour.reads_plain(path):
            raise QueryError(
                f"{path} reads attributes of which only the latest values are known, which may be younger than a label; "
                f"{LATEST}{path} takes these"
            )
        return types[path]

    def columns(self, identifiers: Sequence[Any], times: Sequence[int]) -> pa.Table:
        """A row for each label, in their order; `times` are epoch milliseconds. Null without a value, and for an identifier of
        nobody. Raises StoreError, and QueryError for a text that is no identifier."""
        columns: dict[str, list[Any]] = {name: [None] * len(times) for name in self.schema.names}
        now_ms = self.reader.now_ms()
        if future := sum(each > now_ms for each in times):
            self.counts[FUTURE] += future
        rows_by_text: dict[str, list[int]] = defaultdict(list)
        for row, text in enumerate(identifiers):
            rows_by_text[text].append(row)
        self.counts[NOBODY] += len(rows_by_text.pop(None, ()))  # type: ignore[call-overload]
        remaining = iter(rows_by_text.items())
        while some := dict(islice(remaining, READ_TOGETHER)):
            for rows, derived, latest in self._answers(some, times):
                for row in rows:
                    as_of = derived.get(times[row])
                    values = (as_of or NOTHING_DERIVED).values
                    for name, path in self._paths.items():
                        value = latest.get(path) if name in self._plain else values.get(path)
                        if value is not None and value is not MASK:
                            columns[name][row] = held = self._cells[name].held(value)
                            if held is None:
                                self.counts[f"{OTHER}/{name}"] += 1
                    for name, column in self._complete.items():
                        # Entries before a moment to come may still arrive.
                        columns[column][row] = as_of and (
                            times[row] <= now_ms and as_of.is_complete(self._paths[name])
                        )
        arrays = [pa.array(columns[field.name], field.type) for field in self.schema]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _answers(self, rows_by_text: Mapping[str, Sequence[int]], times: Sequence[int]) -> Iterator[_Answer]:
        persons: dict[str, Person] = {}
        rows_of: dict[str, list[int]] = defaultdict(list)
        owners = self.reader.owning_each([given_identifier(given_text(text)) for text in rows_by_text])
        for rows, found in zip(rows_by_text.values(), owners, strict=True):
            if not found.persons:
                self.counts[NOBODY] += len(rows)
            elif self._among is not None and self.reader.shown_name(found.persons[0].id) not in self._among:
                self.counts[OUTSIDE] += len(rows)
            else:
                person = found.persons[0]
                persons[person.id] = person
                rows_of[person.id] += rows
        moments = {name: sorted({times[row] for row in rows}) for name, rows in rows_of.items()}
        known: dict[str, Mapping[int, AsOf]] = {}
        if not self._behaviour.is_empty:
            known = dict(self._behaviour.as_of(list(persons.values()), moments))
            self.reader.damaged += sorted(rows_of.keys() - known.keys())
        for name, rows in rows_of.items():
            latest = {}
            if self._plain:
                latest = {each.path: each.value for each in self.reader.profile_of(persons[name]).leaves}
            yield _Answer(rows, known.get(name, {}), latest)


def report(counts: Counter[str]) -> Iterator[str]:
    """Notes that a reader of the columns has to know, by `Features.counts`, a line each."""
    for name, where in ((NOBODY, "nobody"), (OUTSIDE, "profiles outside the segment")):
        if number := counts[name]:
            said = "label belongs" if number == 1 else "labels belong"
            yield f"{number:,} {said} to {where}: null features"
    if number := counts[FUTURE]:
        said = "label has a time" if number == 1 else "labels have times"
        yield f"{number:,} {said} in the future: features that are not complete"
    for name, number in sorted(counts.items()):
        if name.startswith(f"{OTHER}/"):
            column = name.removeprefix(f"{OTHER}/")
            yield f"{column}: {number:,} {'value is' if number == 1 else 'values are'} null, since the column cannot hold them"


def given_text(text: Any) -> str:
    """Raises QueryError for what is no text."""
    if not isinstance(text, str):
        raise QueryError(f"{IDENTIFIER} has texts such as user_id:480, not a {type(text).__name__}")
    return text


def require_labels(schema: pa.Schema, added: Iterable[str]) -> None:
    """Raises QueryError for a table that has no labels, or has one of the columns to be added."""
    for name in (IDENTIFIER, TIME):
        if schema.names.count(name) != 1:
            raise QueryError(f"labels have one column {name}; these have {', '.join(schema.names) or 'none'}")
    for name in added:
        for column in (name, f"{name}{COMPLETE}"):
            if column in schema.names:
                raise QueryError(f"the labels have a column {column} already")


def labels(table: pa.Table) -> tuple[list[Any], list[int]]:
    """The identifiers of a table and its times in epoch milliseconds, whole ones down. Raises QueryError."""
    times = table.column(TIME)
    if times.null_count:
        raise QueryError(f"{times.null_count} labels have no {TIME}")
    if pa.types.is_integer(times.type):
        return table.column(IDENTIFIER).to_pylist(), times.to_pylist()
    if pa.types.is_date(times.type):
        times = times.cast(pa.timestamp("ms"))
    if not pa.types.is_timestamp(times.type):
        raise QueryError(f"{TIME} has epoch milliseconds or timestamps, not {times.type}")
    per_second = _PER_SECOND[times.type.unit]
    whole = [each * 1000 // per_second for each in times.cast(pa.int64()).to_pylist()]
    return table.column(IDENTIFIER).to_pylist(), whole


def with_features(table: pa.Table, made: pa.Table) -> pa.Table:
    """The columns of labels, then those of their features."""
    for field, column in zip(made.schema, made.columns, strict=True):
        table = table.append_column(field, column)
    return table
