"""Shared by commands: the configuration and common options."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from idgraph.app.wiring import local_user, operator_name
from idgraph.model.jobs import Requester

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings

Why = Annotated[str, typer.Option("--reason", "--why", help="Reason; stored with the change.")]
JobWho = Annotated[
    str, typer.Option("--who", help="Name of the person in charge. Default: the user of this machine.")
]
JobWhy = Annotated[str, typer.Option("--why", "--reason", help="Reason; kept with the job.")]
Json = Annotated[bool, typer.Option("--json", help="JSON for scripts.")]
Purpose = Annotated[
    str, typer.Option("--purpose", help="Purpose of revealing protected values; kept in the audit log.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would change; change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Again = Annotated[bool, typer.Option("--again", help="Start from the beginning instead of resuming.")]
Rate = Annotated[
    int | None,
    typer.Option(
        "--rate", min=1, max=1_000_000, help="Most profiles, documents or keys per second. Default: no limit."
    ),
]


TYPE_VALUE = "TYPE:VALUE; - is a line of standard input, which no list of processes shows."


def from_stdin(given: str | None) -> str | None:
    """An argument that names a person, or `-` for the next line of standard input."""
    if given != "-":
        return given
    line = sys.stdin.readline().strip()
    if not line:
        raise typer.BadParameter("standard input has no further line")
    return line


def all_from_stdin(given: list[str] | None) -> list[str] | None:
    """The same of several, where `-` stands for all lines."""
    if given is None or "-" not in given:
        return given
    return [each for each in given if each != "-"] + [line.strip() for line in sys.stdin if line.strip()]


def settings_of(context: typer.Context) -> Settings:
    """The configuration that the command line named. Raises ConfigError."""
    from idgraph.app.settings.document import load

    given: tuple[Path | None, str | None] = context.find_root().obj
    settings = load(given[0])
    if given[1] is None:
        return settings
    from idgraph.app.settings.sandbox import in_sandbox

    return in_sandbox(settings, given[1])


def stored(context: typer.Context) -> Settings:
    """The same, for a command on stored data: not in a folder that has neither a configuration nor anything
    stored."""
    settings = settings_of(context)
    settings.require_folder()
    return settings


def keyed(context: typer.Context) -> Settings:
    """The same, once there is a keyring that can be used. Raises ConfigError, KeyProviderError."""
    from idgraph.app.adapters.key_providers import ensure_keyring

    settings = settings_of(context)
    ensure_keyring(settings)
    return settings


def note(settings: Settings, action: str, **details: Any) -> None:
    """Record in the audit log an act or a read of the local operator before it happens. Raises StoreError,
    KeyProviderError; then it may not be done."""
    from idgraph.app import wiring

    wiring.audit_log(settings).append({"action": action, "caller": operator_name(), **details})


def origin_of(who: str, why: str) -> Requester:
    """The person who starts a job, and the reason."""
    return Requester(who or local_user(), why)
