"""`idgraph rules`: identity rules in the metadata service, and a simulator for them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from idgraph.app import metadata_access
from idgraph.app.commands.context import JobWho, JobWhy, Json, Why, origin_of, settings_of
from idgraph.app.exits import Exit
from idgraph.app.observation.json_logs import say
from idgraph.app.terminal import counted, print_json, report_warnings
from idgraph.model.errors import ConfigError, RefusedError
from idgraph.model.text import escape_control_chars, visible_lines

if TYPE_CHECKING:
    from idgraph.jobs.rules_preview import CountEstimate, RulesPreview
    from idgraph.model.jobs import Progress
    from idgraph.model.sources import FileSource
    from merge.identity.resolve import Resolution

commands = typer.Typer(
    no_args_is_help=True, help="Identity rules: they decide which identifiers are one person."
)

_MOST_PATHS = 20
"""Changed attributes that are printed for people."""

RulesFile = Annotated[Path, typer.Argument(help="Identity rules as JSON; `-`: standard input.")]


@commands.command("show")
def show_rules(
    context: typer.Context,
    version: Annotated[int | None, typer.Option(min=0, help="Default: the rules in force.")] = None,
    as_json: Json = False,
) -> None:
    """Print the identity rules as JSON, ready to edit and apply. Version 0 are the default rules.

    With --json: one object with `version` and `document`.
    """
    from idgraph.model.identity_rules import DEFAULT_RULES
    from idgraph.model.records import RulesRecord

    with metadata_access.metadata_client(settings_of(context)) as client:
        found = client.get_rules(version) if version != 0 else RulesRecord(version=0, document=DEFAULT_RULES)
        if as_json:
            print_json(found.model_dump(mode="json", exclude_unset=True))
        else:
            print(visible_lines(found.document.model_dump_json(indent=2, exclude_unset=True)))


@commands.command("check")
def check_rules(file: RulesFile, as_json: Json = False) -> None:
    """Check identity rules. A mistake is printed as `file:line:column: pointer: message` (exit code 1).

    With --json: one object with file, ok and problems (line, column, pointer, message, hint).
    """
    from idgraph.app.identity_documents import read_rules
    from metadata_service.documents.problems import DocumentError

    try:
        read_rules(file)
    except DocumentError as error:
        if not as_json:
            raise
        problems = [each._asdict() for each in error.problems]
        print_json({"file": str(file), "ok": False, "problems": problems})
        raise typer.Exit(Exit.FAILED) from None
    if as_json:
        print_json({"file": str(file), "ok": True, "problems": []})
    else:
        print(f"{file}: ok")


@commands.command("apply")
def apply_rules(context: typer.Context, file: RulesFile, reason: Why = "", as_json: Json = False) -> None:
    """Put identity rules in force, as a new version. Unchanged rules make no new version.

    With --json: one object with `version` and `saved`.
    """
    from idgraph.app.identity_documents import read_rules
    from metadata_service.documents.reading import refused_by_service

    rules = read_rules(file)
    with metadata_access.metadata_client(settings_of(context)) as client:
        before = client.get_rules()
        try:
            saved = client.put_rules(rules, reason)
        except RefusedError as error:
            if error.problem is None or file == Path("-"):
                raise
            raise refused_by_service(file, error.problem) from None
    is_new = saved.version > before.version
    if as_json:
        print_json({"version": saved.version, "saved": is_new})
    else:
        print(f"identity rules: version {saved.version} {'saved' if is_new else 'unchanged'}")
    if is_new:
        say(
            "search follows while a flow runs; without one, run `idgraph resolve`. Changed `normalise` and `blocked` hold "
            "for later events only"
        )


@commands.command("preview")
def preview_rules(
    context: typer.Context,
    file: RulesFile,
    sample: Annotated[
        int | None,
        typer.Option(
            min=1, help="Look at so many fragments, drawn at random. Default: all.", show_default=False
        ),
    ] = None,
    who: JobWho = "",
    why: JobWhy = "",
    as_json: Json = False,
) -> None:
    """Show what new identity rules would make of the stored profiles: merges, splits, violations, changed attributes.

    It changes nothing. With --sample the numbers are estimates, each with its error at 95 % confidence. Protected
    identifiers are shown as keyed hashes.
    """
    from idgraph.app.identity_documents import read_rules
    from idgraph.app.jobs.context import run_job
    from idgraph.jobs.preview import PREVIEW, PreviewParameters
    from idgraph.jobs.rules_preview import RulesPreviewParameters

    parameters = PreviewParameters(rules=RulesPreviewParameters(rules=read_rules(file), sample=sample))
    job, done = run_job(settings_of(context), PREVIEW, parameters, origin_of(who, why), report=say)
    _print_preview(cast("RulesPreview", job), done, as_json)


@commands.command("try")
def try_rules(
    context: typer.Context,
    rules: Annotated[
        Path,
        typer.Argument(
            help="Identity rules, or without EVENTS a document with rules, events and pins; `-`: standard input."
        ),
    ],
    events: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Identity events as JSON Lines, a line with `pair` is a pin; or records, with --spec. "
            "`-`: standard input."
        ),
    ] = None,
    spec: Annotated[
        list[Path] | None,
        typer.Option(help="Mapping spec of the records in EVENTS; one for each file, in their order."),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            help="Configured source of the records, one for each file. Default: the spec's, if it is configured; "
            "otherwise each line is a payload."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Try identity rules on events, without a store: persons, accepted links and refused links.

    With --json: one object with `persons`, `accepted` and `violations`. An unreadable line is left out and reported
    (exit code 1).
    """
    from idgraph.app.identity_documents import Trial, read_case, read_events, read_records
    from merge.identity.rules import Rules
    from merge.identity.simulation import resolve_seen, seen_events

    files, specs, sources = events or [], spec or [], source or []
    if (specs and len(specs) != len(files)) or (sources and len(sources) != len(specs)):
        raise typer.BadParameter(
            "give one --spec for each file of records, and one --source for each or none"
        )
    if [rules, *files].count(Path("-")) > 1:
        raise typer.BadParameter("only one file can be standard input")
    case, warnings = read_case(rules)
    report_warnings(rules, warnings)
    ready = Rules(case.rules)
    given = [Trial(seen_events(ready, case.events), list(case.pins), [])]
    for number, events_file in enumerate(files):
        file = None if events_file == Path("-") else events_file
        if specs:
            found = _source(context, specs[number], sources[number] if sources else None)
            given.append(read_records(ready, file, specs[number], found))
        else:
            given.append(read_events(ready, file))
    seen = [event for each in given for event in each.events]
    resolution = resolve_seen(ready, seen, [pin for each in given for pin in each.pins])
    if as_json:
        _print_json(resolution)
    else:
        _print_text(resolution)
    mistakes = [
        f"{events_file}: {mistake}"
        for events_file, each in zip(files, given[1:], strict=True)
        for mistake in each.mistakes
    ]
    for mistake in mistakes:
        print(escape_control_chars(mistake), file=sys.stderr)
    if mistakes:
        raise typer.Exit(Exit.FAILED)


def _print_preview(job: RulesPreview, done: Progress, as_json: bool) -> None:
    """Print the result."""
    from idgraph.jobs.rules_preview import preview_document

    if as_json:
        print_json(preview_document(job, done))
        return

    def of(name: str) -> str:
        return _number(job.estimate(done, name))

    if done.done < job.fragments:
        print(
            f"estimated from {done.done:,} of {counted(job.fragments, 'fragment')}, errors at 95 % confidence;"
            " refused links between two hubs are not estimated, so their numbers are lower bounds"
        )
    print(f"profiles: {of('profiles_before')} today, {of('profiles_after')} by the new rules")
    for title, name, key in (("merges", "merges", "of"), ("splits", "splits", "into")):
        print(f"{title}: {of(name)}")
        for each in job.examples[name]:
            _example(f"{each['id']} {key} {', '.join(each[key])}")
    print(f"violations: {of('violations_before')} today, {of('violations_after')} by the new rules")
    for title, name in (("new", "violations_new"), ("gone", "violations_gone")):
        for rule in sorted(done.parts(name)):
            print(f"  {title} {escape_control_chars(rule)}: {of(f'{name}/{rule}')}")
        for each in job.examples[name]:
            _example(f"  {' - '.join(each['pair'])}: {each['rule']}")
    print(f"profiles of today that have other fragments: {of('changed')}")
    found = done.parts("attribute")
    paths = sorted(found, key=lambda path: (-found[path], path))
    for path in paths[:_MOST_PATHS]:
        _example(f"{path}: another value in {of(f'attribute/{path}')}")
    if len(paths) > _MOST_PATHS:
        print(f"  and {counted(len(paths) - _MOST_PATHS, 'attribute')} more: --json has all")
    if unreadable := done.counts["unreadable"]:
        print(f"{counted(unreadable, 'fragment')} left out, whose stored state is damaged")


def _number(found: CountEstimate) -> str:
    return f"{found.number:,.0f}" + (f" (± {found.error:,.0f})" if found.error else "")


def _example(text: str) -> None:
    print(f"  {escape_control_chars(text)}")


def _source(context: typer.Context, spec: Path, name: str | None) -> FileSource | None:
    """The source whose records are tried. Raises ConfigError for a name that is not one."""
    from metadata_service.documents.reading import read_definition

    if name is not None:
        return settings_of(context).file_source(name)
    try:
        return settings_of(context).file_source(read_definition(spec).source)
    except ConfigError:
        return None


def _print_json(resolution: Resolution) -> None:
    print_json(
        {
            "persons": [[list(each) for each in person] for person in resolution.partition],
            "accepted": [[list(each) for each in pair] for pair in resolution.accepted],
            "violations": [
                [list(each.pair.low), list(each.pair.high), each.rule] for each in resolution.violations
            ],
        }
    )


def _print_text(resolution: Resolution) -> None:
    print(counted(len(resolution.partition), "person"))
    for number, person in enumerate(resolution.partition, 1):
        print(f"  {number}: {escape_control_chars(', '.join(map(str, person)))}")
    print(counted(len(resolution.accepted), "accepted link"))
    for pair in resolution.accepted:
        print(f"  {escape_control_chars(f'{pair.low} - {pair.high}')}")
    print(counted(len(resolution.violations), "violation"))
    for each in resolution.violations:
        print(f"  {escape_control_chars(f'{each.pair.low} - {each.pair.high}: {each.rule}')}")
