"""`idgraph sandboxes`: copies of the metadata, made, compared, promoted and deleted by the metadata service."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from idgraph.app import metadata_access, wiring
from idgraph.app.commands.context import DryRun, Json, Why, Yes, settings_of
from idgraph.app.exits import Exit
from idgraph.app.terminal import confirmed, print_json, print_listing, print_table
from idgraph.model.errors import NotFoundError, QueryError, first_few

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings
    from idgraph.model.sandboxes import SandboxDifference, SandboxItem
    from sinks.http.metadata import MetadataClient

commands = typer.Typer(
    no_args_is_help=True,
    help="Sandboxes: named copies of the metadata. `idgraph --sandbox NAME COMMAND` works in one, with a store, an index "
    "and keys of its own, on the same sources.",
)

COPY_SECONDS = 600.0

Name = Annotated[str, typer.Argument(help="Name of a sandbox, as `idgraph sandboxes list` has it.")]


@commands.command()
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Lower-case letters, digits and dashes.")],
    reason: Why = "",
) -> None:
    """Copy production's specs, attributes, rules, views and segments; no people, tokens or profiles."""
    settings = settings_of(context)
    with metadata_access.metadata_client(settings, COPY_SECONDS) as client:
        record = client.create_sandbox(name, reason)
    print(f"sandbox {name}: a copy of snapshot {record.snapshot_version}")
    print(f"idgraph --sandbox {name} serve metadata   then, beside it:")
    print(f"idgraph --sandbox {name} specs apply FILE ; idgraph --sandbox {name} run")


@commands.command("list")
def list_sandboxes(context: typer.Context, as_json: Json = False) -> None:
    """List sandboxes by name."""
    with metadata_access.metadata_client(settings_of(context)) as client:
        columns = {
            "name": lambda each: each.name,
            "made": lambda each: f"{each.at:%Y-%m-%d %H:%M}",
            "by": lambda each: each.actor,
            "of snapshot": lambda each: str(each.snapshot_version),
            "reason": lambda each: each.reason,
        }
        print_listing(client.sandboxes(), as_json, columns)


@commands.command()
def compare(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Show edits of the sandbox or of production since the copy, where both differ; and numbers of profiles if both have
    any."""
    settings = settings_of(context)
    with metadata_access.metadata_client(settings) as client:
        _require(client, name)
        found = client.compare_sandbox(name)
    if as_json:
        print_json(found.model_dump(mode="json"))
        return
    version = found.sandbox.snapshot_version
    print(f"{name}, a copy of snapshot {version}; production has snapshot {found.production_version}")
    print_table(("kind", "name", "state", "weakens"), [_row(each) for each in found.items])
    rows = [(side, *map(str, counts)) for side, counts in _counts(settings, name).items()]
    print_table(("", "persons", "fragments", "dead letters"), rows)
    for each in found.items:
        for side, document in (("production", each.production), ("sandbox", each.sandbox)):
            if each.state == "conflict":
                print(f"{each.item} in {side}: {json.dumps(document)}")


@commands.command()
def promote(
    context: typer.Context,
    name: Name,
    items: Annotated[
        list[str] | None,
        typer.Argument(
            help="KIND:NAME, as spec:shop; single documents without a name. Default: all edits that weaken nothing.",
            show_default=False,
        ),
    ] = None,
    reason: Why = "",
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Publish edits of the sandbox in production, each as its own edit, after a look at `compare`.

    One that weakens protection waits for a second person. Refused where production was edited too since the copy.
    """
    from idgraph.model.sandboxes import SandboxPromotion

    wanted = SandboxPromotion(
        items=[_item(each) for each in items] if items else None, reason=reason, dry_run=dry_run
    )
    with metadata_access.metadata_client(settings_of(context)) as client:
        _require(client, name)
        done = client.promote_sandbox(name, wanted)
    columns = {
        "kind": lambda each: each.kind,
        "name": lambda each: each.name,
        "outcome": lambda each: each.outcome,
        "": lambda each: each.detail,
    }
    print_listing(done, as_json, columns)
    if any(each.outcome == "refused" for each in done):
        raise typer.Exit(Exit.FAILED)


@commands.command()
def delete(
    context: typer.Context,
    name: Name,
    reason: Why = "",
    yes: Yes = False,
) -> None:
    """Remove a sandbox with all its profiles, keys first. Stop what runs there before."""
    with metadata_access.metadata_client(settings_of(context)) as client:
        _require(client, name)
        if not yes and not confirmed(f"delete {name} with all its profiles?"):
            print("nothing was deleted")
            raise typer.Exit(Exit.FAILED)
        client.delete_sandbox(name, reason)
        print(f"sandbox {name} is deleted")


def _counts(settings: Settings, name: str) -> dict[str, tuple[int, int, int]]:
    """Persons, fragments and dead letters of each side that has profiles on this machine."""
    from idgraph.app.adapters.stores import PROFILES
    from idgraph.app.settings.sandbox import in_sandbox
    from idgraph.model.queries import Query

    found = {}
    for side, each in (("production", settings), (name, in_sandbox(settings, name))):
        if (each.directory / PROFILES).exists() and each.keyring_file().exists():
            with wiring.opened(each) as resources:
                persons, fragments = resources.index.count(Query(())), resources.store.count()
                found[side] = persons, fragments, sum(resources.dead_letters.counts().values())
    return found


def _require(client: MetadataClient, name: str) -> None:
    """Raises NotFoundError, which lists those that there are."""
    known = [each.name for each in client.sandboxes()]
    if name not in known:
        raise NotFoundError(f"no sandbox has the name {name}; there are: {', '.join(known) or 'none'}")


def _row(each: SandboxDifference) -> tuple[str, ...]:
    return each.kind, each.name, each.state, "; ".join(first_few(each.weakens))


def _item(text: str) -> SandboxItem:
    from pydantic import ValidationError

    from idgraph.model.sandboxes import SandboxItem

    kind, _, name = text.partition(":")
    try:
        return SandboxItem.model_validate({"kind": kind.replace("-", "_"), "name": name})
    except ValidationError:
        raise QueryError(f"{text}: an item is KIND:NAME, as `idgraph sandboxes compare` lists them") from None
