"""Rows of tables as events: a key for each column, a missing value as none.

A number that is not finite, NaT and NA are missing. A column of doubles that only missing values made of integers is one of
integers again. A moment becomes text of RFC 3339, in UTC where it has no zone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import StrEnum
from itertools import islice
from math import isfinite
from typing import TYPE_CHECKING, Any
from uuid import UUID

from idgraph.model import canonical
from idgraph.model.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

MOST_EXACT = 2**53
"""Up to this one a double has every integer."""
ROWS = 10_000
"""Rows of a table that are Python values at once."""


class Nulls(StrEnum):
    """The meaning of a missing value: it says nothing and `keep`s the stored one, or says null and `delete`s
    it."""

    KEEP = "keep"
    DELETE = "delete"


def lines_of(data: Any, nulls: Nulls = Nulls.KEEP) -> Iterator[bytes]:
    """The rows of a pandas data frame, an Arrow table, or a list of dictionaries, as lines of JSON. Raises ConfigError for
    what cannot be an event, without a value."""
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(data, pandas.DataFrame):
        rows = _rows(_names(data.columns), [data.iloc[:, place].tolist() for place in range(data.shape[1])])
    elif hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        import pyarrow as pa

        rows = rows_of_table(pa.table(data))
    elif isinstance(data, Sequence) and all(isinstance(each, Mapping) for each in data):
        rows = _rows_of_dictionaries(data)
    else:
        raise ConfigError(
            f"a {type(data).__name__} cannot be published: give a pandas data frame, an Arrow table or a list of dictionaries"
        )
    return (line_of(row, nulls) for row in rows)


def line_of(row: Mapping[str, Any], nulls: Nulls) -> bytes:
    """An event, whose missing values are None, as a line of JSON."""
    kept = _without_nulls(row) if nulls is Nulls.KEEP else row
    return canonical.encode_ordered(kept) + b"\n"


def rows_of_table(table: pa.Table) -> Iterator[dict[str, Any]]:
    """The rows of an Arrow table. Raises ConfigError."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = _names(table.column_names)
    for place, name in enumerate(names):
        column = table.column(place)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_timestamp(column.type):
            # Python has no nanoseconds; events are ordered by milliseconds.
            column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
        if pa.types.is_floating(column.type):
            column = column.cast(pa.float64())
            is_present = pc.fill_null(pc.is_finite(column), False)
            present = column.filter(is_present)
            is_whole = pc.and_(
                pc.equal(present, pc.trunc(present)), pc.less_equal(pc.abs(present), float(MOST_EXACT))
            )
            if len(present) < len(column) and pc.all(is_whole).as_py():
                column = pc.if_else(is_present, column, None).cast(pa.int64())
        table = table.set_column(place, name, column)
    for batch in table.to_batches(ROWS):
        try:
            columns = [each.to_pylist() for each in batch.columns]
        except (ValueError, ArithmeticError, pa.ArrowException) as error:
            raise ConfigError(f"a value cannot be an event's: {type(error).__name__}") from None
        yield from _rows(names, columns, mends=False)


def rows_of_parquet(content: bytes) -> Iterator[dict[str, Any]]:
    """The rows of a Parquet file. Raises ConfigError."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        table = parquet.read_table(pa.BufferReader(content))
    except (pa.ArrowException, OSError) as error:
        # Its message may quote a value of the file.
        raise ConfigError(f"damaged Parquet ({type(error).__name__})") from None
    yield from rows_of_table(table)


def _rows_of_dictionaries(rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """A key may be absent in some; it then stays so."""
    columns: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    mended = {
        name: iter(_column(name, values))
        for name, values in zip(_names(columns), columns.values(), strict=True)
    }
    for row in rows:
        yield {name: next(mended[name]) for name in row}


def _names(names: Iterable[Any]) -> list[str]:
    found = list(names)
    for name in found:
        if not isinstance(name, str) or not name:
            raise ConfigError("a column has no name that is text; a name is the key of the event")
    if len(set(found)) < len(found):
        raise ConfigError("two columns have one name; a name is the key of the event")
    return found


def _rows(
    names: Sequence[str], columns: Sequence[Sequence[Any]], mends: bool = True
) -> Iterator[dict[str, Any]]:
    made = [_column(name, values, mends) for name, values in zip(names, columns, strict=True)]
    for row in zip(*made, strict=True):
        yield dict(zip(names, row, strict=True))


def _column(name: str, values: Sequence[Any], mends: bool = True) -> list[Any]:
    found = [_value(each, name) for each in values]
    if mends and None in found and all(each is None or _is_whole(each) for each in found):
        return [None if each is None else int(each) for each in found]
    return found


def _is_whole(value: Any) -> bool:
    return type(value) is float and value.is_integer() and abs(value) <= MOST_EXACT


def _value(value: Any, name: str) -> Any:
    """As JSON has it; None for one that is missing."""
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float or kind is Decimal:
        return value if isfinite(value) else None
    if kind.__name__ in ("NAType", "NaTType"):
        return None
    if kind.__name__ == "datetime64":
        # numpy turns nanoseconds into an integer.
        return _value(value.astype("datetime64[us]").tolist(), name)
    for known, made in _MADE:
        if isinstance(value, known):
            return made(value, name)
    if hasattr(value, "tolist") and kind.__name__ != "timedelta64":
        # An array or a scalar of numpy.
        return _value(value.tolist(), name)
    raise ConfigError(f"{name}: a {kind.__name__} cannot be a value of an event")


def _moment(value: datetime, _name: str) -> str:
    moment = datetime(*value.timetuple()[:6], value.microsecond, value.tzinfo or UTC, fold=value.fold)
    return moment.isoformat().replace("+00:00", "Z")


def _object(value: Mapping[Any, Any], name: str) -> dict[str, Any]:
    if not all(isinstance(key, str) for key in value):
        raise ConfigError(f"{name}: an object has a key that is no text")
    return {key: _value(each, name) for key, each in value.items()}


_MADE: tuple[tuple[Any, Callable[[Any, str], Any]], ...] = (
    (datetime, _moment),
    ((date, time), lambda value, _: value.isoformat()),
    (bool, lambda value, _: bool(value)),
    (int, lambda value, _: int(value)),
    (float, lambda value, name: _value(float(value), name)),
    (str, lambda value, _: str.__str__(value)),
    (UUID, lambda value, _: str(value)),
    (Mapping, _object),
    ((list, tuple), lambda value, name: [_value(each, name) for each in value]),
)


def _without_nulls(value: Any) -> Any:
    """Without the keys that say null; elements of arrays stay."""
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def batched(lines: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    """Lines in lists of so many."""
    remaining = iter(lines)
    while some := list(islice(remaining, size)):
        yield some
