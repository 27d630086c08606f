"""Views and segments: what product teams name once and use in many requests."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, model_validator

from idgraph.model import paths, queries
from idgraph.model.documents import Definition
from idgraph.model.durations import TimeZone
from idgraph.model.index import Segment

PURPOSE_PATTERN = r"^[A-Za-z][A-Za-z0-9_\-]{0,63}$"

CONSENTS, GIVEN = "consents", "given"
"""Attributes `consents.PURPOSE.status` have this value where a person has consented."""


class PurposeDefinition(Definition):
    """The common fields of views and segments."""

    purpose: str | None = Field(
        default=None,
        pattern=PURPOSE_PATTERN,
        description="Persons who have not consented to it are left out.",
    )


class ViewDefinition(PurposeDefinition):
    """A selection and renaming of attributes, as its author writes it."""

    attributes: dict[str, Any] = Field(
        min_length=1,
        description="As the spec of the operation `jmespath`: target path to an expression over the attributes.",
    )


class ViewDocument(ViewDefinition):
    """One stored, immutable version of a view."""

    version: int = Field(ge=1)


class _SegmentDefinition(PurposeDefinition):
    changes: bool = Field(
        default=False, description="Whether the feed says each time that a member has changed."
    )
    time_zone: TimeZone = Field(
        default="UTC",
        exclude_if=lambda zone: zone == "UTC",
        description="Such as Europe/Berlin: the days of moments like `today-7d` that name no zone.",
    )


class SegmentDefinition(_SegmentDefinition):
    """A named search: `q` in the search language, or `query` in JSON."""

    q: str | None = Field(default=None, max_length=10_000)
    query: list[Any] | None = Field(default=None, description="Conditions that must all hold.")

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.q is None) == (self.query is None):
            raise ValueError("`q` and `query` are two forms of one thing; give one")
        return self


class SegmentDocument(_SegmentDefinition):
    """One stored, immutable version of a segment. `query` has what `q` meant when it was saved."""

    q: str | None = None
    query: list[Any]
    version: int = Field(ge=1)

    def segment(self) -> Segment:
        """The condition for members."""
        query = queries.from_json(self.query)
        consent: tuple[queries.Condition, ...] = ()
        if self.purpose is not None:
            consent = (queries.Term(paths.join((CONSENTS, self.purpose, "status")), GIVEN),)
        condition = queries.Query((*query.clauses, *consent))
        return Segment(self.name, self.version, query, condition, self.changes, self.purpose)
