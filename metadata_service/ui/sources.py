"""Whether the configuration names the source of a spec, and the lines that add it."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from idgraph.model.callers import Scope
from idgraph.model.errors import ProfileServiceError
from metadata_service.documents.reading import unknown_source
from metadata_service.ui.page import OwnPage

SECONDS = 2.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_\-]{0,63}")


class MissingSource(NamedTuple):
    """A source that no configuration names: the nearest that one does, as a `hint`, and the `lines` of idgraph.toml that add it,
    none for a pattern."""

    name: str
    hint: str | None
    lines: str


def missing_source(page: OwnPage, source: str, event_type: str = "*") -> MissingSource | None:
    """None where a configured source may be meant, and where this person or page cannot know."""
    if not source or not page.can_ask or Scope.RULES not in page.rights.scopes:
        return None
    try:
        found = page.ask("GET", "sources", seconds=SECONDS)
    except ProfileServiceError:
        return None
    wrong = unknown_source(source, frozenset(found["items"])) if found["are_all"] else []
    if not wrong and (found["items"] or not found["are_all"]):
        return None
    return MissingSource(source, wrong[0].hint if wrong else None, _lines(source, event_type))


def _lines(source: str, event_type: str) -> str:
    if "*" in source:
        return ""
    name = source
    if not _NAME.fullmatch(source):
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", source).strip("-_")[:64] or "source"
    lines = ["[[sources]]", f'name = "{name}"']
    lines += [f"source = {{ const = {json.dumps(source)} }}"] if name != source else []
    lines.append(f'path = "inbox/{name}"')
    if "*" not in event_type:
        lines.append(f"type = {{ const = {json.dumps(event_type)} }}")
    elif event_type != "*":
        lines.append('type = { path = "type" }')
    lines += ["# For topics of Kafka, in place of path:", '# kind = "kafka"', f'# topics = ["{name}"]']
    return "\n".join(lines) + "\n"
