"""Redaction: a path that is made of somebody's value goes from the catalogue and from all of its history.

So do the fields of the input that flows report with one of its keys. A path that begins with `/` is such a
field alone.

Rows stay, in their order and with who, when and why; in place of the path stands `redacted.` and a keyed
hash, whose key is forgotten. A pipeline that knows an older snapshot has to read the whole again.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from pydantic import BaseModel
from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from idgraph.model import paths
from idgraph.model.attributes import AttributeMetadata
from idgraph.web.refusals import UnknownSubjectError
from metadata_service.attributes.catalogue import find_attributes, find_within
from metadata_service.attributes.policies import attributes_around, policies_of
from metadata_service.attributes.rules import weaker
from metadata_service.storage.edits import Edit
from metadata_service.storage.requests import GRANTS
from metadata_service.storage.tables import (
    AttributeRow,
    AttributeVersionRow,
    ChangeRow,
    RequestRow,
    SnapshotRow,
    SpecUseRow,
)

KIND = "redaction"
PREFIX = "redacted."
_RESENT = timedelta(minutes=1)


class RedactedPath(BaseModel):
    """An attribute path, or the pointer of an input field; those below it go with it."""

    path: str


def paths_to_redact(session: Session, path: str) -> list[str]:
    """The known path and those below it. Raises UnknownSubjectError where there are none."""
    if path.startswith("/"):
        found = sorted(
            {each for row in session.scalars(select(SpecUseRow)) for each in _fields(row, path, [])}
        )
    else:
        found = [each.path for each in (*find_attributes(session, [path]), *find_within(session, path))]
    if not found:
        raise UnknownSubjectError("no attribute, or field of the input, has this path, or one below it")
    return sorted(found)


def redact(edit: Edit, row: RequestRow) -> None:
    """Carry a redaction out; `row` is its request, which names the paths as well."""
    session, key = edit.session, secrets.token_bytes(32)
    asked = RedactedPath.model_validate_json(row.document).path
    known = paths_to_redact(session, asked)
    names = {each: PREFIX + hmac.digest(key, each.encode(), "sha256").hex()[:24] for each in {asked, *known}}
    for path, name in names.items():
        session.execute(delete(AttributeRow).where(AttributeRow.path == path))
        for version in session.scalars(select(AttributeVersionRow).where(AttributeVersionRow.path == path)):
            document = AttributeMetadata.model_validate_json(version.document).model_copy(
                update={"path": name, "name": "", "description": "", "first_event": None, "conflicts": ()}
            )
            session.execute(
                update(AttributeVersionRow)
                .where(AttributeVersionRow.path == path, AttributeVersionRow.version == version.version)
                .values(path=name, document=document.model_dump_json())
                .execution_options(synchronize_session=False)
            )
            session.expunge(version)
        session.execute(update(ChangeRow).where(ChangeRow.subject == path).values(subject=name))
        for request in session.scalars(select(RequestRow).where(RequestRow.subject == path)):
            if GRANTS.get(request.kind, "path") != "path":
                continue
            request.subject = name
            if request.kind in GRANTS:
                continue
            stated = json.loads(request.document) | {"path": name}
            stated |= dict.fromkeys({"name", "description"} & stated.keys(), "")
            request.document = json.dumps(stated)
            request.weakens = json.dumps([f"redacts {len(known)} paths"])
    above = paths.split(asked)[:-1]
    for use in session.scalars(select(SpecUseRow)):
        gone = _fields(use, asked, [key for each in names for key in paths.split(each)[len(above) :]])
        fields = json.loads(use.fields)
        use.fields = json.dumps({each: fields[each] for each in fields if each not in gone})
    session.flush()


def _fields(row: SpecUseRow, path: str, keys: Sequence[str]) -> list[str]:
    """The reported fields that have one of these keys, or stand at or below a pointer."""
    return [
        each
        for each in json.loads(row.fields)
        if f"{each}/".startswith(f"{path}/") or not _keys(each).isdisjoint(keys)
    ]


def _keys(pointer: str) -> set[str]:
    return {each.replace("~1", "/").replace("~0", "~") for each in pointer.split("/")}


_REDACTED = (ChangeRow.kind == KIND) & (ChangeRow.action == "approved")
_LAST_REMOVAL = select(func.max(ChangeRow.snapshot_version)).where(_REDACTED | (ChangeRow.action == "purged"))


def last_removal(session: Session) -> int:
    """The version of the snapshot that last lost paths, by a redaction or a purge; 0 without any."""
    return session.scalar(_LAST_REMOVAL) or 0


def is_recent(session: Session) -> bool:
    """Whether a path was redacted within a minute, so that flows may still report the fields of the input
    with it."""
    at = session.scalar(
        select(func.max(SnapshotRow.at))
        .join(ChangeRow, ChangeRow.snapshot_version == SnapshotRow.version)
        .where(_REDACTED)
    )
    return at is not None and datetime.now(UTC) - at < _RESENT


def described(session: Session, found: Sequence[str]) -> list[str]:
    """The text of a request for the second person: the paths, and the protection that goes with them."""
    known = attributes_around(session, (each for each in found if not each.startswith("/")))
    before = policies_of(session, known.values())
    after = policies_of(session, (each for path, each in known.items() if path not in found))
    opened = [
        f"opens {said}"
        for path in found
        if path in known
        for said in weaker(path, before.policy(path), after.policy(path))
    ]
    return [*(f"redacts {each}" for each in found), *opened]
