"""Where in a configuration file a key is set. tomllib keeps no lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

_TABLE = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]")
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")


def line_of(text: str, keys: Sequence[str]) -> int | None:
    """The line, from 1, that sets the key or else opens the innermost table of its path; in a path the tables of an
    array are counted from 0, as in `sources.1.name`. None if not even its outermost table is there."""
    nearest, line = 0, None
    for number, path in _paths(text):
        common = _common(path, keys)
        # What goes on otherwise than the path is another key; a table below it is as good as its own line.
        if common > nearest and common in (len(path), len(keys)):
            nearest, line = common, number
    return line


def _paths(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The lines that open a table or set a key, each with its whole path."""
    table: tuple[str, ...] = ()
    counted: Counter[tuple[str, ...]] = Counter()
    for number, content in enumerate(text.split("\n"), 1):
        if header := _TABLE.match(content):
            name = _parts(header[2])
            if header[1] == "[[":
                counted[name] += 1
            table = _numbered(name, counted)
            yield number, table
        elif key := _KEY.match(content):
            yield number, table + _parts(key[1])


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))


def _numbered(name: tuple[str, ...], counted: Counter[tuple[str, ...]]) -> tuple[str, ...]:
    """With the number of the last table of each array that it is in."""
    path: list[str] = []
    for end in range(1, len(name) + 1):
        path.append(name[end - 1])
        if count := counted[name[:end]]:
            path.append(str(count - 1))
    return tuple(path)


def _common(path: Sequence[str], keys: Sequence[str]) -> int:
    common = 0
    for one, other in zip(path, keys, strict=False):
        if one != other:
            break
        common += 1
    return common
