"""`idgraph keys`: the keyring, and the data keys that its versions wrap."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from idgraph.app import wiring
from idgraph.app.adapters.key_providers import create_keyring, ensure_keyring
from idgraph.app.commands.context import JobWho, JobWhy, Json, origin_of, settings_of
from idgraph.app.exits import Exit, error_handler
from idgraph.app.terminal.output import counted, print_json, print_table
from idgraph.app.terminal.stdio import confirmed

if TYPE_CHECKING:
    from transforms.privacy.keys import KeyVersion

commands = typer.Typer(
    no_args_is_help=True, help="The keyring: key-encryption keys, bare or encrypted by AWS KMS."
)

Rate = Annotated[
    int | None,
    typer.Option(
        "--rate", min=1, help="Wrap at most so many data keys a second. Default: as fast as it goes."
    ),
]


@commands.command()
def init(
    context: typer.Context,
    bare: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="A keyring file whose keys are taken over, encrypted by KMS. It is left as it is.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Make a keyring. Never replaces one."""
    with error_handler():
        settings = settings_of(context)
        wiring.prepare_directory(settings)
        create_keyring(settings, bare)
        print(
            f"made {settings.keyring_file()}; keep a copy in a safe place: without it nothing protected can be read"
        )


@commands.command()
def add(context: typer.Context) -> None:
    """Add a key-encryption key, which new data keys are wrapped by from now on."""
    from idgraph.jobs.rotate import known_counts

    with error_handler(), wiring.opened_keys(settings_of(context), own=True) as (provider, store):
        # Not under an older copy, which this raises for.
        known_counts(provider, store)
        print(f"version {provider.add()} is current")


@commands.command()
def rotate(
    context: typer.Context, rate: Rate = None, who: JobWho = "", why: JobWhy = "", as_json: Json = False
) -> None:
    """Make a new key-encryption key current and wrap every data key by it, beside a running flow.

    If it is interrupted, run it again: it resumes where it was. Exit code 1 if some data keys cannot be
    unwrapped, which stay as they are, or if the keyring is another one or an older copy, under which nothing is begun.
    """
    from idgraph.app.jobs.view import run_shown
    from idgraph.jobs.rotate import PAGE, Rotation

    with error_handler():
        settings = settings_of(context)
        with (
            wiring.opened_keys(settings, own=True) as (provider, store),
            wiring.job_runner(settings) as runner,
        ):
            job = Rotation(provider, store, min(PAGE, rate or PAGE))
            done = run_shown(runner, job, origin_of(who, why), rate=rate)
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
                f"{counted(unusable, 'data key')} cannot be unwrapped and stayed: {', '.join(named)}",
                file=sys.stderr,
            )
            raise typer.Exit(Exit.FAILED)


@commands.command()
def adopt(
    context: typer.Context, yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
) -> None:
    """Go on with this keyring where the one that the profiles were made under is lost.

    What stands under that one's names is found by nothing any more: protected identifiers, so that their persons
    become second ones, and who was erased, so that the same events bring them back; erase them again. Exit code 1
    if the keyring does not open the data keys that there are.
    """
    with error_handler():
        settings = settings_of(context)
        ensure_keyring(settings)
        if not (
            yes or confirmed("erased persons may come back, and nothing protected is found any more; go on?")
        ):
            print("nothing was changed", file=sys.stderr)
            raise typer.Exit(Exit.FAILED)
        wiring.adopt_keyring(settings)
        print(f"{settings.keyring_file()} is the keyring of these profiles from now on")


@commands.command("list")
def list_keys(context: typer.Context, as_json: Json = False) -> None:
    """List key-encryption keys: version, status, dates, how many data keys each wraps; never the keys."""
    with error_handler(), wiring.opened_keys(settings_of(context)) as (provider, store):
        counts = store.counts()
        listed = [_described(key, counts.pop(key.version, 0)) for key in provider.versions()]
        # Without their version these are unreadable, which whoever looks at keys must see.
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
    version: Annotated[int, typer.Argument(help="A version that `keys rotate` made an older one.")],
    as_json: Json = False,
) -> None:
    """Destroy a key-encryption key that wraps no data key any more. There is no way back.

    Exit code 1 if it is the current one or in use, 3 if there is none of this version. Backups of
    data-keys.db from before its rotation are unreadable afterwards, but with a keyring of that time.
    """
    from idgraph.jobs.rotate import retire as retirement
    from idgraph.jobs.rotate import users
    from idgraph.model.errors import KeyInUseError, UnknownKeyVersionError

    with error_handler(), wiring.opened_keys(settings_of(context)) as (provider, store):
        try:
            retirement(provider, store, version)
        except UnknownKeyVersionError as error:
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(Exit.NOT_FOUND) from None
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
