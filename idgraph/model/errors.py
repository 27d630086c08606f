"""The one error tree.

Every error that idgraph raises on purpose is an `IdgraphError`. A message names the place (file, key,
JSON pointer, path) and never a value that came in an event: values may be personal data (law 3).
"""

from __future__ import annotations


class IdgraphError(Exception):
    """Base of all errors that idgraph raises on purpose."""


class ConfigError(IdgraphError):
    """The configuration cannot be used. The message names the file or variable and the key."""


class AlreadyRunningError(ConfigError):
    """A flow, or a job of this kind and target, is running already. The message names its lock, or the job."""


class SpecError(IdgraphError):
    """A mapping spec is malformed; raised when it is compiled or saved, never for an event.

    `pointer` is the JSON pointer (RFC 6901) of the wrong place within the spec that was given; `offset`
    the character within the text there, if that is known.
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
        """The same error, its pointer seen from a document that holds the spec at `prefix`."""
        return SpecError(self.message, prefix + self.pointer, self.hint, self.offset)


class TransformError(IdgraphError):
    """A compiled spec could not be applied to a payload.

    `pointer` is the JSON pointer of the operation within the spec. The message holds no payload values.
    """

    def __init__(self, message: str, pointer: str = "") -> None:
        self.message = message
        self.pointer = pointer
        super().__init__(f"{pointer or '(the whole spec)'}: {message}")


class SpecLimitError(TransformError):
    """A payload makes a spec work longer, or make more, than it may: `try()` gives nothing in its place."""


class EventError(IdgraphError):
    """An event cannot be processed; it becomes a dead letter with `reason` (see `DeadLetterReason`)."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        self.message = message
        super().__init__(f"{reason}: {message}")


class MetadataError(IdgraphError):
    """Specs or attribute metadata were refused, or the metadata service gave no usable answer."""


class UnauthorizedError(MetadataError):
    """The metadata service refused the token. Retrying does not help."""


class RefusedError(MetadataError):
    """The metadata service refused what it was sent. Retrying does not help.

    `problem` is what it found wrong in a document, its pointer seen from the document; None if it did not say.
    """

    problem: SpecError | None = None


class NotFoundError(RefusedError):
    """The metadata service does not know what a request names."""


class ApprovalNeededError(RefusedError):
    """An edit weakens protection: the metadata service keeps it as policy change `number` until a second person
    approves it."""

    def __init__(self, message: str, number: int) -> None:
        self.number = number
        super().__init__(message)


class PayloadSchemaError(IdgraphError):
    """A schema that payloads were written with cannot be had, or cannot be used. The message says why."""


class SchemaRegistryError(IdgraphError):
    """A schema registry is away, or refuses its caller. Retryable."""


class SourceUnavailableError(IdgraphError):
    """What events are read from is away. Retryable."""


class StoreError(IdgraphError):
    """A profile store, key store or dead-letter store failed. Retryable unless said otherwise."""


class ClosedVersionError(StoreError):
    """A data key was brought that is wrapped by a key version which was rotated out. Wrap it by the current
    one; who has none that is newer has an old keyring."""


class DamagedStateError(StoreError):
    """A fragment's stored bytes are none that idgraph wrote. Retrying does not help."""


class UnstorableError(StoreError):
    """A store can never take something of what it was given, or be asked for it: it is too large, or not valid
    text. Retrying does not help; the rest can be given without it.

    `ids` names what it is, where the store found out in the middle of a write: the rest is written then, but for
    `refused`, which were refused as any write may be. Without `ids` nothing is written.
    """

    def __init__(
        self, message: str, ids: frozenset[str] = frozenset(), refused: frozenset[str] = frozenset()
    ) -> None:
        self.ids = ids
        self.refused = refused
        super().__init__(message)


class ConflictError(StoreError):
    """A fragment kept changing under its writer until the retries were used up."""


class DecryptionError(IdgraphError):
    """A record that arrived encrypted was not decrypted, and its source says to stop. The message names its position.
    Retryable."""


class TrimmedStreamError(StoreError):
    """What a store's stream reported was dropped before it was read. What it reported is still in the store."""


class ProfileIndexError(IdgraphError):
    """A profile index failed; what it did not take stays in the outbox."""


class VersionNotFoundError(ProfileIndexError):
    """There is no version of an index by that name."""


class VersionInUseError(ProfileIndexError):
    """A version of an index cannot be deleted: searches and writes go to it."""


class QueryError(IdgraphError):
    """A search query is malformed. The message shows the part that cannot be read."""


class KeyProviderError(IdgraphError):
    """A key is missing, refused or damaged. The message never holds key material."""


class KeyServiceError(KeyProviderError):
    """The service that holds the keys is away, throttles, or refuses their use: no key can be used, whosever it is.
    Retryable; what was being sealed is not lost."""


class UnknownKeyVersionError(KeyProviderError):
    """There is no key-encryption key of this version, or no longer."""


class KeyInUseError(KeyProviderError):
    """A key-encryption key cannot be retired: it is the current one, or data keys are wrapped by it."""


class SealError(IdgraphError):
    """A sealed value was altered, moved, truncated or belongs to another key."""


class FlowStoppedError(IdgraphError):
    """A flow stopped itself on purpose, for instance because too many events became dead letters."""


class UnreadableRecordError(FlowStoppedError):
    """Spark's connector cannot take a record of the micro-batch; another reader may."""


class WorkerLostError(FlowStoppedError):
    """A worker process of the flow died under its task: it was killed, or ran out of memory. Retryable."""


class WorkerInterruptedError(WorkerLostError):
    """A worker process of the flow got a signal as Ctrl-C sends it: one that went to all processes. Retryable."""


class SparkStoppedError(FlowStoppedError):
    """Spark ended the flow, and this is what it said."""


class JavaLostError(FlowStoppedError):
    """Spark's Java process is gone under the flow: it was killed, or got a signal that went to all of a group."""


class FlowInterruptedError(FlowStoppedError):
    """The flow was asked to stop by a signal that went to Spark's Java process too, which did not wait."""


class JobStoppedError(IdgraphError):
    """A job ended before its end because somebody asked for it; it resumes there. `is_cancelled` by a request in the
    job log, otherwise by a signal to its process."""

    def __init__(self, message: str, is_cancelled: bool = True) -> None:
        super().__init__(message)
        self.is_cancelled = is_cancelled


class PublishError(IdgraphError):
    """Events could not be published. `published` of them were, and may be published again without harm."""

    def __init__(self, message: str, published: int) -> None:
        self.published = published
        super().__init__(message)


class ServerUnavailableError(IdgraphError):
    """A server for tests or development cannot be had on this machine. The message says why."""
