"""`idgraph features`: derived attributes as of the times of labels, for training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from idgraph.app.commands.context import keyed
from idgraph.model.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa


def features(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(metavar="LABELS", help="Parquet or CSV with columns identifier and time.")
    ],
    columns: Annotated[
        str,
        typer.Option(
            "--columns",
            help="Derived attributes, separated by commas. latest:PATH takes the latest value of any attribute.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="New file, .parquet or .csv.")],
    segment: Annotated[
        str | None,
        typer.Option("--segment", help="Only members of this segment; they gave the consent that it needs."),
    ] = None,
    clearance: Annotated[
        int, typer.Option("--clearance", min=0, max=100, help="Attributes above this level are unknown.")
    ] = 100,
) -> None:
    """Write labels with their persons' derived attributes, each as of the label's time: what trains a model.

    A label is an identifier such as user_id:480 and a time: epoch milliseconds, or a timestamp (without a zone UTC). An entry
    counts if its time is before it. Rows keep their order and their other columns. An identifier of nobody has null features.
    """
    from idgraph.app.reader import Reader
    from idgraph.jobs.export_file import require_place, write_export

    form = _form(output)
    require_place(output)
    table = _read(file)
    names = [each for part in columns.split(",") if (each := part.strip())]
    with Reader(keyed(context)) as reader:
        found = reader.features(table, names, segment=segment, clearance=clearance)
    write_export(output, [_encoded(found.to_arrow(), form)])


def _form(file: Path) -> str:
    if file.suffix not in (".parquet", ".csv"):
        raise ConfigError(f"{file}: its name must end in .parquet or .csv")
    return file.suffix


def _read(file: Path) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv, parquet

    try:
        return parquet.read_table(file) if _form(file) == ".parquet" else csv.read_csv(file)
    # Its message may quote a value.
    except pa.ArrowException:
        raise ConfigError(f"{file}: is no {_form(file)[1:]} file that can be read") from None
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or 'cannot be read'}") from None


def _encoded(table: pa.Table, form: str) -> bytes:
    import pyarrow as pa
    from pyarrow import csv, parquet

    stream = pa.BufferOutputStream()
    try:
        parquet.write_table(table, stream) if form == ".parquet" else csv.write_csv(table, stream)
    except pa.ArrowException:
        raise ConfigError("a column of lists cannot be in a CSV file; name the output .parquet") from None
    content: bytes = stream.getvalue().to_pybytes()
    return content
