"""`idgraph features`: derived attributes as of the times of labels, for training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from idgraph.app.commands.context import JobWho, JobWhy, Json, keyed, origin_of
from idgraph.model.errors import NotFoundError


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


@commands.command("check")
def check(
    context: typer.Context,
    sample: Annotated[
        int,
        typer.Option(
            "--sample", min=1, max=100_000, help="Most look-ups to compare, over all that are noted."
        ),
    ] = 1000,
    as_json: Json = False,
) -> None:
    """Compare look-ups that were served with features as of their moments: the share that differs, none. Exit code 6: some do.

    The profile service notes a share of its look-ups: `checked_share` among its settings. Entries that came after a
    look-up with an earlier time may change features: such look-ups are `late`, and do not count.
    """
    from contextlib import closing

    from idgraph.app import metadata_access, wiring
    from idgraph.app.adapters.shared_state import is_embedded, open_documents
    from idgraph.app.exits import Exit
    from idgraph.app.terminal import print_json, print_table
    from idgraph.jobs.features.check import FeatureCheck
    from idgraph.jobs.features.served import notes, rules_of

    settings = keyed(context)
    with closing(open_documents(settings)) as documents:
        noted = list(notes(documents))
    if not noted:
        raise NotFoundError(
            "no look-up was noted: set `checked_share` under `[profiles]`, restart the profile service, and look up whole "
            "profiles there; those with `fields` or a `view`, of callers with grants, and of a process that is not the service "
            "are not noted"
        )
    some = noted[:: -(-len(noted) // sample)]
    with wiring.opened_to_read(settings) as resources:
        wiring.require_own_keyring(settings, resources, notes=False)
        pinned = metadata_access.snapshot_to_read_by(settings)
        reader = wiring.profile_reader(settings, resources, pinned)
        hashes = wiring.served_hashes(settings)
        rules, scans = rules_of(pinned.snapshot), is_embedded(settings)
        found = FeatureCheck(reader, resources.store, hashes, rules, scans).of(some)
    document = found.document() | {"noted": len(noted)}
    if as_json:
        print_json(document)
    else:
        shown = ("noted", "looked_at", "same", "differs", "late", "redefined", "gone")
        print_table(("look-ups", "number"), [(name, f"{document[name]:,}") for name in shown])
        print_table(
            ("attribute", "differs"), [(path, f"{n:,}") for path, n in document["attributes"].items()]
        )
    if found.outcomes["differs"]:
        raise typer.Exit(Exit.DRIFT)
