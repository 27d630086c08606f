"""`idgraph seal`: seal stored values that are protected now."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from idgraph.app.adapters.key_providers import ensure_keyring
from idgraph.app.commands.context import DryRun, JobWho, JobWhy, Json, Rate, origin_of, stored
from idgraph.app.exits import Exit
from idgraph.app.observation.json_logs import say
from idgraph.app.terminal import counted, print_json, print_table
from idgraph.model.errors import ConfigError
from idgraph.model.text import escape_control_chars

if TYPE_CHECKING:
    from idgraph.model.jobs import Progress


def seal(
    context: typer.Context,
    dry_run: DryRun = False,
    rate: Rate = None,
    list_names: Annotated[
        Path | None,
        typer.Option(
            help="Write the profiles with names in the clear to a new file. The file shows these names."
        ),
    ] = None,
    who: JobWho = "",
    why: JobWhy = "",
    as_json: Json = False,
) -> None:
    """Seal stored values and names that policy protects now, beside a running flow.

    If it is interrupted, run it again to resume. Exit code 1: something stays in the clear, as the message says.
    """
    from idgraph.app.jobs.context import LocalJobContext
    from idgraph.app.jobs.view import run_shown
    from idgraph.jobs.kind import page_of
    from idgraph.jobs.reencrypt.policy_change import SealParameters, is_complete, prepare
    from idgraph.jobs.reencrypt.stored_sealing import PAGE
    from idgraph.model.jobs import Progress

    settings = stored(context)
    if list_names is not None and list_names.exists():
        raise ConfigError(f"{list_names}: the file exists and is not replaced; name a new file")
    ensure_keyring(settings)
    readable: list[bytes] = []

    def list_readable(name: str, kinds: set[str]) -> None:
        if list_names is not None:
            readable.append(_line(name, kinds))

    origin = origin_of(who, why)
    with LocalJobContext(settings, origin) as here:
        job = prepare(SealParameters(rate=rate), here, list_readable, notes=not dry_run)
        if dry_run:
            done = Progress()
            for _ in job.sealing.preview(done, page_of(PAGE, rate)):
                pass
        else:
            done = run_shown(here.runner, job, origin, rate=rate)
        if list_names is not None:
            from idgraph.jobs.export_file import write_export

            write_export(list_names, readable)
    if as_json:
        print_json(_described(done, job.snapshot.version))
    else:
        _show_report(done, dry_run)
    _report_what_stays(done)
    _report_which(done, list_names)
    if not is_complete(done) or done.parts("readable"):
        raise typer.Exit(Exit.FAILED)


def _line(fragment_id: str, kinds: set[str]) -> bytes:
    # JSON escapes line ends and control characters of a name.
    return json.dumps({"fragment": fragment_id, "types": sorted(kinds)}).encode() + b"\n"


def _described(done: Progress, version: int) -> dict[str, Any]:
    return {
        "snapshot": version,
        "fragments": done.counts["fragments"],
        "values": dict(sorted(done.parts("values").items())),
        "failed": done.counts["failed"],
        "named": done.notes.get("failed", []),
        "dead_letters": done.counts["dead_letters"],
        "renamed": dict(sorted(done.parts("renamed").items())),
        "readable_names": dict(sorted(done.parts("readable").items())),
    }


def _show_report(done: Progress, dry_run: bool) -> None:
    from transforms.privacy.protected_names import EVENT

    values = done.parts("values")
    if values:
        print_table(("attribute", "values"), [(path, f"{n:,}") for path, n in sorted(values.items())])
    for kind, number in sorted(done.parts("renamed").items()):
        thing = "ids of events" if kind == EVENT else f"identifiers of type {kind}"
        verb = "to hash" if dry_run else "hashed"
        print(f"{thing} of {counted(number, 'profile')} {verb}")
    verb = "to seal" if dry_run else "sealed"
    profiles = counted(done.counts["fragments"], "profile")
    print(f"{counted(values.total(), 'value')} of {profiles} {verb}")


def _report_what_stays(done: Progress) -> None:
    from idgraph.jobs.reencrypt.stale import PATH

    if refused := done.counts["refused"]:
        say(
            f"the index refused {counted(refused, 'profile')}, so search finds their old values: "
            "repair the cause in the log, then seal again"
        )
    if failed := done.counts["failed"]:
        named = done.notes["failed"]
        say(
            f"{counted(failed, 'profile')} cannot be sealed, because their state or data key is damaged: "
            f"{escape_control_chars(', '.join(named))}{', …' * (failed > len(named))}; restore them from a backup, "
            "then seal again"
        )
    if dead_letters := done.counts["dead_letters"]:
        say(
            f"{counted(dead_letters, 'dead letter')} cannot be read and keep names in the clear. They are damaged: drop "
            "them (`idgraph dead-letters`); or a later idgraph wrote them and can seal them"
        )
    if keys := done.parts("readable")[PATH]:
        say(
            f"{counted(keys, 'profile')} with sensitive keys in the clear: paths cannot be sealed. "
            "Declare the attributes if the keys are plain names. Otherwise map the keys to values in the spec, erase "
            "these profiles, cancel the erasure, and run over the source files again "
            "(docs/operate.md, Protecting what is stored)"
        )


def _report_which(done: Progress, file: Path | None) -> None:
    if file is not None:
        say(f"{file}: the profiles with names in the clear, one per line")
    elif done.parts("readable"):
        say("`idgraph seal --dry-run --list-names FILE` lists these profiles")
