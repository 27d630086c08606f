"""Dot notation: `photos[&1].@(2,id)` to the texts of its path elements.

Kept apart from what the elements mean, because its rules for escapes are peculiar: they are Jolt's, so
that specs written for it mean the same.
"""

from __future__ import annotations

from itertools import pairwise

from idgraph.model.errors import SpecError


def split_path(path: str) -> list[str]:
    """The keys of a dotted path, `a[0]` being short for `a.[0]`. Empty keys are skipped."""
    keys: list[str] = []
    text = _dot_before_brackets(path)
    position = 0
    key = ""
    escaped = False
    while position < len(text):
        character = text[position]
        position += 1
        escapes = character == "\\" and not escaped
        if escaped and character not in ".\\":
            key += "\\" + character
        elif character == "@":
            reference, position = _at_reference(text, position, path)
            key += "@" + reference
            if "[" not in key or "]" in key:
                keys.append(key)
                key = ""
        elif character == "." and not escaped:
            if key:
                keys.append(key)
            key = ""
        elif not escapes:
            key += character
        escaped = escapes
    if key:
        keys.append(key)
    return keys


def _dot_before_brackets(path: str) -> str:
    pieces = [path[:1]]
    for before, character in pairwise(path):
        if character == "[" and before not in "\\@.":
            pieces.append(".")
        pieces.append(character)
    return "".join(pieces)


def _at_reference(text: str, position: int, path: str) -> tuple[str, int]:
    """What follows an `@`, with the position after it; `@a.b` is `@(a)` and then `b`."""
    rest = text[position:]
    if not rest:
        return "", position
    if rest[0] == ".":
        raise SpecError(f"'@' must be followed by a level or a key in '{path}'")
    if rest[0] != "(":
        key, dot, _ = rest.partition(".")
        return (f"({key})", position + len(key) + 1) if dot else (key, len(text))
    end = rest.find(")")
    if end < 0:
        raise SpecError(f"'@(' is not closed in '{path}'")
    if rest.find("(", 1, end) >= 0:
        raise SpecError(f"'@(' holds another '(' in '{path}'")
    return rest[: end + 1], position + end + 1


def without_escaped(key: str) -> str:
    """The key without its escaped characters: what is left may be wildcards."""
    kept: list[str] = []
    escaped = False
    for character in key:
        if character == "\\":
            escaped = not escaped
        else:
            if not escaped:
                kept.append(character)
            escaped = False
    return "".join(kept)


def unescaped(key: str) -> str:
    """The key with its escapes resolved."""
    kept: list[str] = []
    escaped = False
    for character in key:
        if character == "\\" and not escaped:
            escaped = True
            continue
        kept.append(character)
        escaped = False
    return "".join(kept)
