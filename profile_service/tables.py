"""Profiles as Arrow tables and pandas data frames: a row per profile, a column per attribute path.

A column has the type of its values: bool, int64, double, string, or a list of one of these. Values of several types become
text: strings as they are, all others as JSON. Masked and unreadable values are null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from idgraph.model import canonical
from idgraph.model.attributes import DataType
from idgraph.model.errors import ConfigError
from profile_service.reader import MASK, UNREADABLE, Profile

ID, IDENTIFIERS, REST = "_id", "_identifiers", "_rest"
PROTECTED = {b"idgraph.protected": b"true"}
"""Metadata of the field of an attribute with a masked or revealed protected value."""

_IDENTIFIERS = pa.list_(pa.struct([("type", pa.string()), ("value", pa.string())]))
_PLAIN = (pa.bool_(), pa.int64(), pa.float64(), pa.string(), pa.null())
_INT64 = range(-(2**63), 2**63)


def arrow_table(profiles: Iterable[Profile], columns: Sequence[str] | None = None) -> pa.Table:
    """A table of these attribute paths in this order, or of all that the profiles have, sorted."""
    ids: list[str] = []
    identifiers: list[list[dict[str, str]]] = []
    values: dict[str, dict[int, Any]] = {path: {} for path in columns or ()}
    protected: set[str] = set()
    for row, profile in enumerate(profiles):
        ids.append(profile.id)
        identifiers.append([{"type": each.type, "value": each.value} for each in profile.identifiers])
        for leaf in profile.leaves:
            if columns is not None and leaf.path not in values:
                continue
            shown = None if leaf.value is MASK or leaf.value is UNREADABLE else leaf.value
            values.setdefault(leaf.path, {})[row] = shown
            if leaf.protected:
                protected.add(leaf.path)
    fields = [pa.field(ID, pa.string(), nullable=False), pa.field(IDENTIFIERS, _IDENTIFIERS, nullable=False)]
    arrays = [pa.array(ids, pa.string()), pa.array(identifiers, _IDENTIFIERS)]
    for path in values if columns is not None else sorted(values):
        array = _array([values[path].get(row) for row in range(len(ids))])
        fields.append(pa.field(path, array.type, metadata=PROTECTED if path in protected else None))
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def data_frame(table: pa.Table) -> Any:
    """A table as a pandas data frame: integers and booleans with nulls stay what they are. Raises ConfigError without
    pandas."""
    try:
        import pandas as pd
    except ImportError:
        raise ConfigError(
            "to_pandas() needs pandas, which is not installed: python -m pip install pandas"
        ) from None
    nullable = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    return table.to_pandas(types_mapper=nullable.get)


def _array(values: list[Any]) -> pa.Array:
    """Of the one type of all values; of text where that is all that they have in common."""
    kinds = {type(each) for value in values for each in (value if isinstance(value, list) else [value])}
    # Arrow takes booleans among doubles for 0 and 1, and refuses all other mixtures.
    if not kinds >= {bool, float}:
        with suppress(pa.ArrowException, OverflowError):
            found = pa.array(values)
            inner = found.type.value_type if pa.types.is_list(found.type) else found.type
            if inner in _PLAIN:
                return found
    return pa.array([_text(value) for value in values], pa.string())


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return canonical.encode(value).decode()


_COLUMNS = {
    DataType.STRING: (pa.string(), (str,)),
    DataType.INTEGER: (pa.int64(), (int,)),
    DataType.NUMBER: (pa.float64(), (int, float)),
    DataType.BOOLEAN: (pa.bool_(), (bool,)),
    DataType.ARRAY: (pa.list_(pa.string()), (list,)),
}
"""The column of each declared type, and the types of its values. Elements of an array are text, as `_text` has it."""
ROWS = 10_000
MOST_PARTITIONS = 1000


def write_parquet(
    folder: Path, profiles: Iterable[Profile], types: Mapping[str, DataType], partition: str | None
) -> None:
    """Write Parquet files into a new folder for its owner only: a column for each of these attributes by its declared type,
    masked values as null. `_rest` is JSON of the values that are of another type or attribute. With `partition`, an
    attribute, the files of each of its values are in a folder of their own. Raises ConfigError."""
    from pyarrow import dataset, parquet

    columns = {path: _COLUMNS[kind] for path, kind in sorted(types.items())}
    fields = [(ID, pa.string()), (IDENTIFIERS, _IDENTIFIERS)]
    fields += [(path, kind) for path, (kind, _) in columns.items()]
    schema = pa.schema([*fields, (REST, pa.string())])
    by = [] if partition is None else [schema.field(partition)]
    folder.mkdir(mode=0o700)
    try:
        dataset.write_dataset(
            pa.RecordBatchReader.from_batches(schema, _batches(profiles, columns, schema)),
            folder,
            format="parquet",
            partitioning=dataset.partitioning(pa.schema(by), flavor="hive"),
            max_partitions=MOST_PARTITIONS,
            file_visitor=lambda file: Path(file.path).chmod(0o600),
        )
        if not any(folder.iterdir()):
            # Of no profiles there is still a table.
            empty = folder / "part-0.parquet"
            parquet.write_table(schema.empty_table(), empty)
            empty.chmod(0o600)
    except pa.ArrowInvalid:
        # Its message may quote a value.
        raise ConfigError(
            f"{folder}: {partition or 'the data'} cannot be written: an attribute that partitions has at most "
            f"{MOST_PARTITIONS} values"
        ) from None


def _batches(
    profiles: Iterable[Profile],
    columns: Mapping[str, tuple[pa.DataType, tuple[type, ...]]],
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    remaining = iter(profiles)
    while some := list(islice(remaining, ROWS)):
        rows = []
        for profile in some:
            row: dict[str, Any] = {
                ID: profile.id,
                IDENTIFIERS: [{"type": each.type, "value": each.value} for each in profile.identifiers],
            }
            rest: dict[str, Any] = {}
            for leaf in profile.leaves:
                if leaf.value is MASK or leaf.value is UNREADABLE:
                    continue
                _, kinds = columns.get(leaf.path, (None, ()))
                if type(leaf.value) not in kinds or (type(leaf.value) is int and leaf.value not in _INT64):
                    rest[leaf.path] = leaf.value
                else:
                    is_list = type(leaf.value) is list
                    row[leaf.path] = [_text(each) for each in leaf.value] if is_list else leaf.value
            rows.append(row | {REST: canonical.encode(rest).decode() if rest else None})
        yield pa.RecordBatch.from_pylist(rows, schema)
