"""The one error tree.

Every error that idgraph raises on purpose is an `IdgraphError`. A message names the place (file, key, JSON pointer, path)
and never a value of an event, because values can be personal data (law 3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class IdgraphError(Exception):
    """Base of all errors that idgraph raises on purpose."""


class ConfigError(IdgraphError):
    """The configuration cannot be used. The message names the file or variable and the key."""


class AlreadyRunningError(ConfigError):
    """A flow, or a job of this kind and target, is running already. The message names its lock, or the job."""


class SpecError(IdgraphError):
    """A mapping spec is malformed. Raised when it is compiled or saved, never for an event.

    `pointer` is the JSON pointer (RFC 6901) of the mistake within the spec; `offset` is the character within the text
    there, if known.
    """

    def __init__(
        self, message: str, pointer: str = "", hint: str | None = None, offset: int | None = None
    ) -> None:
        self.message = message
        self.pointer = pointer
        self.hint = hint
        self.offset = offset
        place = pointer or "(the whole spec)"
        super().__init__(f"{place}: {message}" + (f" ({hint})" if hint else ""))

    def under(self, prefix: str) -> SpecError:
        """The same error, with its pointer within a document that has the spec at `prefix`."""
        return SpecError(self.message, prefix + self.pointer, self.hint, self.offset)


class TransformError(IdgraphError):
    """A compiled spec could not be applied to a payload.

    `pointer` is the JSON pointer of the operation within the spec. The message has no payload values.
    """

    def __init__(self, message: str, pointer: str = "") -> None:
        self.message = message
        self.pointer = pointer
        super().__init__(f"{pointer or '(the whole spec)'}: {message}")


class SpecLimitError(TransformError):
    """A payload takes a spec beyond a bound; `try()` does not catch it."""


class EventError(IdgraphError):
    """An event cannot be processed; it becomes a dead letter with `reason` (see `DeadLetterReason`)."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        self.message = message
        super().__init__(f"{reason}: {message}")


class MetadataError(IdgraphError):
    """Specs or attribute metadata were refused, or the metadata service failed."""


class UnauthorizedError(MetadataError):
    """The metadata service refused the token. Retrying does not help."""


class SnapshotSignatureError(MetadataError):
    """A metadata snapshot is not signed by the key that was pinned. It is not taken; the last one stays in force."""


class RefusedError(MetadataError):
    """The metadata service refused a request. Retrying does not help.

    `problem` is the mistake in a document, with its pointer there; None if unknown.
    """

    problem: SpecError | None = None


class NotFoundError(RefusedError):
    """Nothing of the given name is there, or the metadata service does not know it."""


class ApprovalNeededError(RefusedError):
    """An edit weakens protection: the metadata service keeps it as policy change `number` until a second person
    approves it."""

    def __init__(self, message: str, number: int) -> None:
        self.number = number
        super().__init__(message)


def first_few(reasons: list[str], most: int = 5) -> list[str]:
    """The first ones, and the count of the others."""
    return [*reasons[:most], f"{len(reasons) - most} more"] if len(reasons) > most else reasons


class PayloadSchemaError(IdgraphError):
    """The schema of a payload is missing or unusable. The message says why."""


class SchemaRegistryError(IdgraphError):
    """A schema registry is away, or refuses its caller. Retryable."""


class SourceUnavailableError(IdgraphError):
    """The source of events is away. Retryable."""


class StoreError(IdgraphError):
    """A profile store, key store or dead-letter store failed. Retryable unless said otherwise."""


class ClosedVersionError(StoreError):
    """A data key is wrapped by a key version that was rotated out. Wrap it by the current one; without a newer version
    the keyring is old."""


class DamagedStateError(StoreError):
    """A fragment's stored bytes are damaged. Retrying does not help."""


class UnstorableError(StoreError):
    """A store can never take some of the given fragments: they are too large, or not valid text. Retrying does not
    help; retry without them.

    `ids` names them if the store found out during a write. The others are then written, except `refused`, which
    failed their condition. Without `ids` nothing is written.
    """

    def __init__(
        self, message: str, ids: frozenset[str] = frozenset(), refused: frozenset[str] = frozenset()
    ) -> None:
        self.ids = ids
        self.refused = refused
        super().__init__(message)


class ConflictError(StoreError):
    """Other writers changed a fragment at each retry."""


class DecryptionError(IdgraphError):
    """A record could not be decrypted, and its source has `on_failure = "stop"`. The message names its position.
    Retryable."""


class TrimmedStreamError(StoreError):
    """Entries of a store's stream expired before they were read. The store still has the fragments."""


class ProfileIndexError(IdgraphError):
    """A profile index failed; unindexed profiles stay in the outbox."""


class ProfileServiceError(IdgraphError):
    """The profile service refused a request, or did not answer. `status` is the HTTP status, None without an answer.

    The rest is of its problem details: `detail`, the JSON `pointer` of the wrong place in the body, a `hint`, and `errors`,
    each with its `detail` and its `pointer` or `parameter`.
    """

    def __init__(
        self,
        message: str,
        status: int | None,
        *,
        detail: str = "",
        pointer: str | None = None,
        hint: str | None = None,
        errors: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.status = status
        self.detail = detail
        self.pointer = pointer
        self.hint = hint
        self.errors = tuple(errors)
        super().__init__(message)


class QueryError(IdgraphError):
    """A search query is malformed. The message shows the invalid part."""


class QueryCostError(QueryError):
    """A search would cost more than one search may."""


class KeyProviderError(IdgraphError):
    """A key is missing, refused or damaged. The message never has key material."""


class KeyServiceError(KeyProviderError):
    """The key service is away, throttles, or refuses: no key can be used. Retryable, without loss."""


class UnknownKeyVersionError(KeyProviderError):
    """The key-encryption key of this version does not exist, or no longer."""


class KeyInUseError(KeyProviderError):
    """A key-encryption key cannot be retired: it is current, or it wraps data keys."""


class SealError(IdgraphError):
    """A sealed value was altered, moved, truncated or belongs to another key."""


class FlowStoppedError(IdgraphError):
    """A flow stopped itself on purpose, for example because of too many dead letters."""


class UnreadableRecordError(FlowStoppedError):
    """Spark's connector cannot read a record of the micro-batch; another reader can."""


class WorkerLostError(FlowStoppedError):
    """A worker process died during its task: it was killed, or ran out of memory. Retryable."""


class WorkerInterruptedError(WorkerLostError):
    """A worker process got a signal for all processes, as from Ctrl-C. Retryable."""


class SparkStoppedError(FlowStoppedError):
    """Spark ended the flow; the message is Spark's."""


class JavaLostError(FlowStoppedError):
    """Spark's Java process died: it was killed, or got a signal for the process group."""


class FlowInterruptedError(FlowStoppedError):
    """A signal to stop the flow also ended Spark's Java process."""


class JobStoppedError(IdgraphError):
    """A job stopped early on request, and can resume. `is_cancelled`: by a request in the job log; otherwise by a signal
    to its process."""

    def __init__(self, message: str, is_cancelled: bool = True) -> None:
        super().__init__(message)
        self.is_cancelled = is_cancelled


class PublishError(IdgraphError):
    """Events could not be published. `published` of them were; publishing them again is harmless."""

    def __init__(self, message: str, published: int) -> None:
        self.published = published
        super().__init__(message)
