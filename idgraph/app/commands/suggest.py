"""`idgraph suggest`: pairs of profiles that may be one person, for somebody to review."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from idgraph.app import wiring
from idgraph.app.commands.context import Json, keyed
from idgraph.app.commands.links import deciding
from idgraph.app.terminal import counted
from idgraph.model import canonical
from idgraph.model.text import escape_control_chars

commands = typer.Typer(
    no_args_is_help=True,
    help="Suggestions of identifiers that may be one person. Rules decide; a model suggests.",
)

_BEGINNING = b'{"pair":'
"""The beginning of each line of a review list: its keys are sorted."""


@commands.command("find")
def find_suggestions(
    context: typer.Context,
    attributes: Annotated[
        list[str], typer.Argument(metavar="ATTRIBUTE...", help="Paths of attributes to compare.")
    ],
    block: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH[,PATH]",
            help="Compare only profiles that agree on these attributes; several: on any of them. "
            "Default: on one compared attribute.",
            show_default=False,
        ),
    ] = None,
    least_weight: Annotated[float, typer.Option(help="The least weight; 0: as likely as not.")] = 2.0,
    output: Annotated[
        Path | None, typer.Option(help="Write the review list here, as JSON Lines.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Find pairs of profiles that may be one person, by a model that is trained on the stored profiles.

    It changes nothing. Each pair has a weight, the logarithm to base 2 of its odds, and the part of each attribute. A
    pair that somebody decided on is left out. Protected attributes cannot be compared. With --json: one object per pair.
    """
    from idgraph.jobs.export_file import require_export, write_export
    from idgraph.jobs.suggestions import compared_values, suggest

    if output is not None:
        require_export(output, _BEGINNING)
    settings = keyed(context)
    with wiring.opened_to_read(settings) as resources:
        records = dict(compared_values(wiring.profile_reader(settings, resources), attributes))
        found = suggest(records, attributes, [each.split(",") for each in block or ()], least_weight)
        pins = resources.store.pins_of(sorted({each.one for each in found} | {each.other for each in found}))
    decided = {frozenset((pin.low, pin.high)) for pin in pins if pin.decision != "none"}
    found = [each for each in found if frozenset((each.one, each.other)) not in decided]
    lines = [
        canonical.encode({"pair": [each.one, each.other], "weight": each.weight, "parts": dict(each.parts)})
        for each in found
    ]
    if output is not None:
        write_export(output, (line + b"\n" for line in lines))
    if as_json:
        for line in lines:
            print(line.decode())
        return
    for each in found:
        parts = ", ".join(f"{path} {part:+.1f}" for path, part in each.parts.items())
        print(escape_control_chars(f"{each.one} - {each.other}: {each.weight:.1f} ({parts})"))
    print(counted(len(found), "suggestion"), file=sys.stderr)


commands.command(
    "accept",
    help="Accept suggestions: pin each pair as one person, as `links pin --decision always` does. "
    "--file takes a review list.",
)(deciding("always"))
commands.command(
    "refuse",
    help="Refuse suggestions: pin each pair as two persons, as `links unlink` does. --file takes a review list.",
)(deciding("never"))
