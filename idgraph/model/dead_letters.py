"""Events that were set aside, with the reason."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol


class DeadLetterReason(StrEnum):
    """Why an event was set aside."""

    NOT_JSON = "not_json"
    NOT_OBJECT = "not_object"
    NO_SCHEMA = "no_schema"
    BAD_PAYLOAD = "bad_payload"
    TOO_LARGE = "too_large"
    CORRUPT_SOURCE = "corrupt_source"
    DECRYPTION_FAILED = "decryption_failed"
    WRONG_TYPE = "wrong_type"
    MISSING_SOURCE = "missing_source"
    MISSING_TYPE = "missing_type"
    MISSING_ID = "missing_id"
    MISSING_ORDINAL = "missing_ordinal"
    BAD_ORDINAL = "bad_ordinal"
    FUTURE_ORDINAL = "future_ordinal"
    MISSING_IDENTIFIER = "missing_identifier"
    LONG_IDENTIFIER = "long_identifier"
    NO_SPEC = "no_spec"
    SPEC_UNUSABLE = "spec_unusable"
    TRANSFORM_FAILED = "transform_failed"
    SENSITIVE_KEY = "sensitive_key"
    VALUE_KEY = "value_key"
    KEY_UNAVAILABLE = "key_unavailable"
    STAGE_CRASHED = "stage_crashed"
    DAMAGED_FRAGMENT = "damaged_fragment"
    REFUSED_BY_STORE = "refused_by_store"
    MERGE_FAILED = "merge_failed"
    CONFLICT = "conflict"


COMMIT = "commit"
"""The stage of dead letters that hold a fragment's changes."""
FRAGMENT = "fragment:"
"""How their positions begin; the fragment's id follows."""

COMMIT_REASONS = (
    DeadLetterReason.DAMAGED_FRAGMENT,
    DeadLetterReason.REFUSED_BY_STORE,
    DeadLetterReason.MERGE_FAILED,
    DeadLetterReason.CONFLICT,
)
"""Their reasons."""


class DeadLetter(NamedTuple):
    """One set-aside event. `payload` is the raw record, sealed; nothing else here holds event values.

    A dead letter of the stage `commit` holds, in place of a record, what some events together would have made of
    a fragment (`merge.codec`); its `source` is empty and its position names the fragment.

    `id` is derived from position, stage, reason and the record, so a replayed batch sets nothing aside twice, and what
    another record of the same position left stays.
    `batch` is `FLOW/NUMBER`; `attempt` differs each time the batch runs.
    """

    id: str
    reason: DeadLetterReason
    stage: str
    detail: str
    source: str
    position: str
    spec: str | None
    snapshot_version: int
    batch: str
    attempt: str
    payload: bytes
    set_aside_at: int

    def holds_changes(self) -> bool:
        """Whether it holds changes of a fragment rather than a record."""
        return self.stage == COMMIT


class DeadLetters(Protocol):
    """Where dead letters stay. All methods block; all raise StoreError, which is retryable."""

    def put(self, dead_letters: Sequence[DeadLetter]) -> None:
        """Durable when it returns. The same id again replaces the dead letter."""
        ...

    def settle_batch(self, batch: str, attempt: str) -> dict[str, str]:
        """The batch is done: drop its dead letters from earlier attempts. Gives those of fragments: position by id."""
        ...

    def get(self, dead_letter_id: str) -> DeadLetter | None: ...

    def scan(self, reason: str | None = None, source: str | None = None) -> Iterator[DeadLetter]:
        """Dead letters in the order of their ids. Those that are put or dropped meanwhile may be among them or not, and all
        others are."""
        ...

    def counts(self, source: str | None = None) -> dict[str, int]:
        """Dead letters by reason: all, or those of one source."""
        ...

    def at(self, positions: Collection[str]) -> dict[str, str]:
        """The dead letters of fragments at these positions, which begin with `FRAGMENT`: position by id."""
        ...

    def drop(self, ids: Sequence[str]) -> int:
        """Remove dead letters for good; gives how many there were."""
        ...

    def compact(self) -> None:
        """Leave no byte in a file of what was dropped or replaced. May take seconds a gigabyte, in which nobody
        else writes."""
        ...

    def close(self) -> None: ...
