"""`idgraph dev`: the production shape on a laptop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from idgraph.app.commands.flow import Reporter, print_batch, print_batch_json, stopping_on_signals
from idgraph.app.exits import error_handler
from idgraph.model.errors import AlreadyRunningError, ConfigError

DEFAULT = Path(".idgraph") / "dev"

commands = typer.Typer(
    no_args_is_help=True,
    help="Kafka, DynamoDB Local and Elasticsearch on this machine, for who builds against them.",
)


@commands.command("up")
def up(
    directory: Annotated[
        Path | None,
        typer.Option(
            help=f"Where servers and flow keep what they have; default {DEFAULT}. Made if it is not there."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a micro-batch.")] = False,
) -> None:
    """Start Kafka, DynamoDB Local, Elasticsearch, the metadata service and the flow, and stop all on Ctrl-C.

    The first time it makes DIRECTORY/idgraph.toml, with free ports and the sources of `idgraph demo` as topics,
    makes keyring, tables, index and topics, and gives the service the demo's specs. It prints how to publish and
    look up. The configuration is yours to edit. Started again, it goes on with what is there; to begin again,
    remove the directory.

    Everything listens on 127.0.0.1 and asks nobody for a password. It takes some 3 GB of memory, and the first
    time 140 MB from Maven Central (see `idgraph dev fetch`).
    """
    with error_handler(), stopping_on_signals() as stop:
        from idgraph.app.dev import machine as dev

        reporter = Reporter(print_batch_json if as_json else print_batch, stop)
        try:
            dev.up(directory or DEFAULT, stop, reporter)
        except AlreadyRunningError as error:
            raise ConfigError(
                f"{directory or DEFAULT} is {error}; for a second one give another --directory"
            ) from None
        reporter.check()


@commands.command("fetch")
def fetch() -> None:
    """Fetch the servers' jars from Maven Central, checked by digest, and print the folder that has them.

    `up` does this by itself. For a machine without a way there, run it on one that has, and copy the folder.
    """
    with error_handler():
        from idgraph.app.dev import machine as dev

        print(dev.fetch())
