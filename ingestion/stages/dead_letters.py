"""Making dead letters: the record sealed whole, everything else free of event values."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from idgraph.model.dead_letters import COMMIT, FRAGMENT, DeadLetter, DeadLetterReason
from idgraph.model.errors import FlowStoppedError
from idgraph.model.events import RawRecord
from idgraph.model.stamps import SpecRef
from idgraph.model.tombstones import NO_EPOCH
from ingestion.stages.map_output import MapOutput
from merge.commit import CommitFailure
from merge.fragments import FragmentState
from transforms.privacy.record_sealing import DeadLetterSealer


def to_set_aside(on_failure: str, failures: Sequence[CommitFailure]) -> Sequence[CommitFailure]:
    """The failures that become dead letters: all. Raises FlowStoppedError where `flow.on_failure` says to stop."""
    if failures and on_failure == "stop":
        first = failures[0]
        raise FlowStoppedError(
            f"{first.fragment_id} cannot be committed ({first.reason}: {first.detail}), and flow.on_failure says to "
            "stop. The micro-batch is not marked done and will be read again"
        )
    return failures


class BatchAttempt(NamedTuple):
    """A micro-batch (`FLOW/NUMBER`) and one run of it. `is_again`: an earlier run was interrupted."""

    batch: str
    attempt: str
    is_again: bool = False


def read_changes(payload: bytes) -> FragmentState:
    """The changes that a dead letter of a fragment holds. Raises DamagedStateError, StoreError for a later format."""
    # A state begins with its format, which is no digit; its checksum may hold a line's end.
    if payload[:1] not in _NUMBER:
        return _whole(FragmentState.of_change(payload))
    erasure_epoch, _, encoded = payload.partition(b"\n")
    state = _whole(FragmentState.of_change(encoded))
    state.erasure_epoch = int(erasure_epoch)
    return state


def _whole(change: FragmentState) -> FragmentState:
    _ = change.registers  # read now: a damaged one shows here
    return change


_NUMBER = frozenset({b"-", *(b"%d" % digit for digit in range(10))})


def _changes(state: FragmentState) -> bytes:
    """`merge.codec`, after a line with the erasure epoch of the events, if they have one."""
    erasure_epoch = b"" if state.erasure_epoch == NO_EPOCH else b"%d\n" % state.erasure_epoch
    return erasure_epoch + state.change_bytes()


MOST_DETAIL = 2000
"""Characters of a dead letter's detail."""


class DeadLetterWriter:
    """Makes dead letters out of records."""

    def __init__(self, sealer: DeadLetterSealer) -> None:
        self._sealer = sealer

    def dead_letter(
        self,
        record: RawRecord,
        stage: str,
        reason: DeadLetterReason,
        detail: str,
        spec: SpecRef | None,
        snapshot_version: int,
        batch: BatchAttempt,
        file: str = "",
    ) -> DeadLetter:
        """`detail` says what is wrong and never holds a value of the record. `file` is the path of a file of which only a
        part could be read; the dead letter does not show it."""
        # Many records may have one position: a fragment has many changes, a topic that was created again has the
        # positions of the earlier one, an archive those of its inbox. Parts of two records may be equal.
        place = (record.source, record.position, stage, reason, file)
        dead_letter_id = self._sealer.dead_letter_id(record.as_arrived(), place)
        return DeadLetter(
            id=dead_letter_id,
            reason=reason,
            stage=stage,
            detail=detail[:MOST_DETAIL],
            source=record.source,
            position=record.position,
            spec=str(spec) if spec else None,
            snapshot_version=snapshot_version,
            batch=batch.batch,
            attempt=batch.attempt,
            payload=self._sealer.seal(record.as_arrived(), dead_letter_id, record.position),
            set_aside_at=time.time_ns() // 1_000_000,
        )

    def of_failures(
        self, failures: Iterable[CommitFailure], snapshot_version: int, batch: BatchAttempt
    ) -> list[DeadLetter]:
        """Dead letters with the changes that could not be committed."""
        return [
            self.dead_letter(
                RawRecord("", FRAGMENT + failure.fragment_id, _changes(failure.change)),
                COMMIT,
                failure.reason,
                failure.detail,
                None,
                snapshot_version,
                batch,
            )
            for failure in failures
        ]


class BatchDeadLetters:
    """Adds the dead letters of one micro-batch, under one snapshot, to the output of their records."""

    def __init__(self, writer: DeadLetterWriter, snapshot_version: int, batch: BatchAttempt) -> None:
        self._writer = writer
        self._snapshot_version = snapshot_version
        self._batch = batch

    def add(
        self,
        output: MapOutput,
        record: RawRecord,
        stage: str,
        reason: DeadLetterReason,
        detail: str,
        spec: SpecRef | None,
        file: str = "",
    ) -> None:
        """As `DeadLetterWriter.dead_letter`."""
        output.dead_letters.append(
            self._writer.dead_letter(
                record, stage, reason, detail, spec, self._snapshot_version, self._batch, file
            )
        )
