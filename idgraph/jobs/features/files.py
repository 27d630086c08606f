"""Files of labels, read and written a few rows at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv, dataset, parquet

from idgraph.model.errors import ConfigError

ROW_GROUP = 100_000
"""Rows of a group in a Parquet file, however many are written at once."""


class LabelFile:
    """A Parquet or CSV file of labels, or a folder of such. Raises ConfigError."""

    def __init__(self, file: Path) -> None:
        self._file, form = file, form_of(file)
        with self._errors():
            partitioning = "hive" if file.is_dir() else None
            self._dataset = dataset.dataset(file, format=form, partitioning=partitioning)
            self.schema: pa.Schema = self._dataset.schema
            self.rows: int = self._dataset.count_rows()

    def tables(self, rows: int) -> Iterator[pa.Table]:
        """All rows in their order, so many at a time."""
        waiting: list[pa.RecordBatch] = []
        number = 0
        with self._errors():
            for batch in self._dataset.to_batches(batch_size=rows, batch_readahead=1, fragment_readahead=1):
                waiting.append(batch)
                number += len(batch)
                while number >= rows:
                    whole = pa.Table.from_batches(waiting, self.schema)
                    yield whole.slice(0, rows)
                    waiting, number = whole.slice(rows).to_batches(), number - rows
        if number:
            yield pa.Table.from_batches(waiting, self.schema)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        # Its message may quote a value.
        except pa.ArrowException:
            raise ConfigError(f"{self._file}: is no {form_of(self._file)} file that can be read") from None
        except OSError as error:
            raise ConfigError(f"{self._file}: {error.strerror or 'cannot be read'}") from None


def form_of(file: Path) -> str:
    """The format of a file. Raises ConfigError."""
    if file.suffix not in (".parquet", ".csv"):
        raise ConfigError(f"{file}: its name must end in .parquet or .csv")
    return file.suffix[1:]


class _Written:
    """A file that takes bytes, for a writer of Arrow's, and gives them away."""

    closed = False

    def __init__(self) -> None:
        self._place, self._parts = 0, list[bytes]()

    def write(self, content: Any) -> int:
        self._parts.append(bytes(content))
        self._place += len(self._parts[-1])
        return len(self._parts[-1])

    def tell(self) -> int:
        return self._place

    def flush(self) -> None:
        """Nothing waits."""

    def taken(self) -> bytes:
        """The bytes since the last call."""
        content, self._parts = b"".join(self._parts), []
        return content


def encoded(form: str, schema: pa.Schema, tables: Iterable[pa.Table]) -> Iterator[bytes]:
    """The content of a file with all rows of these tables. Raises ConfigError."""
    stream = _Written()
    sink = pa.PythonFile(stream, mode="w")
    try:
        is_parquet = form == "parquet"
        with parquet.ParquetWriter(sink, schema) if is_parquet else csv.CSVWriter(sink, schema) as writer:
            for table in tables:
                if is_parquet:
                    writer.write_table(table, ROW_GROUP)
                else:
                    writer.write_table(table)
                yield stream.taken()
        yield stream.taken()
    except pa.ArrowException:
        raise ConfigError("a column of lists cannot be in a CSV file; name the output .parquet") from None
