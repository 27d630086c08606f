"""The receipt of an erasure: counts, time, requester, and nothing that names a person in the clear.

Canonical JSON on one line. `hash` is the SHA-256 of the canonical JSON of all the rest. It shows that the
receipt was altered by accident or by somebody careless: an attacker who can write it can also make a new
hash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from idgraph.jobs.erase.erasure import Erased
from idgraph.jobs.export_file import write_export
from idgraph.model import canonical
from idgraph.model.jobs import Requester
from idgraph.model.tombstones import TombstoneNames


def receipt(
    moment: datetime,
    origin: Requester,
    until: int,
    fragments: Iterable[str],
    asked: Iterable[str],
    names: TombstoneNames,
    erased: Erased,
    continued: bool,
    backup_days: int | None = None,
    sandboxes: Iterable[str] = (),
) -> dict[str, Any]:
    """`fragments` are those with a tombstone now, `asked` the identifiers on the command line, one hash each,
    as they were written there. The receipt has only keyed hashes of both, so that the holder of the keyring
    can show that somebody was erased. `continued` says that an interrupted erasure was resumed: its earlier
    removals are not among the counts. `backup_days` is the time for which backups of data keys are kept, None
    where nobody said. `sandboxes` were there, which this erasure does not reach."""
    content = {
        "format": 1,
        "erased_at": moment.astimezone(UTC).isoformat(timespec="milliseconds"),
        "erased_by": origin.who,
        "reason": origin.why,
        "refused_until": until,
        "fragments": sorted(names(each).hex() for each in fragments),
        "asked": sorted(names(each).hex() for each in asked),
        "counts": erased._asdict(),
        "continued": continued,
        "complete_from": complete_from(moment, backup_days),
        "sandboxes": sorted(sandboxes),
    }
    return {**content, "hash": receipt_hash(content)}


def complete_from(moment: datetime, backup_days: int | None) -> str | None:
    """The first day on which an erasure of a moment holds in backups too; None where nobody said how long they are kept."""
    if backup_days is None:
        return None
    return (moment.astimezone(UTC) + timedelta(days=backup_days + 1)).date().isoformat()


def receipt_hash(receipt: dict[str, Any]) -> str:
    """The hash over a receipt, its own left out."""
    content = {key: value for key, value in receipt.items() if key != "hash"}
    return "sha256:" + hashlib.sha256(canonical.encode(content)).hexdigest()


def write_receipt(path: Path, content: Mapping[str, Any]) -> None:
    """Raises ConfigError when it cannot be written."""
    write_export(path, [canonical.encode(content) + b"\n"])
