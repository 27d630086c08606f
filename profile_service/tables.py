"""Profiles as tables: a row per profile, and columns that the catalogue alone decides, for Arrow, pandas and Parquet alike.

    _id            text, the profile's id
    _identifiers   list of {type, value}
    <key>          text, where a key is asked for: the profile's identifier of this type
    <attribute>    bool, int64, double, text, or a list of text: by the type of the attribute
    _rest          JSON object of the values that no column can hold exactly, by path; null without any

So a table of no profile has the same schema as any other. Masked and unreadable values are null.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from idgraph.model import canonical
from idgraph.model.attributes import DataType
from idgraph.model.errors import ConfigError, QueryError
from idgraph.model.query_language import attribute_hint
from idgraph.model.text import nearest
from profile_service.reader import MASK, UNREADABLE, Profile

if TYPE_CHECKING:
    from profile_service.reader import ProfileReader

ID, IDENTIFIERS, REST = "_id", "_identifiers", "_rest"
PROTECTED = {b"idgraph.protected": b"true"}
"""Metadata of the field of an attribute that policy protects."""
TIME = b"idgraph.time"
"""Key of the metadata of the field of an attribute that is a time: `milliseconds`, `rfc3339` or `date`."""
ROWS = 10_000
"""Rows of a record batch."""
MOST_PARTITIONS = 1000
MOST_EXACT = 2**53
"""Up to this one a double has every integer."""

_IDENTIFIERS = pa.list_(pa.struct([("type", pa.string()), ("value", pa.string())]))
_INT64 = range(-(2**63), 2**63)
_LONGEST_NAME_BYTES = 255
"""The limit for a folder's name in every common file system."""


def _integer(value: Any) -> int | None:
    if type(value) is float and value.is_integer():
        value = int(value)
    return value if type(value) is int and value in _INT64 else None


def _number(value: Any) -> float | None:
    if type(value) is int and -MOST_EXACT <= value <= MOST_EXACT:
        return float(value)
    return value if type(value) is float else None


def _texts(value: Any) -> list[str | None] | None:
    return [_text(each) for each in value] if type(value) is list else None


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return canonical.encode(value).decode()


class _Cells(NamedTuple):
    """The column of a data type: `held` gives a value as it stands there, or None where the column cannot hold it."""

    arrow: pa.DataType
    held: Callable[[Any], Any]


CELLS = {
    DataType.STRING: _Cells(pa.string(), lambda value: value if type(value) is str else None),
    DataType.INTEGER: _Cells(pa.int64(), _integer),
    DataType.NUMBER: _Cells(pa.float64(), _number),
    DataType.BOOLEAN: _Cells(pa.bool_(), lambda value: value if type(value) is bool else None),
    DataType.ARRAY: _Cells(pa.list_(pa.string()), _texts),
}
"""The column of each type."""


class Columns:
    """The columns of tables of one reader's profiles, and what they could not hold."""

    def __init__(
        self, reader: ProfileReader, wanted: Sequence[str] | str | None = None, key: str | None = None
    ) -> None:
        """`wanted` are attribute paths in their order, and then nothing else is in a table; None for all that the catalogue
        knows, sorted. `key` is a type of identifiers. Raises QueryError for one that is not known."""
        types = reader.column_types()
        own = {ID, IDENTIFIERS, REST} | ({key} if key is not None else set())
        self._takes_rest = wanted is None
        if wanted is None:
            wanted = sorted(types.keys() - own)
        elif isinstance(wanted, str):
            wanted = [wanted]
        for path in wanted:
            if path not in types:
                raise QueryError(f"no attribute is called {path}; {attribute_hint(path, types)}")
            if path in own:
                raise QueryError(f"{path} is the name of another column of the table, so it has no column")
        if key is not None:
            _require_type(key, reader.identifier_types())
        self.key = key
        self.types = {path: types[path] for path in wanted}
        self.other: Counter[str] = Counter()
        """By attribute, the number of values that its column could not hold."""
        self.several = 0
        """The number of profiles that have several identifiers of the key."""
        self.schema = pa.schema(
            [
                pa.field(ID, pa.string(), nullable=False),
                pa.field(IDENTIFIERS, _IDENTIFIERS, nullable=False),
                *([] if key is None else [pa.field(key, pa.string())]),
                *(
                    pa.field(path, CELLS[kind].arrow, metadata=_about(reader, path))
                    for path, kind in self.types.items()
                ),
                pa.field(REST, pa.string()),
            ]
        )

    def table(self, profiles: Iterable[Profile]) -> pa.Table:
        """The profiles as a table in memory."""
        return pa.Table.from_batches(self.batches(profiles), self.schema)

    def batches(self, profiles: Iterable[Profile]) -> Iterator[pa.RecordBatch]:
        """The profiles as batches of rows, of which one is in memory at a time."""
        remaining = iter(profiles)
        while some := list(islice(remaining, ROWS)):
            yield self._batch(some)

    def report(self) -> Iterator[str]:
        """Notes that a reader of the table has to know, a line each."""
        for path, number in sorted(self.other.items()):
            yield (
                f"{path}: {number:,} {'value is' if number == 1 else 'values are'} in {REST}, since a column of type "
                f"{self.types[path]} cannot hold {'it' if number == 1 else 'them'}"
            )
        if self.several:
            yield (
                f"{self.key}: {self.several:,} {'profile has' if self.several == 1 else 'profiles have'} several; the column "
                f"has one of them, and {IDENTIFIERS} all"
            )

    def _batch(self, profiles: Sequence[Profile]) -> pa.RecordBatch:
        cells: dict[str, list[Any]] = {}
        held = {path: CELLS[kind].held for path, kind in self.types.items()}
        rests: list[str | None] = []
        for row, profile in enumerate(profiles):
            rest: dict[str, Any] = {}
            for path, value, _, _, _ in profile.leaves:
                if value is MASK or value is UNREADABLE:
                    continue
                if path not in held:
                    if self._takes_rest:
                        rest[path] = value
                elif (cell := held[path](value)) is None:
                    rest[path] = value
                    self.other[path] += 1
                else:
                    column = cells.get(path)
                    if column is None:
                        column = cells[path] = [None] * len(profiles)
                    column[row] = cell
            rests.append(canonical.encode(rest).decode() if rest else None)
        own: dict[str, list[Any]] = {
            ID: [each.id for each in profiles],
            IDENTIFIERS: [
                [{"type": name.type, "value": name.value} for name in each.identifiers] for each in profiles
            ],
            REST: rests,
        }
        if self.key is not None:
            own[self.key] = [self._key_of(each, self.key) for each in profiles]
        cells |= own
        arrays = [
            pa.array(cells[field.name], field.type)
            if field.name in cells
            else pa.nulls(len(profiles), field.type)
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _key_of(self, profile: Profile, key: str) -> str | None:
        """The identifier that is the profile's id, which stays as others come; else the smallest."""
        found = [each for each in profile.identifiers if each.type == key]
        self.several += len(found) > 1
        return next(
            (each.value for each in found if str(each) == profile.id), found[0].value if found else None
        )


def _about(reader: ProfileReader, path: str) -> dict[bytes, bytes] | None:
    time = reader.time_of(path)
    stated = {} if time is None else {TIME: time.encode()}
    return (PROTECTED | stated if reader.policy(path).is_protected else stated) or None


def _require_type(key: str, known: set[str]) -> None:
    if key not in known:
        near = nearest(key, known)
        hint = f"did you mean {near}?" if near else f"there are {', '.join(sorted(known))}"
        raise QueryError(f"no identifiers are of the type {key}; {hint}")


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


def write_parquet(
    folder: Path, profiles: Iterable[Profile], columns: Columns, partition: str | None = None
) -> None:
    """Write Parquet files into a new folder for its owner only. With `partition`, one of the columns, the files of each of its
    values are in a folder of their own. Raises ConfigError."""
    from pyarrow import dataset, parquet

    schema = columns.schema
    batches = columns.batches(profiles)
    by = pa.schema([] if partition is None else [schema.field(partition).with_nullable(True)])
    folders = dataset.partitioning(by, flavor="hive")
    if partition is not None:
        _require_partition(partition, columns)
        batches = _named(batches, partition, columns, folders)
    folder.mkdir(mode=0o700)
    try:
        dataset.write_dataset(
            pa.RecordBatchReader.from_batches(schema, batches),
            folder,
            format="parquet",
            partitioning=folders,
            max_partitions=MOST_PARTITIONS,
            file_visitor=lambda file: Path(file.path).chmod(0o600),
        )
        if not any(folder.iterdir()):
            # A table of no profiles is still a table.
            empty = folder / "part-0.parquet"
            parquet.write_table(schema.empty_table(), empty)
            empty.chmod(0o600)
    # Messages of these, and the names of files, may quote a value.
    except pa.ArrowException:
        raise ConfigError(
            f"{folder}: {partition or 'the data'} cannot be written: an attribute that partitions has at most "
            f"{MOST_PARTITIONS} values"
        ) from None
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        raise ConfigError(f"{folder}: {reason}") from None


def _require_partition(partition: str, columns: Columns) -> None:
    """Raises ConfigError for an attribute that cannot name folders, whatever its values are."""
    if columns.types[partition] is DataType.ARRAY:
        raise ConfigError(f"{partition} is an array, and cannot be the name of a folder")
    # Readers leave out what begins so, and folders lie in one another at a slash.
    if partition[0] in "._" or not {*"/=%\x00"}.isdisjoint(partition):
        raise ConfigError(
            f"{partition} cannot name folders: its own name has a character that folders cannot have"
        )


def _named(
    batches: Iterable[pa.RecordBatch], partition: str, columns: Columns, folders: Any
) -> Iterator[pa.RecordBatch]:
    """The batches, if each value can be read again from the name of its folder. Raises ConfigError, without a value."""
    from pyarrow import dataset

    field = columns.schema.field(partition)
    known: set[Any] = {None}
    for batch in batches:
        if columns.other[partition]:
            raise ConfigError(
                f"{partition} cannot name folders: it has values that a column of type {columns.types[partition]} cannot hold"
            )
        for value in set(batch.column(field.name).to_pylist()) - known:
            name, _ = folders.format(dataset.field(field.name) == pa.scalar(value, field.type))
            found = dataset.get_partition_keys(folders.parse(f"{name}/"))
            if found != {field.name: value}:
                raise ConfigError(
                    f"{partition} cannot name folders: a value has a character that no folder can have, or means null there"
                )
            if len(os.fsencode(name)) > _LONGEST_NAME_BYTES:
                raise ConfigError(
                    f"{partition} cannot name folders: a value is longer than {_LONGEST_NAME_BYTES} bytes as the name of one"
                )
            known.add(value)
        yield batch
