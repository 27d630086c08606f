"""`idgraph dev`: all servers on a laptop."""

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
    help="Kafka, DynamoDB Local and Elasticsearch on this machine, for development.",
)


@commands.command("up")
def up(
    directory: Annotated[
        Path | None,
        typer.Option(help=f"Folder of the servers and the flow; default {DEFAULT}. Created if missing."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per micro-batch.")] = False,
) -> None:
    """Start Kafka, DynamoDB Local, Elasticsearch, the metadata service and the flow; Ctrl-C stops all.

    The first start writes DIRECTORY/idgraph.toml with free ports and the sources of `idgraph demo` as topics,
    creates keyring, tables, index and topics, and applies the demo's specs. You can edit the configuration. The
    next start continues; to start from nothing, remove the directory.

    All servers listen on 127.0.0.1 without a password. They take about 3 GB of memory, and the first start
    downloads 140 MB from Maven Central (see `idgraph dev fetch`).
    """
    with error_handler(), stopping_on_signals() as stop:
        from idgraph.app.dev import machine as dev

        reporter = Reporter(print_batch_json if as_json else print_batch, stop)
        try:
            dev.up(directory or DEFAULT, stop, reporter)
        except AlreadyRunningError as error:
            raise ConfigError(
                f"{directory or DEFAULT} is {error}; for a second one use another --directory"
            ) from None
        reporter.check()


@commands.command("fetch")
def fetch() -> None:
    """Download the servers' jars from Maven Central, check their digests, and print their folder.

    `up` does this itself. For a machine without internet access, run it on another one and copy the folder.
    """
    with error_handler():
        from idgraph.app.dev import machine as dev

        print(dev.fetch())
