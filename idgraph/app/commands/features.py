"""`idgraph features`: derived attributes as of the times of labels, for training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from idgraph.app.commands.context import JobWho, JobWhy, keyed, origin_of


class _LabelsFirst(TyperGroup):
    """`idgraph features LABELS ...` is `idgraph features add LABELS ...`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = ["add", *args]
        return super().parse_args(ctx, args)


commands = typer.Typer(
    cls=_LabelsFirst,
    no_args_is_help=True,
    help="Derived attributes as of the times of labels, to train a model: `idgraph features LABELS --columns A,B -o FILE`.",
)


@commands.command("add")
def add(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="LABELS", help="Parquet or CSV with columns identifier and time; or a folder."
        ),
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
    complete: Annotated[
        bool,
        typer.Option("--complete", help="Add columns PATH:is_complete: false where entries may be missing."),
    ] = False,
    who: JobWho = "",
    why: JobWhy = "",
) -> None:
    """Write labels with their persons' derived attributes, each as of the label's time: what trains a model.

    A label is an identifier such as user_id:480 and a time: epoch milliseconds, or a timestamp (without a zone UTC). An entry
    counts if its time is before it. Rows keep their order and their other columns. An identifier of nobody has null features.
    """
    from idgraph.app.jobs.context import run_job
    from idgraph.jobs.features.job import FEATURES, FeaturesParameters

    parameters = FeaturesParameters(
        labels=file,
        output=output,
        columns=[each for part in columns.split(",") if (each := part.strip())],
        segment=segment,
        clearance=clearance,
        complete=complete,
    )
    run_job(keyed(context), FEATURES, parameters, origin_of(who, why))
