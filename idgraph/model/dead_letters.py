"""Dead letters: failed events with the reason."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol


class DeadLetterReason(StrEnum):
    """The reason why an event became a dead letter."""

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
    PAST_ORDINAL = "past_ordinal"
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
"""The stage of dead letters with a fragment's changes."""
FRAGMENT = "fragment:"
"""Prefix of their positions; the fragment's id follows."""

COMMIT_REASONS = (
    DeadLetterReason.DAMAGED_FRAGMENT,
    DeadLetterReason.REFUSED_BY_STORE,
    DeadLetterReason.MERGE_FAILED,
    DeadLetterReason.CONFLICT,
)
"""Their reasons."""

PARTIAL = frozenset({DeadLetterReason.TOO_LARGE, DeadLetterReason.CORRUPT_SOURCE})
"""Dead letters that hold only a part of their record: the file must be published again."""


class DeadLetter(NamedTuple):
    """One failed event. `payload` is the raw record, sealed; no other field has event values.

    A dead letter of the stage `commit` has the joined changes of several events to a fragment instead of a record
    (`merge.codec`); its `source` is empty, and its position names the fragment.

    `id` is derived from position, stage, reason and record: a repeated batch replaces its dead letters, and different
    records of one position have different ones. `batch` is `FLOW/NUMBER`; `attempt` differs with each run of the batch.
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
        """Whether it has changes of a fragment instead of a record."""
        return self.stage == COMMIT

    def is_of_file(self, name: str) -> bool:
        """Whether its record stands in this file: its name, or the end of its path, as the position has it."""
        kind, _, place = self.position.partition(":")
        file = place.rpartition("#")[0]
        return kind == "file" and (file == name or file.endswith(f"/{name}"))


class DeadLetters(Protocol):
    """The store of dead letters. All methods block; all raise StoreError, which is retryable."""

    def put(self, dead_letters: Sequence[DeadLetter]) -> None:
        """Durable when it returns. A dead letter replaces an earlier one with its id."""
        ...

    def settle_batch(self, batch: str, attempt: str, source: str | None = None) -> dict[str, str]:
        """The batch is done: drop its dead letters of earlier attempts, all or of one source. Returns those of fragments,
        position by id."""
        ...

    def get(self, dead_letter_id: str) -> DeadLetter | None: ...

    def scan(self, reason: str | None = None, source: str | None = None) -> Iterator[DeadLetter]:
        """Dead letters in the order of their ids. One that is put or dropped during the scan can be missing or present."""
        ...

    def counts(self, source: str | None = None) -> dict[str, int]:
        """Number of dead letters by reason: all, or of one source."""
        ...

    def newest(self, most: int, before: tuple[int, str] | None = None) -> list[DeadLetter]:
        """Up to `most` dead letters without their payloads, the newest first, and behind `before`: the time and the
        id of one. If two are equally old, the one with the greater id comes first."""
        ...

    def at(self, positions: Collection[str]) -> dict[str, str]:
        """Dead letters of fragments at these positions (with the prefix `FRAGMENT`): position by id."""
        ...

    def drop(self, ids: Sequence[str]) -> int:
        """Remove dead letters for good; returns their number."""
        ...

    def compact(self) -> None:
        """Leave no byte of dropped or replaced dead letters in a file. Can block other writers for seconds per gigabyte."""
        ...

    def close(self) -> None: ...
