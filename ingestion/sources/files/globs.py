"""Globs of files, as far as Hadoop, which finds the files, and `fnmatch`, which reports their source, read them alike."""

from __future__ import annotations

import re
from pathlib import Path

_GLOB = frozenset("*?[")
# Hadoop takes `{a,b}` for either of both, a backslash for an escape and `[^a]` for `[!a]`, and refuses a `[` without end,
# a range of a range and one that ends before it begins; for fnmatch all of them are characters like others, or nothing.
_MEMBER = r"[^\[\]{}\\,-]"
_SET = rf"\[(?!\^|!\])!?-?(?:{_MEMBER}(?:-{_MEMBER})?)+-?\]"
_READ_ALIKE = re.compile(rf"(?:[^\[{{}}\\,]|{_SET})*")
_RANGE = re.compile(rf"({_MEMBER})-({_MEMBER})")


def require_name(value: object) -> object:
    """Raises ValueError for a path that is empty: a variable that is not set, and not meant to be the folder of now."""
    if value == "":
        raise ValueError("it is empty; '.' is the folder of the configuration")
    return value


def is_glob(path: Path) -> bool:
    """Whether a source's path is a glob of files rather than a directory."""
    return any(character in _GLOB for character in path.name)


def require_plain_glob(path: Path) -> None:
    """Raises ValueError for a glob that may find other files than those it is taken for."""
    if not is_glob(path):
        return
    ranges = [each for found in re.findall(_SET, path.name) for each in _RANGE.findall(found)]
    if not _READ_ALIKE.fullmatch(path.name) or any(first > last for first, last in ranges):
        raise ValueError(
            f"the glob {path.name} may have *, ? and sets such as [ab], [a-z] or [!a], and no braces, commas, backslashes or "
            "[^a]; give what braces distinguish as several sources, or a directory"
        )
