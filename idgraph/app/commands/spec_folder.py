"""`idgraph specs pull`, `diff` and `push`: a folder of specs, as it is kept in git, and the specs in
force."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from idgraph.app import metadata_access
from idgraph.app.commands.context import DryRun, Json, Why, settings_of
from idgraph.app.exits import Exit
from idgraph.app.terminal import print_json
from idgraph.model.errors import ApprovalNeededError, ConfigError, SpecError
from idgraph.model.text import escape_control_chars, visible_lines

if TYPE_CHECKING:
    from idgraph.model.records import SpecRecord
    from idgraph.model.specs import SpecDefinition
    from sinks.http.metadata import MetadataClient

VERSIONS = "versions.json"
"""The versions of the service that the files of a folder were made from."""

Nevertheless = Annotated[
    bool, typer.Option("--allow-failing-cases", help="Save also specs with a test case that fails.")
]
Folder = Annotated[Path, typer.Argument(help="A folder with one file for each spec, and versions.json.")]


Versions = dict[str, int | None]
"""`latest` and `active` of a spec in the service."""


class FolderSpec(NamedTuple):
    """A spec in the folder and in the service. `base` are the service's versions when the file was last the same."""

    name: str
    file: Path
    here: SpecDefinition | None
    record: SpecRecord | None
    there: SpecDefinition | None
    base: Versions | None
    state: str

    @property
    def versions(self) -> Versions | None:
        if self.record is None:
            return None
        return {"latest": self.record.latest_version, "active": self.record.active_version}

    def as_dict(self) -> dict[str, Any]:
        """For scripts."""
        file = str(self.file) if self.here or self.state == "pulled" else None
        return {
            "name": self.name,
            "state": self.state,
            "file": file,
            "service": self.versions,
            "base": self.base,
        }

    def __str__(self) -> str:
        if self.state != "conflict":
            return f"{self.name}: {self.state}"
        based = f"is based on version {self.base['latest']}" if self.base else "was never pulled"
        latest, active = (self.versions or {}).values()
        return f"{self.name}: conflict: {self.file} {based}; the service has version {latest} (in force: {active})"


def _compared(folder: Path, client: MetadataClient) -> list[FolderSpec]:
    """Every spec of the folder or of the service, by name. Raises ConfigError, DocumentError."""
    from metadata_service.documents.reading import read_definition

    here: dict[str, tuple[Path, SpecDefinition | None]] = {}
    for file in sorted(set(folder.glob("*.json")) - {folder / VERSIONS}):
        definition = read_definition(file)
        if definition.name in here:
            raise ConfigError(f"{file}: {here[definition.name][0]} holds the spec {definition.name} already")
        here[definition.name] = file, definition
    bases = _read_versions(folder)
    records = {record.name: record for record in client.list_specs()}
    found = []
    for name in sorted(here.keys() | records.keys()):
        record = records.get(name)
        there: SpecDefinition | None = record.document if record else None
        if record and record.active_version not in (None, record.latest_version):
            there = client.get_spec_version(name, record.active_version or 0)
        file, mine = here.get(name, (folder / f"{name}.json", None))
        made = FolderSpec(name, file, mine, record, there, bases.get(name), "")
        found.append(made._replace(state=_state(made, client)))
    return found


def _state(spec: FolderSpec, client: MetadataClient) -> str:
    from idgraph.model.specs import SpecStatus

    here, there, base = spec.here, spec.there, spec.base
    if there is None:
        return "only here"
    if here is None:
        return "retired" if there.status is SpecStatus.RETIRED else "only in the service"
    # A file that is a draft asks for no activation.
    if _text(here) == _text(there) and here.status in (there.status, SpecStatus.DRAFT):
        return "same"
    if base is None or spec.versions == base:
        return "changed here" if base else "conflict"
    known = client.get_spec_version(spec.name, base["active"] or base["latest"] or 0)
    return "changed in the service" if known is not None and _text(here) == _text(known) else "conflict"


def _text(definition: SpecDefinition) -> str:
    from metadata_service.documents.writing import spec_text

    return spec_text(definition, "status")


def _read_versions(folder: Path) -> dict[str, Versions]:
    try:
        read: dict[str, Versions] = json.loads((folder / VERSIONS).read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder / VERSIONS}: {error}; pull again after removing it") from None
    return read


def _note_versions(folder: Path, specs: list[FolderSpec]) -> None:
    known = _read_versions(folder) | {each.name: each.versions for each in specs if each.versions}
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(known[name])}" for name in sorted(known))
    (folder / VERSIONS).write_text(f"{{\n{lines}\n}}\n" if lines else "{}\n", encoding="utf-8")


def _report(specs: list[FolderSpec], as_json: bool) -> None:
    for each in specs:
        if as_json:
            print_json(each.as_dict())
        elif each.state not in ("same", "retired"):
            print(
                escape_control_chars(str(each)), file=sys.stderr if each.state == "conflict" else sys.stdout
            )


def pull(context: typer.Context, folder: Folder, as_json: Json = False) -> None:
    """Write the specs in force into the folder: the active version of each spec, or a draft where none is.

    Specs that were edited only here stay. Exit code 1: a spec was edited here and in the service; its file
    stays too.
    """
    from metadata_service.documents.writing import spec_text

    with metadata_access.metadata_client(settings_of(context)) as client:
        folder.mkdir(parents=True, exist_ok=True)
        specs = _compared(folder, client)
        taken = [each for each in specs if each.state in ("only in the service", "changed in the service")]
        for each in taken:
            if each.there is not None:
                each.file.write_text(spec_text(each.there) + "\n", encoding="utf-8")
        _note_versions(folder, [*taken, *(each for each in specs if each.state == "same")])
    _report([each._replace(state="pulled") if each in taken else each for each in specs], as_json)
    _fail(any(each.state == "conflict" for each in specs))


def diff(context: typer.Context, folder: Folder, as_json: Json = False) -> None:
    """Show what differs between the service (-) and the folder (+). Exit code 1: something does."""
    from metadata_service.documents.writing import difference, spec_text

    with metadata_access.metadata_client(settings_of(context)) as client:
        specs = _compared(folder, client)
    _report(specs, as_json)
    signs = {"same": " ", "added": "+", "removed": "-"}
    for each in specs if not as_json else ():
        if each.here and each.there and each.state != "same":
            for row in difference(spec_text(each.there), spec_text(each.here)):
                print(visible_lines(f"{signs[row.kind]} {row.text}" if row.kind in signs else "  …"))
    _fail(any(each.state not in ("same", "retired") for each in specs))


def push(
    context: typer.Context,
    folder: Folder,
    reason: Why = "",
    dry_run: DryRun = False,
    allow_failing_cases: Nevertheless = False,
    as_json: Json = False,
) -> None:
    """Save edited specs of the folder as new versions; one with status `active` is in force at once.

    All are checked before the first is saved, and their test cases run. Exit code 1: the service refuses one,
    a case fails, a second person must approve it, or it has a newer version than the file is based on. In the
    last case nothing is lost: pull and merge.
    """
    from idgraph.web.conditional import etag_of
    from metadata_service.documents.reading import refused_by_service
    from metadata_service.specs.cases import require_cases

    pushed: dict[str, FolderSpec] = {}
    with metadata_access.metadata_client(settings_of(context)) as client:
        specs = _compared(folder, client)
        mine = [
            (each, each.here) for each in specs if each.state in ("only here", "changed here") and each.here
        ]
        is_refused = any(each.state == "conflict" for each in specs)
        for each, definition in mine:
            try:
                client.check(definition)
                require_cases(definition, are_allowed_to_fail=allow_failing_cases)
            except SpecError as error:
                raise refused_by_service(each.file, error) from None
        try:
            for each, definition in () if dry_run or is_refused else mine:
                etag = etag_of(each.record.model_dump_json()) if each.record else None
                saved: SpecRecord | None
                try:
                    saved, state = client.put_spec(definition, reason, etag, allow_failing_cases), "pushed"
                except ApprovalNeededError as error:
                    print(escape_control_chars(str(error)), file=sys.stderr)
                    saved, state, is_refused = client.get_spec(each.name), "waits for approval", True
                pushed[each.name] = each._replace(record=saved, state=state)
        finally:
            if pushed:
                _note_versions(folder, [*pushed.values(), *(each for each in specs if each.state == "same")])
    _report([pushed.get(each.name, each) for each in specs], as_json)
    _fail(is_refused)


def _fail(is_failed: bool) -> None:
    if is_failed:
        raise typer.Exit(Exit.FAILED)
