"""`idgraph seal`: what is stored in the clear and is protected now."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from idgraph.app import wiring
from idgraph.app.adapters.key_providers import ensure_keyring
from idgraph.app.commands.context import Json, settings_of
from idgraph.app.exits import Exit, error_handler
from idgraph.app.jobs import progress as progress_view
from idgraph.app.observation.json_logs import say
from idgraph.app.terminal.output import counted, escape_control_chars, print_json, print_table
from idgraph.jobs.export_file import write_export
from idgraph.model.errors import ConfigError, MetadataError

if TYPE_CHECKING:
    from idgraph.jobs.reencrypt.stored_sealing import SealingProgress

Rate = Annotated[
    int | None,
    typer.Option(
        "--rate", min=1, help="Write at most so many profiles a second. Default: as fast as it goes."
    ),
]


def seal(
    context: typer.Context,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be sealed; change nothing.")
    ] = False,
    rate: Rate = None,
    list_names: Annotated[
        Path | None,
        typer.Option(
            help="Write to a new file which profiles have names in the clear, as they were found; it shows "
            "those names."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Seal what was stored in the clear before policy protected it, values and names, beside a running flow.

    If it is interrupted, run it again: it finds what is left. Exit code 1 if something stays in the clear, which
    is then reported.
    """
    from idgraph.jobs.reencrypt.stored_sealing import PAGE, StoredSealing
    from transforms.spec.snapshot import CompiledSnapshot

    with error_handler():
        settings = settings_of(context)
        if list_names is not None and list_names.exists():
            raise ConfigError(f"{list_names}: is there already, and is not replaced; name a new file")
        ensure_keyring(settings)
        pinned = wiring.newest_snapshot(settings)
        if pinned is None:
            raise MetadataError("there is no metadata to seal by: start the metadata service")
        with wiring.opened(settings) as resources:
            wiring.require_own_keyring(settings, resources, notes=not dry_run)
            readable: list[bytes] = []
            sealing = StoredSealing(
                resources,
                CompiledSnapshot(pinned.snapshot),
                on_readable=lambda name, kinds: readable.append(_line(name, kinds)) if list_names else None,
            )
            page = min(PAGE, rate) if rate else PAGE
            # By what is written: to look at what is sealed already costs little.
            run = progress_view.paced(sealing.run(page), rate, lambda progress: progress.fragments)
            job = sealing.preview(page) if dry_run else run
            done = next(job)
            say(f"looking at {counted(done.total, 'profile')} under snapshot {pinned.snapshot.version}")
            progress_view.show(job, done.total, "profiles")
            if list_names is not None:
                write_export(list_names, readable)
            refused = 0 if dry_run else sealing.finish()
        if as_json:
            print_json(_described(done, pinned.snapshot.version))
        else:
            _show_report(done, dry_run)
        _report_what_stays(done, refused)
        _report_which(done, list_names)
        if done.failed or done.readable or done.dead_letters or refused:
            raise typer.Exit(Exit.FAILED)


def _line(fragment_id: str, kinds: set[str]) -> bytes:
    # One a line whatever characters a name has: JSON escapes line ends and what steers a terminal.
    return json.dumps({"fragment": fragment_id, "types": sorted(kinds)}).encode() + b"\n"


def _described(done: SealingProgress, version: int) -> dict[str, Any]:
    return {
        "snapshot": version,
        "fragments": done.fragments,
        "values": dict(sorted(done.values.items())),
        "failed": done.failed,
        "named": done.named,
        "letters": done.dead_letters,
        "renamed": dict(sorted(done.renamed.items())),
        "readable_names": dict(sorted(done.readable.items())),
    }


def _show_report(done: SealingProgress, dry_run: bool) -> None:
    from transforms.privacy.stored_names import EVENT

    if done.values:
        print_table(("attribute", "values"), [(path, f"{n:,}") for path, n in sorted(done.values.items())])
    for kind, number in sorted(done.renamed.items()):
        thing = "ids of events" if kind == EVENT else f"identifiers of type {kind}"
        verb = "to hash" if dry_run else "hashed"
        print(f"{thing} of {counted(number, 'profile')} {verb}")
    verb = "to seal" if dry_run else "sealed"
    values = counted(done.values.total(), "value")
    print(f"{values} of {counted(done.fragments, 'profile')} {verb}")


def _report_what_stays(done: SealingProgress, refused: int) -> None:
    from idgraph.jobs.reencrypt.stale import PATH

    if refused:
        say(
            f"the index refused {counted(refused, 'profile')}, which search finds by what they held before: "
            "repair what the log says, then seal again"
        )
    if done.failed:
        say(
            f"{counted(done.failed, 'profile')} cannot be sealed, their state or data key is damaged: "
            f"{escape_control_chars(', '.join(done.named))}{', …' * (done.failed > len(done.named))}; restore them from a backup, "
            "then seal again"
        )
    if done.dead_letters:
        say(
            f"{counted(done.dead_letters, 'dead letter')} of profiles cannot be read and keep names in the clear: they are "
            "damaged, or of a later idgraph, which can seal them; or drop them (`idgraph dead-letters`)"
        )
    if keys := done.readable[PATH]:
        say(
            f"{counted(keys, 'profile')} with keys in the clear that look sensitive: paths cannot be sealed. "
            "Declare the attributes if the keys are names; else have the spec make values of them, erase these "
            "profiles, lift the erasure, and run over the source files again "
            "(docs/operate.md, Protecting what is stored)"
        )


def _report_which(done: SealingProgress, file: Path | None) -> None:
    if file is not None:
        say(f"{file}: which profiles had names in the clear, one a line")
    elif done.readable:
        say("`idgraph seal --dry-run --list-names FILE` writes which profiles these are")
