"""`idgraph models`: models of derived attributes, and a definition's effect before it is in force."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from idgraph.app import metadata_access
from idgraph.app.commands.context import Json, Why, settings_of
from idgraph.app.terminal import counted, print_json, print_table
from idgraph.model.errors import ConfigError

commands = typer.Typer(
    no_args_is_help=True,
    help="Models of derived attributes: files in the ONNX format, named by their digest.",
)


@commands.command()
def add(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="The model, in the ONNX format.")],
    name: Annotated[str, typer.Option(help="A name for people; definitions name the digest.")] = "",
    reason: Why = "",
    as_json: Json = False,
) -> None:
    """Add a model, and print its digest. It is kept for ever; the same again changes nothing.

    With --json: the model as of `GET /v1/models`.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None
    with metadata_access.metadata_client(settings_of(context)) as client:
        made = client.add_model(content, name, reason)
    print_json(made.model_dump(mode="json")) if as_json else print(made.digest)


@commands.command("list")
def list_models(context: typer.Context, as_json: Json = False) -> None:
    """List models, with what they take and give, and the derived attributes in force that use them.

    With --json: one model per line, as of `GET /v1/models`.
    """
    with metadata_access.metadata_client(settings_of(context)) as client:
        models = client.models()
    if as_json:
        for each in models:
            print_json(each.model_dump(mode="json"))
        return
    rows = [
        [
            each.digest,
            each.name,
            f"{each.bytes:,}",
            *(
                ", ".join(f"{one.name} {one.type}[{one.columns or ''}]" for one in some)
                for some in (each.inputs, each.outputs)
            ),
            f"{each.at:%Y-%m-%d}, {each.actor}",
            ", ".join(each.used_by),
        ]
        for each in models
    ]
    print_table(["digest", "name", "bytes", "takes", "gives", "added", "used by"], rows)


@commands.command("try")
def try_definitions(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(
            help="JSON as of `idgraph behaviour apply`, or of one derived attribute; `-`: standard input."
        ),
    ],
    persons: Annotated[int, typer.Option(min=1, max=1000, help="Try it on so many stored persons.")] = 1000,
    as_json: Json = False,
) -> None:
    """Show what derived attributes, of any kind, would give for stored persons, beside what they have now. Nothing is stored.

    With --json: one object per derived attribute, as of `POST /v1/derived-attributes/preview`.
    """
    from idgraph.app.behaviour_documents import read_derived
    from idgraph.app.entrance import entrance

    wanted = read_derived(file)
    with entrance(settings_of(context)) as here:
        for each in wanted:
            found = here.preview_derived(each.model_dump(mode="json", exclude_unset=True), persons)
            if as_json:
                print_json(found)
            else:
                _show(each.name, found)


def _show(name: str, found: dict[str, Any]) -> None:
    print(
        f"{name}: of {counted(found['persons'], 'person')} {found['changed']} change, {found['gained']} gain a value, "
        f"{found['lost']} lose theirs"
    )
    figures = ("persons", "least", "lower_quartile", "median", "upper_quartile", "greatest")
    numbers = [
        [each["path"], when, *(_text(each[when][figure]) for figure in figures)]
        for each in found["numbers"]
        for when in ("before", "after")
        if each[when] is not None
    ]
    values = [
        [_text(each[name]) for name in ("path", "value", "before", "after")] for each in found["values"]
    ]
    examples = [[_text(each[name]) for name in ("id", "before", "after")] for each in found["examples"]]
    for head, rows in (
        (["numbers of", "when", *(each.replace("_", " ") for each in figures)], numbers),
        (["values of", "value", "before", "after"], values),
        (["profile", "before", "after"], examples),
    ):
        if rows:
            print_table(head, rows)


@commands.command()
def rollback(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the derived attribute, of any kind.")],
    version: Annotated[int, typer.Argument(min=1, help="The version that shall be in force again.")],
    reason: Why = "",
) -> None:
    """Put an older version of a derived attribute in force again, with its model, as a new version."""
    with metadata_access.metadata_client(settings_of(context)) as client:
        saved = client.restore_derived(name, version, reason)
    print(f"derived attribute {saved.name}: version {saved.version}, as version {version} was")


def _text(value: Any) -> str:
    from idgraph.model import canonical

    return value if isinstance(value, str) else canonical.encode(value).decode()
