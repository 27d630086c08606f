"""The words of a spec: operations and functions, each with a line of help, and paths that attributes have."""

from __future__ import annotations

import json
from enum import StrEnum
from functools import cache
from pathlib import Path

from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from idgraph.web.cursors import PageRequest
from metadata_service.attributes.catalogue import AttributeFilter, search_attributes


class WordKind(StrEnum):
    """`function` are those of `modify-*`, `jmespath` those of that operation."""

    OPERATION = "operation"
    FUNCTION = "function"
    JMESPATH = "jmespath"
    PATH = "path"


class Completion(BaseModel):
    name: str
    help: str


class CompletionList(BaseModel):
    """Words that begin as asked, by name."""

    items: list[Completion]
    is_all: bool = Field(description="No other word begins so.")


def completions(session: Session, kind: WordKind, beginning: str, limit: int) -> CompletionList:
    """At most `limit` words, in any case of letters; paths as they are written."""
    if kind is WordKind.PATH:
        page = search_attributes(session, AttributeFilter(prefix=beginning), PageRequest(None, limit))
        found = [Completion(name=each.path, help=each.data_type) for each in page.items]
        return CompletionList(items=found, is_all=page.next is None)
    words = [word for word in _vocabulary()[kind].items() if word[0].lower().startswith(beginning.lower())]
    items = [Completion(name=name, help=line) for name, line in words[:limit]]
    return CompletionList(items=items, is_all=len(words) <= limit)


@cache
def _vocabulary() -> dict[str, dict[str, str]]:
    read: dict[str, dict[str, str]] = json.loads(Path(__file__).with_suffix(".json").read_bytes())
    return read
