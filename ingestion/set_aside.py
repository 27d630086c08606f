"""Making dead letters: the record sealed whole, everything else free of event values."""

from __future__ import annotations

import hashlib
import time
from typing import NamedTuple, Protocol

from model.dead_letters import DeadLetter, DeadLetterReason
from model.events import RawRecord
from model.stamps import SpecRef


class BatchAttempt(NamedTuple):
    """Which micro-batch (`FLOW/NUMBER`) and which run of it."""

    batch: str
    attempt: str


class PayloadSealer(Protocol):
    """Seals a record's bytes under the dead letters' own key."""

    def seal(self, payload: bytes, letter_id: str, position: str) -> bytes: ...

    def open(self, sealed: bytes, letter_id: str, position: str) -> bytes:
        """Raises SealError for bytes that were altered or belong to another letter."""
        ...


class LetterWriter:
    """Makes dead letters out of records."""

    def __init__(self, sealer: PayloadSealer) -> None:
        self._sealer = sealer

    def letter(
        self,
        record: RawRecord,
        stage: str,
        reason: DeadLetterReason,
        detail: str,
        spec: SpecRef | None,
        snapshot_version: int,
        batch: BatchAttempt,
    ) -> DeadLetter:
        """`detail` says what is wrong and never holds a value of the record."""
        name = f"{record.source}\n{record.position}\n{stage}\n{reason}"
        letter_id = hashlib.sha256(name.encode()).hexdigest()[:24]
        return DeadLetter(
            id=letter_id,
            reason=reason,
            stage=stage,
            detail=detail[:500],
            source=record.source,
            position=record.position,
            spec=str(spec) if spec else None,
            snapshot_version=snapshot_version,
            batch=batch.batch,
            attempt=batch.attempt,
            payload=self._sealer.seal(record.value, letter_id, record.position),
            set_aside_at=time.time_ns() // 1_000_000,
        )
