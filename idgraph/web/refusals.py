"""Reasons why the service refuses a request; each becomes one HTTP status."""

from __future__ import annotations

from idgraph.model.errors import MetadataError, NotFoundError, QueryError


class RefusedRequestError(MetadataError):
    """The request cannot be accepted. `pointer` is the JSON pointer of the wrong place in it."""

    def __init__(self, message: str, pointer: str = "", hint: str | None = None) -> None:
        self.message = message
        self.pointer = pointer
        self.hint = hint
        super().__init__(message)


class BadQueryError(MetadataError, QueryError):
    """A query parameter or header cannot be read."""


class UnknownSubjectError(NotFoundError):
    """There is no such spec, version, attribute or token."""


class PreconditionError(MetadataError):
    """`If-Match` or `If-None-Match` does not hold: someone else was faster."""


class ClashError(MetadataError):
    """The change contradicts another part of the catalogue."""


class SamePersonError(MetadataError):
    """The person who asked for a change cannot approve it."""


class NotReadyError(MetadataError):
    """Another service has not answered since the start."""


class NotYetError(MetadataError):
    """The result is not there yet."""


class RateError(MetadataError):
    """The rate of this caller is used up. `reset_seconds` is until the next request may come."""

    def __init__(
        self,
        reset_seconds: int,
        message: str = "more requests, or costlier ones, than the rate limit of this caller",
    ) -> None:
        self.reset_seconds = reset_seconds
        super().__init__(message)


class ForbiddenError(MetadataError):
    """The caller may not do this."""
