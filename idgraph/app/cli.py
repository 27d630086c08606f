"""The command line: `idgraph --help`."""

from __future__ import annotations

import logging
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from idgraph.app.commands import (
    attributes,
    dead_letters,
    dev,
    erase,
    flow,
    flows,
    index,
    jobs,
    keys,
    mapping,
    profiles,
    seal,
    services,
    specs,
    store,
    tokens,
)
from idgraph.app.commands.backfill import backfill
from idgraph.app.commands.bench import bench
from idgraph.app.commands.demo import demo
from idgraph.app.commands.index import reindex
from idgraph.app.commands.package import package
from idgraph.app.commands.reconcile import reconcile
from idgraph.app.exits import error_handler
from idgraph.app.observation.json_logs import BATCHES, JsonFormatter
from idgraph.app.terminal.stdio import open_closed_streams

EPILOG = (
    "Exit codes: 0 done, 1 failed, 2 wrong command line or configuration, or an unreadable file, 3 not found, "
    "4 the flow stopped itself, 5 metadata service away or token refused, 6 index and store differ, "
    "130 interrupted or cancelled, 141 the reader of the output ended."
)

app = typer.Typer(
    name="idgraph",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EPILOG,
    help="Private, searchable profiles from the events of many systems.\n\n"
    "A first look: `idgraph demo`. Then: `idgraph keys init`, `idgraph serve metadata`, `idgraph specs apply "
    "FILE`, `idgraph run`, and `idgraph search`.",
)


class LogFormat(StrEnum):
    """Format of messages."""

    TEXT = "text"
    JSON = "json"


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        from idgraph import native

        print(f"idgraph {version('idgraph')} (native loops: {native.state})")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", "-c", help="Configuration file. Default: $IDGRAPH_CONFIG, then ./idgraph.toml."
        ),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print more on standard error.")] = False,
    log_format: Annotated[
        LogFormat,
        typer.Option(help="Format of messages on standard error; `json`: one object per line."),
    ] = LogFormat.TEXT,
    _show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of every command."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    if log_format is LogFormat.JSON:
        logging.getLogger().handlers[0].setFormatter(JsonFormatter())
    # Only ours: at this level libraries log URLs, which can contain search terms.
    for name in (
        "idgraph",
        "ingestion",
        "merge",
        "metadata_service",
        "profile_service",
        "sinks",
        "transforms",
    ):
        logging.getLogger(name).setLevel(logging.DEBUG if verbose else logging.INFO)
    logging.getLogger(BATCHES).setLevel(logging.INFO if log_format is LogFormat.JSON else logging.CRITICAL)
    if not verbose:
        # It logs pages of JVM frames for a failure that the flow reports in one line; partly through the root logger.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        for handler in logging.getLogger().handlers:
            handler.addFilter(lambda record: Path(record.pathname).parent.name != "py4j")
    context.obj = config


app.command()(demo)
app.command()(flow.run)
app.command()(flow.publish)
app.command()(flows.flows)
app.command()(backfill)
app.command()(package)
app.command("map")(mapping.map_payloads)
app.command()(mapping.check)
app.command()(profiles.lookup)
app.command()(profiles.search)
app.command()(profiles.export)
app.command()(erase.erase)
app.command()(seal.seal)
app.command()(reindex)
app.command()(reconcile)
app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})(bench)
app.add_typer(jobs.commands, name="jobs")
app.add_typer(dead_letters.commands, name="dead-letters")
app.add_typer(specs.commands, name="specs")
app.add_typer(attributes.commands, name="attributes")
app.add_typer(tokens.commands, name="tokens")
app.add_typer(keys.commands, name="keys")
app.add_typer(store.commands, name="store")
app.add_typer(index.commands, name="index")
app.add_typer(services.commands, name="serve")
app.add_typer(dev.commands, name="dev")


def main() -> None:
    """The entry point of `idgraph`."""
    open_closed_streams()
    try:
        # Commands do it themselves; writing the help can fail too.
        with error_handler():
            app()
    except typer.Exit as end:
        sys.exit(end.exit_code)


if __name__ == "__main__":
    main()
