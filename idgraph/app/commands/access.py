"""`idgraph access-request`: all that is stored of a person."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from idgraph.app import wiring
from idgraph.app.commands.context import TYPE_VALUE, JobWho, JobWhy, from_stdin, keyed, note, origin_of
from idgraph.app.terminal import json_writer
from idgraph.model.errors import NotFoundError
from idgraph.model.identifiers import given_identifier


def access_request(
    context: typer.Context,
    identifier: Annotated[str, typer.Argument(help=TYPE_VALUE, callback=from_stdin)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="New file to write. Default: standard output.")
    ] = None,
    who: JobWho = "",
    why: JobWhy = "",
) -> None:
    """Write all that is stored of a person as one JSON document, protected values in the clear.

    Profile, consents, fragments, timelines, links, history and dead letters, with provenance. Exit code 3: nothing is stored.
    """
    from idgraph.app.jobs.context import LocalJobContext
    from idgraph.jobs.access import ACCESS, AccessParameters
    from idgraph.jobs.export_file import require_place, write_export

    given_identifier(identifier)
    settings = keyed(context)
    if output is not None:
        require_place(output)

    def write(content: bytes, _ids: Sequence[str]) -> None:
        if output is None:
            json_writer()(content)
            sys.stdout.flush()
        else:
            write_export(output, [content])

    origin = origin_of(who, why)
    with LocalJobContext(settings, origin, deliver=write) as here:
        job = ACCESS.prepare(AccessParameters.model_construct(identifier=identifier), here)
        if job is None:
            raise NotFoundError("nothing is stored under it")
        named = wiring.keyed_hash(here.resources())(min(job.fragments))
        note(settings, "access request", profile=named, purpose=why)
        here.runner.run(job, origin)
