"""The chain of history: each version has a keyed hash over what was written with it and over the hash of the
version before.

The chain begins with version 0, and the hash of a version is over its number too: without the key nobody
makes a chain that begins later, or that leaves a version out.

The newest hash is in the ETag that flows keep, so each of them is a witness of all that was before.
`verify_history` finds tables that were rewritten without the key, and any flow finds those rewritten with it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Collection, Iterable, Sequence

from sqlalchemy import Connection, Row, String, Table, cast, func, select
from sqlalchemy.orm import Session

from idgraph.model import canonical
from idgraph.web.audit import AuditReport, chained
from metadata_service.storage.tables import Base, HistoryRow, SnapshotRow

_TABLES = [table for table in Base.metadata.sorted_tables if "snapshot_version" in table.c]
_MUTABLE = frozenset({"spec_versions.status"})


def append_version(session: Session, key: bytes, version: int, rewritten: Collection[int]) -> None:
    """Add a version, all of which is written, to the chain. It replaces what `rewritten` older ones are to
    contain."""
    newest = select(HistoryRow.mac).order_by(HistoryRow.version.desc()).limit(1)
    contents = {str(each): _content(session, key, each) for each in rewritten}
    row = HistoryRow(version=version, content=_content(session, key, version), rewritten=json.dumps(contents))
    row.mac = chained(key, session.scalar(newest) or "", _entry(session, row))
    session.add(row)
    session.flush()


def verify_history(session: Session, key: bytes) -> AuditReport:
    """Check all versions; `broken_line` is the first that was altered, or before which one was removed."""
    rows = list(session.scalars(select(HistoryRow).order_by(HistoryRow.version)))
    held = _held((row.version, row.content, row.rewritten) for row in rows)
    if not rows or rows[0].version != 0:
        return AuditReport(0, "", rows[0].version if rows else 0)
    head, entries = rows[0].mac, len(rows) - 1
    for number, row in enumerate(rows[1:]):
        is_whole = row.version == rows[number].version + 1 and row.mac == chained(
            key, head, _entry(session, row)
        )
        if not is_whole or _content(session, key, row.version) != held[row.version]:
            return AuditReport(number, head, row.version)
        head = row.mac
    is_last = session.scalar(select(SnapshotRow.version).order_by(SnapshotRow.version.desc()).limit(1))
    return AuditReport(entries, head, None if is_last == rows[-1].version else rows[-1].version + 1)


def _held(rows: Iterable[tuple[int, str, str]]) -> dict[int, str]:
    """The content of each version, as the newest that rewrites it has it."""
    held = {}
    for version, content, rewritten in rows:
        held[version] = content
        held |= {int(older): replaced for older, replaced in json.loads(rewritten).items()}
    return held


def altered_versions(
    connection: Connection, key: bytes, versions: Iterable[int], tables: Sequence[Table]
) -> set[int]:
    """The given versions that differ from their hash in the history, read from the given tables."""
    row = HistoryRow.__table__.c
    held = _held(connection.execute(select(row.version, row.content, row.rewritten).order_by(row.version)))
    chained_tables = [each for each in tables if "snapshot_version" in each.c]
    return {each for each in versions if _content(connection, key, each, chained_tables) != held.get(each)}


def is_gapless(session: Session, version: int) -> bool:
    """Whether the history has all versions from the first to this one; cheaper than `verify_history`, and no
    proof."""
    numbers = select(func.min(HistoryRow.version), func.count()).where(HistoryRow.version <= version)
    return tuple(session.execute(numbers).one()) == (0, version + 1)


def _entry(session: Session, row: HistoryRow) -> dict[str, object]:
    edit = session.get_one(SnapshotRow, row.version)
    return {
        "version": row.version,
        "nonce": edit.nonce,
        "at": edit.at.isoformat(),
        "actor": edit.actor,
        "reason": edit.reason,
        "content": row.content,
        "rewritten": row.rewritten,
    }


def _content(
    session: Session | Connection, key: bytes, version: int, tables: Sequence[Table] = _TABLES
) -> str:
    """The keyed hash of everything that was written with a version. Keyed: it stays when a name is
    redacted."""
    digest = hmac.new(key, digestmod=hashlib.sha256)
    for table in tables:
        columns = [each for each in table.c if f"{table.name}.{each.name}" not in _MUTABLE]
        written = select(*columns).where(table.c.snapshot_version == version).order_by(*table.primary_key)
        for found in session.execute(written):
            digest.update(_line(str(table.name), found))
    return digest.hexdigest()


def _line(table: str, row: Row[*tuple[object, ...]]) -> bytes:
    return canonical.encode([table, *row]) + b"\n"


def redacted_versions(session: Session) -> set[int]:
    """The versions in which a name stands redacted."""
    found: set[int] = set()
    for table in _TABLES:
        for name in ("subject", "path"):
            if name in table.c:
                is_redacted = cast(table.c[name], String).like("redacted.%")
                found.update(session.scalars(select(table.c.snapshot_version).where(is_redacted).distinct()))
    return found
