"""`idgraph doctor`: what is wrong, and the command that mends it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from idgraph.app.commands.context import Json, settings_of
from idgraph.app.exits import Exit
from idgraph.app.observation.json_logs import say
from idgraph.app.terminal import counted, print_json
from idgraph.model.errors import ConfigError, IdgraphError
from idgraph.model.text import visible_lines

if TYPE_CHECKING:
    from idgraph.app.checks import Finding


def doctor(
    context: typer.Context,
    as_json: Json = False,
    version: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="VERSION",
            help="Only: whether this version of idgraph reads what is stored as it is, upgrades it, or refuses it.",
        ),
    ] = None,
) -> None:
    """Say what is missing, foreign, older, newer, full or unreachable, and the command that mends it.

    It looks at configuration, directory, disk, keyring, stores and their formats, index, metadata service,
    Kafka, Pulsar, flows, Java, native code and clock. It changes nothing, and runs beside flows and services.

    Before an upgrade, ask the new idgraph: `idgraph doctor --for` with its version. Before a way back, ask the one that
    is installed. Exit code 1: something is at fault, or that version does not start on what is stored.
    """
    from idgraph.app.checks import CHECKS, Finding, for_version

    faults = 0

    def show(name: str, findings: Iterable[Finding]) -> None:
        nonlocal faults
        found = list(findings)
        faults += sum(each.is_fault for each in found)
        for each in found:
            place, text = str(each.place), str(each.text)
            if as_json:
                print_json({"check": name} | each._asdict() | {"place": place, "text": text})
                continue
            print(f"{'!' if each.is_fault else '-'} {name}: {each.kind}: {visible_lines(place)}")
            print(f"    {visible_lines(text)}\n    mend: {visible_lines(each.command)}")
        if not found:
            print_json({"check": name, "kind": "ok"}) if as_json else print(f"ok {name}")

    try:
        wrong = Finding("wrong", "idgraph.toml", "", "correct it (docs/configuration.md)")
        settings = settings_of(context)
        wrong = wrong._replace(kind="missing", command="cd to its folder, or idgraph -c FILE doctor")
        settings.require_folder()
    except ConfigError as error:
        show("configuration", [wrong._replace(text=error)])
        raise typer.Exit(Exit.FAILED) from None
    if version is not None:
        show(f"formats for {version}", for_version(settings, version))
    else:
        show("configuration", [])
        for name, check in CHECKS.items():
            try:
                show(name, check(settings))
            except (IdgraphError, OSError) as error:
                text = error if isinstance(error, IdgraphError) else f"{error.filename}: {error.strerror}"
                show(name, [Finding("wrong", name, text, "idgraph -v doctor")])
    if faults:
        say(f"{counted(faults, 'fault')}; each has the command that mends it")
        raise typer.Exit(Exit.FAILED)
