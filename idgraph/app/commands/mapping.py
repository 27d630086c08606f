"""`idgraph map` and `idgraph check`: mapping specs without a pipeline."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from idgraph.app.commands.context import settings_of
from idgraph.app.exits import Exit
from idgraph.app.terminal import json_writer, print_json, report_warnings
from idgraph.model import canonical
from idgraph.model.errors import ConfigError, TransformError
from idgraph.model.text import escape_control_chars

if TYPE_CHECKING:
    from idgraph.app.payload_lines import PayloadLine
    from metadata_service.documents.problems import Problem
    from metadata_service.documents.reading import SpecOperations

SpecFile = Annotated[
    Path, typer.Argument(help="Mapping spec: a document, a chain of operations, or one operation.")
]


def map_payloads(
    spec: SpecFile,
    file: Annotated[
        Path | None,
        typer.Argument(help="Payloads as JSON Lines, plain or gzip; default, or `-`: standard input."),
    ] = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="Show the changes of each operation instead of the output.")
    ] = False,
    reveal_values: Annotated[
        bool,
        typer.Option(
            "--reveal-values",
            help="With --trace: show values and all keys. By default it shows only the kind of a value, and masks keys "
            "that look like personal data or were made from a value.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --trace: one JSON object per payload.")
    ] = False,
) -> None:
    """Map payloads with a spec: JSON Lines in, mapped JSON Lines out.

    A payload that maps to nothing gives `null`. Errors go to standard error with the line's number, and the exit
    code is then 1.
    """
    from idgraph.app.payload_lines import read_payloads
    from metadata_service.documents.reading import read_operations

    if (reveal_values or as_json) and not trace:
        raise typer.BadParameter("--reveal-values and --json belong to --trace")
    operations = read_operations(spec)
    lines = read_payloads(None if file == Path("-") else file, operations.definition is not None)
    if trace:
        bad = sum(_traced(operations, lines, reveal_values, as_json))
    else:
        bad = sum(_mapped(operations, lines))
    sys.stdout.flush()
    if bad:
        print(f"{bad} line{'s' if bad > 1 else ''} could not be mapped", file=sys.stderr)
        raise typer.Exit(Exit.FAILED)


def _mapped(spec: SpecOperations, lines: Iterable[PayloadLine]) -> Iterator[bool]:
    """Map each line; yields whether it failed."""
    from transforms import compile_spec
    from transforms.spec.compiler import compile_errors

    transform, errors_of = compile_spec(spec.operations), compile_errors(spec.operations)
    write = json_writer()
    for line in lines:
        mistakes = [] if line.mistake is None else [line.mistake]
        if not mistakes:
            try:
                write(canonical.encode_ordered(transform(line.value)) + b"\n")
            except TransformError as error:
                found = errors_of(line.value) or [error]
                mistakes = [f"{spec.place}{each.pointer}: {each.message}" for each in found]
        for mistake in mistakes:
            print(f"line {line.number}: {escape_control_chars(mistake)}", file=sys.stderr)
        yield bool(mistakes)


def _traced(
    spec: SpecOperations, lines: Iterable[PayloadLine], reveal: bool, as_json: bool
) -> Iterator[bool]:
    """Show the steps of each line; yields whether it failed."""
    from idgraph.app.tracing import TraceView
    from transforms.spec.compiler import compile_trace

    write = json_writer()
    view = TraceView(compile_trace(spec.operations), spec.operations, spec.place, reveal)
    for line in lines:
        mistake = line.mistake
        steps: list[dict[str, Any]] = []
        if mistake is None:
            if not as_json:
                print(f"line {line.number}")
            try:
                for step in view.steps(line.value):
                    if as_json:
                        steps.append(step.record())
                    else:
                        print("\n".join(map(escape_control_chars, step.lines())))
            except TransformError as error:
                mistake = f"{spec.place}{error.pointer}: {error.message}"
        if as_json:
            record = {"line": line.number, "steps": steps, "error": mistake}
            write(canonical.encode_ordered(record) + b"\n")
        elif mistake is not None:
            print(f"line {line.number}: {escape_control_chars(mistake)}", file=sys.stderr)
        yield mistake is not None


def check(
    context: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(help="Mapping specs, definitions of attributes (or lists of them), or of behaviour."),
    ],
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="One JSON object per file: file, ok, problems and warnings (line, column, pointer, message, hint).",
        ),
    ] = False,
) -> None:
    """Check mapping specs, definitions of attributes, and files for `idgraph behaviour apply`. A mistake is printed as
    `file:line:column: pointer: message`.

    Exit code 1: a file has mistakes; 2: a file cannot be read. Warnings do not change the exit code. The source of a
    spec is compared with the configured sources, if all their events have known source names, and its paths with those of
    derived attributes in the files.
    """
    from idgraph.app.behaviour_documents import check_behaviour, derived_in, holds_behaviour
    from metadata_service.documents.problems import DocumentError, JsonFile
    from metadata_service.documents.reading import check_document

    sources = settings_of(context).event_sources()
    derived = derived_in(files)
    worst = 0
    for file in files:
        problems: list[dict[str, Any]] = []
        found: tuple[Problem, ...] = ()
        shown_as = f"{file}: ok"
        code = Exit.FAILED
        try:
            document = JsonFile(file)
            if holds_behaviour(document):
                check_behaviour(document)
            else:
                names = sources.names if sources.are_all else frozenset[str]()
                found = check_document(document, names, derived)
        except DocumentError as error:
            found = error.warnings
            problems = [problem._asdict() for problem in error.problems]
            shown_as = str(error)
        except ConfigError as error:
            problems = [{"message": str(error).removeprefix(f"{file}: ")}]
            shown_as = str(error)
            code = Exit.USAGE
        worst = max(worst, code if problems else 0)
        if as_json:
            warnings = [warning._asdict() for warning in found]
            print_json({"file": str(file), "ok": not problems, "problems": problems, "warnings": warnings})
        else:
            report_warnings(file, found)
            print(shown_as, file=sys.stderr if problems else sys.stdout)
    if worst:
        raise typer.Exit(worst)
