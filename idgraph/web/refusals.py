"""Why the service does not do what it was asked to; each becomes one HTTP status."""

from __future__ import annotations

from idgraph.model.errors import MetadataError


class RefusedRequestError(MetadataError):
    """What was sent cannot be accepted. `pointer` is the JSON pointer of the wrong place in it."""

    def __init__(self, message: str, pointer: str = "", hint: str | None = None) -> None:
        self.message = message
        self.pointer = pointer
        self.hint = hint
        super().__init__(message)


class BadQueryError(MetadataError):
    """A query parameter or header cannot be read."""


class UnknownSubjectError(MetadataError):
    """There is no such spec, version, attribute or token."""


class PreconditionError(MetadataError):
    """`If-Match` or `If-None-Match` does not hold: someone else was faster."""


class ClashError(MetadataError):
    """The change contradicts another part of the catalogue."""


class SamePersonError(MetadataError):
    """Who asked for a change cannot be the one who approves it."""


class GoneError(MetadataError):
    """What was asked for is no part of the history, or no more of use than all there is."""
