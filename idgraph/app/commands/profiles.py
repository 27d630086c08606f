"""`idgraph lookup`, `search` and `export`: reading profiles."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from idgraph.app import wiring
from idgraph.app.commands.context import (
    TYPE_VALUE,
    JobWho,
    JobWhy,
    Purpose,
    from_stdin,
    keyed,
    origin_of,
    settings_of,
)
from idgraph.app.exits import Exit
from idgraph.app.terminal import console, counted, json_writer, print_json, print_table
from idgraph.model.errors import ConfigError, EventError, NotFoundError
from idgraph.model.identifiers import given_identifier
from idgraph.model.stamps import read_ordinal
from idgraph.model.text import escape_control_chars

if TYPE_CHECKING:
    from profile_service.reader import ProfileReader


class Form(StrEnum):
    """Format of an export."""

    JSONL = "jsonl"
    PARQUET = "parquet"


Reveal = Annotated[bool, typer.Option("--reveal", help="Show protected values; needs the keyring.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object per profile, for scripts.")]


def lookup(
    context: typer.Context,
    identifier: Annotated[
        str, typer.Argument(help=f"{TYPE_VALUE} For instance user_id:480", callback=from_stdin)
    ],
    reveal: Reveal = False,
    purpose: Purpose = "on the command line",
    as_json: Json = False,
) -> None:
    """Show the profile of an identifier, whichever of its systems it is from. Exit code 3: there is none.

    An identifier that too many persons share belongs to nobody. Then the profiles whose events showed it are
    shown, and a line on standard error says so.
    """
    from idgraph.app.entrance import entrance

    text = str(given_identifier(identifier))
    with entrance(settings_of(context)) as here:
        item = here.lookup(text, reveal, purpose)
    found = [item["profile"]] if item["profile"] else item.get("sharing", [])
    _show(found, as_json)
    if item["is_shared"]:
        _report_shared(text.partition(":")[0])
    _report_incomplete(item.get("incomplete", {}))
    if not found:
        raise NotFoundError("; ".join(filter(None, ("no profile has this identifier", item.get("hint")))))


def search(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            help="path=value, path=prefix*, path=*, path>=n, path:word, or a word alone; joined by OR, NOT and ( )",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1, max=1000, help="Profiles per page (5), or values per facet (10).", show_default=False
        ),
    ] = None,
    cursor: Annotated[str | None, typer.Option(help="Continue after a page of the same search.")] = None,
    sort: Annotated[
        str | None, typer.Option("--sort", help="Sort by this attribute; -PATH for the largest first.")
    ] = None,
    facet: Annotated[
        list[str] | None,
        typer.Option("--facet", help="Count profiles by value of this attribute; can be repeated."),
    ] = None,
    count: Annotated[
        bool, typer.Option("--count", help="Print only the number of matching profiles.")
    ] = False,
    time_zone: Annotated[
        str, typer.Option(help="Of days such as today-7d; as Europe/Berlin.", show_default=True)
    ] = "UTC",
    fields: Annotated[
        str | None,
        typer.Option(
            "--fields", help="Show only these attributes, separated by commas; one line per profile."
        ),
    ] = None,
    reveal: Reveal = False,
    purpose: Purpose = "on the command line",
    as_json: Json = False,
) -> None:
    """Search profiles in the index.

    Examples: idgraph search 'demographics.age>=30' activity.platform=ios; idgraph search guitar --sort -activity.lastSeenAt;
    idgraph search 'activity.platform=ios OR NOT identity.email=*'

    Searches for words show the best matches first; others are sorted by id. Quote clauses with > or <, because the shell
    interprets them. Moments follow the clock: idgraph search 'activity.lastSeenAt<now-30d'. Write a path with blanks or operators in double quotes: idgraph search '"labels.cost centre"=7'

    One argument may hold several clauses: idgraph search 'guitar demographics.age>=65'. A value may have blanks, as in
    'identity.name.full=Ann Lee', unless a path with an operator follows it: quote it then, 'identity.name.full="Ann Lee" demographics.age>=65'.

    A clause that can never match (an unknown path, a text bound on a number) gives a warning; the exit code stays 0.
    """
    from idgraph.app.entrance import entrance

    if facet and (count or cursor or sort or fields):
        raise typer.BadParameter("--facet counts: it takes no --count, --cursor, --sort or --fields")
    if count and (cursor or sort or fields or limit):
        raise typer.BadParameter("--count takes no --limit, --cursor, --sort or --fields")
    wanted = [each for each in (fields or "").split(",") if each]
    query: dict[str, Any] = {"words": words or [], "time_zone": time_zone}
    page: dict[str, Any] | None = None
    with entrance(settings_of(context)) as here:
        counted_answer = here.count(query)
        summary: dict[str, Any] = {"total": counted_answer["count"]}
        said = counted_answer.get("warnings", [])
        if facet:
            body = query | {"paths": facet, "limit": limit or 10}
            answer = here.facets(body)
            summary["facets"], said = answer["facets"], answer.get("warnings", [])
        elif not count:
            reading = {"provenance": True, "reveal": reveal, "purpose": purpose, "fields": wanted or None}
            body = query | reading | {"limit": limit or 5, "cursor": cursor, "sort": sort}
            page = here.search(body)
            summary |= {"profiles": len(page["items"]), "cursor": page["next"]}
            said = page["warnings"]
    summary["warnings"] = said
    if page is not None and wanted and not as_json:
        _show_fields(page["items"], wanted)
    elif page is not None:
        _show(page["items"], as_json)
    if as_json:
        _print_summary(summary, is_answer=page is None)
    else:
        _show_summary(summary)
    _report_incomplete(page.get("incomplete", {}) if page else {})


def _print_summary(summary: dict[str, Any], is_answer: bool) -> None:
    """Print one JSON object: on standard output if it is the answer, beside profiles on standard error."""
    from idgraph.model import canonical

    if is_answer:
        print_json(summary)
    else:
        print(canonical.encode(summary).decode(), file=sys.stderr)


def _show_summary(summary: dict[str, Any]) -> None:
    total = summary["total"]
    if "facets" in summary:
        for path, values in summary["facets"].items():
            rows = [(_text_of(each["value"]), f"{each['profiles']:,}") for each in values]
            print_table((path, "profiles"), rows)
    elif "profiles" not in summary:
        print(total)
    for warning in summary["warnings"]:
        print(f"warning: {escape_control_chars(warning)}", file=sys.stderr)
    if "profiles" in summary:
        more = f"; more with --cursor {summary['cursor']}" if summary["cursor"] else ""
        print(f"{summary['profiles']} of {counted(total, 'profile')}{more}", file=sys.stderr)


def _text_of(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def export(
    context: typer.Context,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="File to write, new or an earlier export. Default: standard output."
        ),
    ] = None,
    provenance: Annotated[
        bool, typer.Option("--provenance", help="Add each value's stamp and spec version.")
    ] = False,
    fragments: Annotated[
        bool, typer.Option("--fragments", help="One line per fragment: as if no evidence joined any.")
    ] = False,
    reveal: Reveal = False,
    form: Annotated[
        Form, typer.Option("--format", help="`parquet` needs --output, a new folder; it is for analysts.")
    ] = Form.JSONL,
    partition: Annotated[
        str | None, typer.Option("--partition", help="Parquet: a folder for each value of this attribute.")
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option("--columns", help="Parquet: attributes, separated by commas. Default: all known ones."),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", help="Parquet: a column with the identifier of this type, such as user_id."),
    ] = None,
    segment: Annotated[
        str | None,
        typer.Option("--segment", help="Only members of this segment; they gave the consent that it needs."),
    ] = None,
    clearance: Annotated[
        int, typer.Option("--clearance", min=0, max=100, help="Attributes above this level are left out.")
    ] = 100,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of",
            help="RFC 3339 time as of which attributes are derived from timelines. Default: the begin of the export.",
        ),
    ] = None,
    who: JobWho = "",
    why: JobWhy = "",
) -> None:
    """Write all profiles, one canonical JSON line each, sorted by id; or a segment, or as Parquet.

    Stores with equal profiles give equal bytes, once all stored values are sealed by the current policy; where attributes
    are derived from timelines, with the same --as-of. Without --reveal, protected values are masked.
    """
    from idgraph.app.jobs.view import showing
    from idgraph.jobs.export import (
        Export,
        columns_of,
        count_other,
        expected,
        line_of,
        members,
        write_parquet_folder,
    )
    from idgraph.jobs.export_file import require_export, require_place, write_export

    settings = keyed(context)
    if form is Form.PARQUET:
        if output is None or provenance or fragments:
            raise ConfigError("--format parquet needs --output, and has no --provenance and --fragments")
        require_place(output)
    elif partition is not None or columns is not None or key is not None:
        raise ConfigError("--partition, --columns and --key are of --format parquet")
    elif output is not None:
        require_export(output)
    moment = _moment(as_of, segment)
    with wiring.opened(settings) as resources, wiring.job_runner(settings, is_command=True) as runner:
        reader = wiring.profile_reader(settings, resources).with_clearance(clearance).as_of(moment)
        options: dict[str, Any] = {
            "provenance": provenance,
            "reveal": reveal,
            "fragments": fragments,
        }
        names = None if columns is None else [each for part in columns.split(",") if (each := part.strip())]
        table = columns_of(reader, names, key, partition) if form is Form.PARQUET else None
        options |= {"format": form, "segment": segment, "clearance": clearance}
        if fragments:
            job = Export(resources.store.count(), output, options, "fragment")
        else:
            job = Export(expected(resources.index), output, options)
        found = reader.scan(reveal, fragments) if segment is None else members(reader, segment, reveal)
        with runner.started(job, origin_of(who, why)) as run:
            if output is None:
                write = json_writer()
                for profile in job.counted(run, found):
                    write(line_of(profile, provenance))
                sys.stdout.flush()
            else:
                with showing() as show:
                    show(run)
                    run.watch = show
                    shown = job.counted(run, found)
                    if table is not None:
                        write_parquet_folder(output, shown, table, partition)
                        count_other(run.progress, table)
                    else:
                        write_export(output, (line_of(each, provenance) for each in shown))
        for warning in table.report() if table is not None else ():
            print(escape_control_chars(warning), file=sys.stderr)
        _report_exceptions(reader)


def _moment(as_of: str | None, segment: str | None) -> int | None:
    if as_of is None:
        return None
    if segment is not None:
        raise ConfigError("--as-of is of all profiles: the members of a --segment are those of now")
    try:
        return read_ordinal(as_of)
    except EventError:
        raise ConfigError(
            f"--as-of {escape_control_chars(as_of)} is no RFC 3339 time with an offset, as 2026-03-31T12:00:00Z"
        ) from None


def _report_exceptions(reader: ProfileReader) -> None:
    for each in reader.shared:
        _report_shared(each.type)
    _report_incomplete(reader.take_incomplete())


def _report_shared(kind: str) -> None:
    print(
        f"{escape_control_chars(kind)} is shared, and belongs to none of these profiles: `idgraph explain` says why",
        file=sys.stderr,
    )


def _report_incomplete(found: dict[str, Any]) -> None:
    """Report the parts that a fault keeps out of an answer. Raises Exit where a fragment is damaged."""
    if stale := found.get("stale"):
        print(
            f"{counted(stale, 'profile')} stored under an identifier that is protected now; until a flow or "
            "`idgraph seal` has renamed it, one id can appear twice",
            file=sys.stderr,
        )
    if unreadable := found.get("unreadable"):
        print(
            f"{counted(unreadable, 'protected value')} cannot be opened: the data key is missing, or this keyring cannot "
            "unwrap it (`idgraph keys list` shows missing versions)",
            file=sys.stderr,
        )
    for path, reason in found.get("underived", {}).items():
        print(f"{escape_control_chars(path)} has no value: {escape_control_chars(reason)}", file=sys.stderr)
    if damaged := found.get("damaged"):
        for fragment_id in damaged:
            print(
                f"skipped {escape_control_chars(fragment_id)}: its stored state is damaged; restore it from a backup",
                file=sys.stderr,
            )
        raise typer.Exit(Exit.FAILED)


def _show_fields(profiles: list[dict[str, Any]], fields: list[str]) -> None:
    from idgraph.model import canonical, paths

    def shown(profile: dict[str, Any], field: str) -> str:
        leaves = [paths.split(path) for path in profile["provenance"] if paths.is_within(path, field)]
        values = [paths.value_at(profile["attributes"], keys) for keys in leaves]
        return "; ".join(v if isinstance(v, str) else canonical.encode(v).decode() for v in values)

    rows = [(each["id"], *(shown(each, field) for field in fields)) for each in profiles]
    print_table(("id", *fields), rows)


_MEMBERS = ("id", "identifiers", "attributes", "provenance")
_ORIGIN = ("source", "priority", "event", "ordinal", "spec", "spec_version", "policy", "values", "complete")


def _in_order(document: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """A document with its members in this order: an answer over HTTP has them sorted."""
    return {name: document[name] for name in names if name in document}


def _show(profiles: list[dict[str, Any]], as_json: bool) -> None:
    from idgraph.app.profile_tree import profile_tree

    for profile in profiles:
        if as_json:
            origins = {path: _in_order(each, _ORIGIN) for path, each in profile["provenance"].items()}
            names = [_in_order(each, ("type", "value")) for each in profile["identifiers"]]
            ordered = profile | {"provenance": origins, "identifiers": names}
            print_json(_in_order(ordered, _MEMBERS))
        else:
            console().print(profile_tree(profile))
