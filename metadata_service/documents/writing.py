"""Mapping specs and identity rules as text for people to edit, and what differs between two texts."""

from __future__ import annotations

import difflib
import json
from typing import Any, NamedTuple

from pydantic import BaseModel


def spec_text(document: BaseModel, *left_out: str) -> str:
    """A version as JSON: without what has its default, what the service keeps beside it, and the fields that are left out."""
    stated = document.model_dump(
        mode="json", exclude={"version", "created", *left_out}, exclude_defaults=True
    )
    return json_lines(stated)


def json_lines(value: Any, indent: str = "") -> str:
    """A JSON value as text, with short arrays and objects on one line."""
    flat = json.dumps(value, ensure_ascii=False)
    if (
        not isinstance(value, dict | list)
        or not value
        or (len(indent) + len(flat) <= 76 and not _is_deep(value))
    ):
        return flat
    deeper = indent + "  "
    if isinstance(value, dict):
        parts = [
            f"{json.dumps(key, ensure_ascii=False)}: {json_lines(below, deeper)}"
            for key, below in value.items()
        ]
    else:
        parts = [json_lines(below, deeper) for below in value]
    first, last = "{}" if isinstance(value, dict) else "[]"
    return f"{first}\n{deeper}" + f",\n{deeper}".join(parts) + f"\n{indent}{last}"


def _is_deep(value: dict[str, Any] | list[Any]) -> bool:
    inside = value.values() if isinstance(value, dict) else value
    return any(isinstance(each, dict | list) and each for each in inside) or len(value) > 4


class Row(NamedTuple):
    """A line of a difference: `same`, `added`, `removed`, or `fold` for lines that are left out."""

    kind: str
    before: int | None
    after: int | None
    text: str


def difference(before: str, after: str) -> list[Row]:
    """The lines that differ, with three around them."""
    old, new = before.splitlines(), after.splitlines()
    rows: list[Row] = []
    for group in difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(3):
        if rows or group[0][1]:
            rows.append(Row("fold", None, None, ""))
        for tag, old_from, old_to, new_from, new_to in group:
            if tag == "equal":
                rows += [
                    Row("same", old_from + n + 1, new_from + n + 1, line)
                    for n, line in enumerate(old[old_from:old_to])
                ]
                continue
            rows += [
                Row("removed", old_from + n + 1, None, line) for n, line in enumerate(old[old_from:old_to])
            ]
            rows += [
                Row("added", None, new_from + n + 1, line) for n, line in enumerate(new[new_from:new_to])
            ]
    return rows
