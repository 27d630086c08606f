"""Writing for people and for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def console() -> Console:
    """Standard output for people; plain and never cut when it is not a terminal."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else 250)


def counted(number: int, thing: str) -> str:
    """A number of things in words: `1 event`, `2,000 events`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def print_json(value: Any) -> None:
    """One JSON value on one line, for scripts."""
    print(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Rows of plain text, whatever characters they hold, for people."""
    from rich.table import Table
    from rich.text import Text

    table = Table(*titles, box=None)
    for row in rows:
        table.add_row(*map(Text, row))
    console().print(table)
