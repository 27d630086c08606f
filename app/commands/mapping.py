"""`idgraph map` and `idgraph check`: mapping specs without a pipeline."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from app.exits import Exit, told
from model.errors import ConfigError, SpecError, TransformError

SpecFile = Annotated[
    Path, typer.Argument(help="Mapping spec: a document, a chain of operations, or one operation.")
]


def map_payloads(
    spec: SpecFile,
    file: Annotated[
        Path | None, typer.Argument(help="Payloads as JSON Lines; standard input if left out.")
    ] = None,
) -> None:
    """Map payloads with a spec: JSON Lines in, mapped JSON Lines out.

    A payload that maps to nothing gives `null`. A bad line goes to standard error with its number, and
    the exit code is 1 if there were any.
    """
    from app.documents import read_operations
    from model import canonical
    from transforms import compile_spec

    with told():
        transform = compile_spec(read_operations(spec))
        bad = 0
        stream: BinaryIO = sys.stdin.buffer
        if file is not None:
            try:
                stream = file.open("rb")
            except OSError as error:
                print(f"error: {file}: {error.strerror}", file=sys.stderr)
                raise typer.Exit(Exit.USAGE) from None
        with stream:
            for number, line in enumerate(stream, 1):
                if line.isspace():
                    continue
                try:
                    mapped = transform(canonical.decode(line))
                except canonical.MalformedJSON as error:
                    print(f"line {number}: not JSON: {error}", file=sys.stderr)
                    bad += 1
                except TransformError as error:
                    print(f"line {number}: {error}", file=sys.stderr)
                    bad += 1
                else:
                    sys.stdout.buffer.write(canonical.encode_ordered(mapped) + b"\n")
        sys.stdout.buffer.flush()
        if bad:
            print(f"{bad} line(s) could not be mapped", file=sys.stderr)
            raise typer.Exit(Exit.FAILED)


def check(
    specs: Annotated[list[Path], typer.Argument(help="Mapping spec files.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a file.")] = False,
) -> None:
    """Check mapping specs: exit code 1, and the place of a mistake in each that is wrong."""
    wrong = 0
    for spec in specs:
        problem = _problem(spec)
        wrong += problem is not None
        if as_json:
            print(json.dumps({"file": str(spec), "ok": problem is None, **(problem or {})}))
        elif problem is None:
            print(f"{spec}: ok")
        else:
            hint = f" ({problem['hint']})" if problem["hint"] else ""
            print(
                f"{spec}: {problem['pointer'] or '(the whole spec)'}: {problem['message']}{hint}",
                file=sys.stderr,
            )
    if wrong:
        raise typer.Exit(Exit.FAILED)


def _problem(spec: Path) -> dict[str, Any] | None:
    from app.documents import read_operations
    from transforms import compile_spec

    try:
        compile_spec(read_operations(spec))
    except SpecError as error:
        return {"pointer": error.pointer, "message": error.message, "hint": error.hint}
    except ConfigError as error:
        return {"pointer": "", "message": str(error).removeprefix(f"{spec}: "), "hint": None}
    return None
