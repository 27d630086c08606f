"""`idgraph access-request`: all that is stored of a person."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from idgraph.app import wiring
from idgraph.app.adapters.key_providers import ensure_keyring
from idgraph.app.commands.context import JobWho, JobWhy, origin_of, settings_of
from idgraph.app.exits import Exit
from idgraph.app.terminal import json_writer
from idgraph.model.errors import QueryError
from idgraph.model.identifiers import Identifier


def access_request(
    context: typer.Context,
    identifier: Annotated[str, typer.Argument(metavar="TYPE:VALUE", help="An identifier of the person.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="New file to write. Default: standard output.")
    ] = None,
    who: JobWho = "",
    why: JobWhy = "",
) -> None:
    """Write all that is stored of a person as one JSON document, protected values in the clear.

    Profile, consents, fragments, links, history and dead letters, with provenance. Exit code 3: nothing is stored.
    """
    from idgraph.app.jobs.person_jobs import access_job, opened, the_person
    from idgraph.jobs.export_file import require_place, write_export

    try:
        wanted = Identifier.parse(identifier)
    except ValueError as error:
        raise QueryError(str(error)) from None
    settings = settings_of(context)
    ensure_keyring(settings)
    if output is not None:
        require_place(output)

    def keep(content: bytes, _ids: Sequence[str]) -> None:
        if output is None:
            json_writer()(content)
            sys.stdout.flush()
        else:
            write_export(output, [content])

    with opened(settings) as here, wiring.job_runner(settings) as runner:
        person = the_person(here.reader, wanted)
        if person is None:
            print("nothing is stored under it", file=sys.stderr)
            raise typer.Exit(Exit.NOT_FOUND)
        origin = origin_of(who, why)
        runner.run(access_job(here, person, origin.who, keep), origin)
