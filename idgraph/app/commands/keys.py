"""`idgraph keys`: the keyring, and the data keys that its versions wrap."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from idgraph.app import wiring
from idgraph.app.adapters.key_providers import create_keyring
from idgraph.app.adapters.shared_state import audit_lines
from idgraph.app.commands.context import (
    JobWho,
    JobWhy,
    Json,
    Rate,
    Yes,
    keyed,
    note,
    origin_of,
    settings_of,
    stored,
)
from idgraph.app.exits import Exit
from idgraph.app.terminal import confirmed, counted, print_json, print_table

if TYPE_CHECKING:
    from transforms.privacy.keys import KeyVersion

commands = typer.Typer(
    no_args_is_help=True, help="The keyring: key-encryption keys, bare or encrypted by AWS KMS."
)


@commands.command()
def init(
    context: typer.Context,
    bare: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="An existing keyring file: its keys are encrypted by KMS. The file stays unchanged.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Make a keyring. An existing one is never replaced."""
    settings = settings_of(context)
    wiring.prepare_directory(settings)
    # Before there is a keyring: tables in DynamoDB may be missing.
    next(audit_lines(settings).backward(None), None)
    create_keyring(settings, bare)
    # A new keyring cannot continue the chain of a lost one.
    kept = wiring.audit_log(settings).set_aside()
    note(settings, "keys init")
    if kept is not None:
        print(f"the audit log of the keyring before is {kept}; a new one begins")
    print(
        f"made {settings.keyring_file()}; keep a copy in a safe place: without it nothing protected can be read"
    )


@commands.command()
def add(context: typer.Context) -> None:
    """Add a key-encryption key, which wraps new data keys from now on."""
    from idgraph.jobs.rotate import known_counts

    settings = stored(context)
    with wiring.opened_keys(settings, own=True) as (provider, store):
        # Raises for an older copy of the keyring.
        known_counts(provider, store)
        note(settings, "keys add")
        print(f"version {provider.add()} is current")


@commands.command()
def rotate(
    context: typer.Context, rate: Rate = None, who: JobWho = "", why: JobWhy = "", as_json: Json = False
) -> None:
    """Make a new key-encryption key current and wrap every data key with it, beside a running flow.

    If it is interrupted, run it again to resume. Exit code 1: some data keys cannot be unwrapped and stay unchanged,
    or the keyring is another one or an older copy, and nothing was done.
    """
    from idgraph.app.jobs.context import run_job
    from idgraph.jobs.rotate import ROTATE, RotateParameters

    job, done = run_job(settings_of(context), ROTATE, RotateParameters(rate=rate), origin_of(who, why))
    rewrapped, unusable = done.counts["rewrapped"], done.counts["unusable"]
    named = done.notes.get("unusable", [])
    if as_json:
        print_json(
            {
                "version": job.version,
                "resumed": done.resumed,
                "rewrapped": rewrapped,
                "unusable": unusable,
                "fragments": named,
            }
        )
    else:
        print(f"version {job.version} is current; {counted(rewrapped, 'data key')} rewrapped")
    if unusable:
        print(
            f"{counted(unusable, 'data key')} cannot be unwrapped and stay unchanged: {', '.join(named)}",
            file=sys.stderr,
        )
        raise typer.Exit(Exit.FAILED)


@commands.command()
def adopt(context: typer.Context, yes: Yes = False) -> None:
    """Use this keyring after the keyring of the profiles is lost.

    Names that the lost keyring made are found no more. Persons with protected identifiers become second profiles.
    Run `reindex --again`, then repeat all erasures. Exit code 1: the keyring does not open the existing data keys.
    """
    settings = keyed(context)
    if not (
        yes
        or confirmed("erased persons can come back, and protected identifiers are found no more; continue?")
    ):
        print("nothing was changed", file=sys.stderr)
        raise typer.Exit(Exit.FAILED)
    wiring.adopt_keyring(settings)
    log = wiring.audit_log(settings)
    if log.verify().broken_line == 1 and (kept := log.set_aside()):
        print(f"the audit log of the keyring before is {kept}; a new one begins")
    note(settings, "keys adopt")
    print(f"{settings.keyring_file()} is the profiles' keyring now; run `idgraph reindex --again`")


@commands.command("list")
def list_keys(context: typer.Context, as_json: Json = False) -> None:
    """List key-encryption keys: version, status, dates, number of data keys; never the keys themselves."""
    with wiring.opened_keys(stored(context)) as (provider, store):
        counts = store.counts()
        listed = [_described(key, counts.pop(key.version, 0)) for key in provider.versions()]
        # These data keys are unreadable, because their version is missing.
        listed += [
            {"version": version, "status": "missing", "data_keys": number}
            for version, number in sorted(counts.items())
        ]
        if as_json:
            for key in listed:
                print_json(key)
        else:
            titles = ("version", "status", "created", "retired", "data_keys")
            print_table(titles, [[f"{key.get(title, '-')}" for title in titles] for key in listed])


@commands.command()
def retire(
    context: typer.Context,
    version: Annotated[int, typer.Argument(help="A version that is no longer current.")],
    as_json: Json = False,
) -> None:
    """Destroy a key-encryption key that wraps no data key. There is no way back.

    Exit code 1: it is current or in use; 3: the version does not exist. Backups of data-keys.db from before its
    rotation then need a keyring of that time.
    """
    from idgraph.jobs.rotate import retire as retirement
    from idgraph.jobs.rotate import users
    from idgraph.model.errors import KeyInUseError

    settings = stored(context)
    with wiring.opened_keys(settings) as (provider, store):
        try:
            note(settings, "keys retire", subject=str(version))
            retirement(provider, store, version)
        except KeyInUseError:
            if as_json:
                key = next(key for key in provider.versions() if key.version == version)
                used = store.counts().get(version, 0)
                print_json({**_described(key, used), "fragments": users(store, version)})
            raise
        if as_json:
            key = next(key for key in provider.versions() if key.version == version)
            print_json(_described(key, 0))
        else:
            print(f"version {version} is retired")


def _described(key: KeyVersion, data_keys: int) -> dict[str, Any]:
    described: dict[str, Any] = {
        "version": key.version,
        "status": str(key.status),
        "created": key.created.isoformat(),
        "data_keys": data_keys,
    }
    if key.retired is not None:
        described["retired"] = key.retired.isoformat()
    return described
