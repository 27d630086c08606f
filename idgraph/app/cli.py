"""The command line: `idgraph --help`."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from idgraph.app import OURS
from idgraph.app.exits import error_handler
from idgraph.app.observation.json_logs import BATCHES, JsonFormatter
from idgraph.app.terminal import open_closed_streams

EPILOG = (
    "Exit codes: 0 done, 1 failed, 2 wrong command line or configuration, or an unreadable file, 3 not found, "
    "4 the flow stopped itself, 5 metadata service away or token refused, 6 index and store, or look-ups and features, differ, "
    "130 interrupted or cancelled, 141 the reader of the output ended."
)

YOUNG_OBJECTS = 50_000
"""New objects after which Python looks for garbage. Most objects that are read are small tuples, and hardly
any is in a cycle. At Python's default a third of the projection's CPU went into looking."""

END_WITH_INPUT = "--end-with-input"
"""The option of a process that is to stop when its standard input ends, as with the process that started it."""

COMMANDS = {
    "demo": "demo:demo",
    "up": "up:up",
    "run": "flow:run",
    "publish": "flow:publish",
    "flows": "flows:commands",
    "backfill": "backfill:backfill",
    "package": "package:package",
    "map": "mapping:map_payloads",
    "check": "mapping:check",
    "lookup": "profiles:lookup",
    "search": "profiles:search",
    "export": "profiles:export",
    "timeline": "behaviour:timeline",
    "features": "features:commands",
    "explain": "links:explain",
    "links": "links:commands",
    "suggest": "suggest:commands",
    "access-request": "access:access_request",
    "erase": "erase:erase",
    "seal": "seal:seal",
    "reindex": "index:reindex",
    "reconcile": "reconcile:reconcile",
    "doctor": "doctor:doctor",
    "backup": "backup:backup",
    "restore": "backup:restore",
    "resolve": "resolve:resolve",
    "bench": "bench:bench",
    "jobs": "jobs:commands",
    "dead-letters": "dead_letters:commands",
    "specs": "specs:commands",
    "attributes": "attributes:commands",
    "rules": "rules:commands",
    "behaviour": "behaviour:commands",
    "models": "models:commands",
    "triggers": "triggers:commands",
    "tokens": "tokens:commands",
    "users": "users:commands",
    "audit": "audit:commands",
    "keys": "keys:commands",
    "sandboxes": "sandboxes:commands",
    "store": "store:commands",
    "index": "index:commands",
    "serve": "services:commands",
}
"""By name, in the order of the help: the module in `idgraph.app.commands` and the function, or the commands of a group."""


class LogFormat(StrEnum):
    """Format of messages."""

    TEXT = "text"
    JSON = "json"


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        from idgraph import native

        print(f"idgraph {version('idgraph')} (native code: {native.state})")
        raise typer.Exit


def root(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", "-c", help="Configuration file. Default: $IDGRAPH_CONFIG, then ./idgraph.toml."
        ),
    ] = None,
    sandbox: Annotated[
        str | None,
        typer.Option(help="Work in a sandbox of production, with a store, an index and keys of its own."),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print more on standard error.")] = False,
    log_format: Annotated[
        LogFormat,
        typer.Option(help="Format of messages on standard error; `json`: one object per line."),
    ] = LogFormat.TEXT,
    with_input: Annotated[bool, typer.Option(END_WITH_INPUT, hidden=True)] = False,
    _show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of every command."""
    # Users at a terminal know the time; files and log collectors must hold it.
    is_seen = sys.stderr is not None and sys.stderr.isatty()
    logging.basicConfig(
        level=logging.WARNING,
        format="%(levelname)s %(message)s" if is_seen else "%(asctime)s %(levelname)s %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S%z",
    )
    if log_format is LogFormat.JSON:
        logging.getLogger().handlers[0].setFormatter(JsonFormatter())
    # Only ours: at this level libraries log URLs, which can contain search terms.
    for name in OURS:
        logging.getLogger(name).setLevel(logging.DEBUG if verbose else logging.INFO)
    logging.getLogger(BATCHES).setLevel(logging.INFO if log_format is LogFormat.JSON else logging.CRITICAL)
    if not verbose:
        # It logs pages of JVM frames for a failure that the flow reports in one line; partly through the root logger.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        for handler in logging.getLogger().handlers:
            handler.addFilter(lambda record: Path(record.pathname).parent.name != "py4j")
    context.obj = config, sandbox
    if with_input:
        from idgraph.web.server import end_with_input

        end_with_input()


class _Commands(TyperGroup):
    """Reports the errors of every command in one way."""

    def invoke(self, ctx: Any) -> Any:
        with error_handler():
            return super().invoke(ctx)


def command_line(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The commands of these names, of which each takes time to load."""
    built = typer.Typer(
        name="idgraph",
        cls=_Commands,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog=EPILOG,
        help="Private, searchable profiles from the events of many systems.\n\n"
        "A first look: `idgraph demo`. Then: `idgraph keys init`, `idgraph up`, `idgraph specs apply FILE`, "
        "`idgraph publish SOURCE FILE`, and `idgraph search`.",
    )
    built.callback()(root)
    for name in names:
        module, _, attribute = COMMANDS[name].partition(":")
        found = getattr(import_module(f"idgraph.app.commands.{module}"), attribute)
        if isinstance(found, typer.Typer):
            built.add_typer(found, name=name)
        else:
            passes_on = {"ignore_unknown_options": True, "allow_extra_args": True}
            built.command(name, context_settings=passes_on if name == "bench" else None)(found)
    return built


def _named(words: Sequence[str]) -> Iterable[str]:
    """The command that the words name; all of them where that is not plain."""
    waiting = iter(words)
    for word in waiting:
        if word in ("-c", "--config", "--sandbox", "--log-format"):
            next(waiting, None)
        elif word not in ("-v", "--verbose", END_WITH_INPUT):
            return (word,) if word in COMMANDS else COMMANDS
    return COMMANDS


def __getattr__(name: str) -> Any:
    if name == "app":
        # The whole command line, once.
        globals()["app"] = whole = command_line()
        return whole
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def main() -> None:
    """The entry point of `idgraph`."""
    # No model here has a plugin; looking for them reads the metadata of all installed packages.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
    gc.set_threshold(YOUNG_OBJECTS)
    open_closed_streams()
    try:
        # Writing the help can fail, too.
        with error_handler():
            command_line(_named(sys.argv[1:]))()
    except typer.Exit as end:
        sys.exit(end.exit_code)


if __name__ == "__main__":
    main()
