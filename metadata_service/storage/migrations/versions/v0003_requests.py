"""One table of requests that wait for a second person, and one of the steps since.

The history gets new hashes of the versions whose rows move (`rewritten`), if their old hashes are right: a
version that was altered stays altered. Requests for access get new numbers, behind those of policy changes.
"""

from __future__ import annotations

import json
from typing import Any

from alembic import context, op
from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    func,
    select,
)

from metadata_service.storage.history import altered_versions
from metadata_service.storage.tables import UtcTime, refuse_rewriting

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

MOVED = ("grant_answers", "policy_decisions", "grant_requests", "policy_changes")
_ORDERED = Text().with_variant(Text(collation="C"), "postgresql")
_COUNTER = BigInteger().with_variant(Integer(), "sqlite")


def upgrade() -> None:
    """Move the rows, and name the versions that they are part of."""
    connection, settings = op.get_bind(), context.config.attributes
    known = MetaData()
    known.reflect(connection)
    for column in (each for table in known.tables.values() for each in table.c):
        column.type = UtcTime() if isinstance(column.type, DateTime) else column.type
    rows: dict[str, list[dict[str, Any]]] = {
        name: [dict(each) for each in connection.execute(select(known.tables[name])).mappings()]
        for name in MOVED
    }
    versions = {row["snapshot_version"] for found in rows.values() for row in found}
    settings["rewritten"] |= versions - altered_versions(
        connection, settings["key"], versions, known.sorted_tables
    )
    requests, steps = _tables()
    first = max((row["id"] for row in rows["policy_changes"]), default=0)
    asked = [{"base": "", "weakens": "[]", **_grant(row, first)} for row in rows["grant_requests"]]
    said = [{**row, "request_id": row["request_id"] + first} for row in rows["grant_answers"]]
    said += [
        {
            "request_id": row["change_id"],
            "snapshot_version": row["snapshot_version"],
            "action": row["decision"],
            "reason": "",
            "levels": "[]",
            "until": None,
        }
        for row in rows["policy_decisions"]
    ]
    for row in (*rows["policy_changes"], *asked):
        connection.execute(requests.insert().values(row))
    for number, row in enumerate(sorted(said, key=lambda row: row["snapshot_version"]), 1):
        connection.execute(steps.insert().values({**row, "id": number}))
    for name in MOVED:
        op.drop_table(name)
    if connection.dialect.name == "postgresql":
        for table in (requests, steps):
            last = select(func.coalesce(func.max(table.c.id), 0) + 1).scalar_subquery()
            connection.execute(
                select(func.setval(func.pg_get_serial_sequence(table.name, "id"), last, False))
            )
    refuse_rewriting(connection, (requests.name, steps.name))


def _grant(row: dict[str, Any], first: int) -> dict[str, Any]:
    stated = {
        "purpose": row["purpose"],
        "until": row["until"].isoformat(),
        "view_version": row["view_version"],
    }
    return {
        "id": row["id"] + first,
        "snapshot_version": row["snapshot_version"],
        "kind": f"grant_{row['kind']}",
        "subject": row["subject"],
        "document": json.dumps(stated),
    }


def _tables() -> tuple[Table, Table]:
    requests = op.create_table(
        "requests",
        Column("id", _COUNTER, primary_key=True),
        Column("snapshot_version", _COUNTER, ForeignKey("snapshots.version"), nullable=False, index=True),
        Column("kind", String(40), nullable=False),
        Column("subject", _ORDERED, nullable=False),
        Column("base", String(40), nullable=False),
        Column("document", Text, nullable=False),
        Column("weakens", Text, nullable=False),
    )
    steps = op.create_table(
        "request_steps",
        Column("id", _COUNTER, primary_key=True),
        Column("request_id", _COUNTER, ForeignKey("requests.id"), nullable=False, index=True),
        Column("snapshot_version", _COUNTER, ForeignKey("snapshots.version"), nullable=False, index=True),
        Column("action", String(20), nullable=False),
        Column("reason", Text, nullable=False),
        Column("levels", Text, nullable=False),
        Column("until", UtcTime),
    )
    return requests, steps
