"""What a search asks for, independent of the index that answers."""

from __future__ import annotations

from typing import NamedTuple

Scalar = str | int | float | bool


class Term(NamedTuple):
    """The attribute has exactly this value; of an array: one of its elements has."""

    path: str
    value: Scalar


class Prefix(NamedTuple):
    """The attribute is a string that starts with this one."""

    path: str
    prefix: str


class Range(NamedTuple):
    """The attribute lies between the bounds; None leaves a side open. Compares numbers with numbers and
    strings with strings (by code point), never one with the other."""

    path: str
    lower: str | int | float | None = None
    upper: str | int | float | None = None
    include_lower: bool = True
    include_upper: bool = True


class FullText(NamedTuple):
    """All these words stand in the attribute; without a path: in the indexed text of the whole profile."""

    words: str
    path: str | None = None


Clause = Term | Prefix | Range | FullText


class Query(NamedTuple):
    """All clauses hold. No clause: every profile."""

    clauses: tuple[Clause, ...] = ()
