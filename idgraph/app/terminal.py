"""Output for people and for scripts; standard streams that the caller has closed (`>&-`)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from idgraph.model import canonical
from idgraph.model.text import escape_control_chars, visible_lines

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import BaseModel
    from rich.console import Console

    from metadata_service.documents.problems import Problem


Shown = TypeVar("Shown", bound="BaseModel")


def console() -> Console:
    """Standard output for people; plain and never cut when it is not a terminal."""
    from rich.console import Console

    class PlainConsole(Console):
        def on_broken_pipe(self) -> None:
            # Rich would end the process with code 1; `error_handler` gives the right one.
            raise BrokenPipeError

    return PlainConsole(highlight=False, width=None if sys.stdout.isatty() else 250)


def counted(number: int, thing: str) -> str:
    """A number of things in words: `1 event`, `2,000 events`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def report_cut(shown: int, total: int, is_least: bool = False) -> None:
    """Say on standard error that a listing holds only the first of `total` things, or of more than so many; nothing if
    it holds all."""
    if total > shown:
        of = "more than " if is_least else ""
        print(f"{shown:,} of {of}{total:,}; more with --limit", file=sys.stderr)


def report_warnings(file: Path, warnings: Iterable[Problem]) -> None:
    """Print on standard error the warnings about a file that a person wrote."""
    for each in warnings:
        said = f"{file}:{each.line}:{each.column}: warning: {each.text}"
        print(escape_control_chars(said), file=sys.stderr)


def print_json(value: Any) -> None:
    """One JSON value on one line, for scripts; numbers keep every digit. The terminal obeys none of it."""
    print(escape_control_chars(canonical.encode_ordered(value).decode()))


def json_writer() -> Callable[[bytes], object]:
    """Writes lines of JSON to standard output, byte for byte; to a terminal, so that it obeys none of them."""
    if sys.stdout.isatty():
        return lambda line: sys.stdout.write(visible_lines(line.decode()))
    return sys.stdout.buffer.write


def print_listing(
    items: Sequence[Shown], as_json: bool, columns: Mapping[str, Callable[[Shown], str]]
) -> None:
    """Items as one JSON object a line, or as a table with these columns."""
    if as_json:
        for item in items:
            print_json(item.model_dump(mode="json"))
    else:
        print_table(tuple(columns), [[column(item) for column in columns.values()] for item in items])


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Rows of plain text, whatever characters they hold, for people."""
    from rich.table import Table
    from rich.text import Text

    table = Table(*titles, box=None)
    for row in rows:
        table.add_row(*(Text(escape_control_chars(cell)) for cell in row))
    console().print(table)


def print_records(records: Iterable[Mapping[str, Any]], titles: Sequence[str], as_json: bool) -> None:
    """One JSON line per record with all of it, or a table of the columns for people."""
    if not as_json:
        print_table(titles, ([str(each.get(title) or "-") for title in titles] for each in records))
        return
    for each in records:
        print_json(each)


def confirmed(prompt: str) -> bool:
    """Ask on standard error; anything but yes, and no answer at all, is no. Raises KeyboardInterrupt, which
    typer's own prompt would turn into a refusal (and into another exit code)."""
    print(f"{prompt} [y/N]: ", end="", file=sys.stderr, flush=True)
    try:
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    except KeyboardInterrupt:
        print(file=sys.stderr)
        raise


_MODES = {"stdin": "r", "stdout": "w", "stderr": "w"}
"""By name, in the order of their descriptors."""


def open_closed_streams() -> None:
    """Point closed streams to /dev/null, before another file gets its descriptor: messages would go to standard output, or
    into a database."""
    for number, (name, mode) in enumerate(_MODES.items()):
        if getattr(sys, name) is not None:
            continue
        opened = os.open(os.devnull, os.O_RDWR)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)
        # Spark's processes have them too.
        os.set_inheritable(number, True)
        setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - it stays open
